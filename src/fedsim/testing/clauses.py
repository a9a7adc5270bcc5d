"""What the checks share: running clauses by name, and the clauses on state, jit and vmap."""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from inspect import isfunction
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.require import instance, is_key
from fedsim.core.selection import smooth_selection
from fedsim.core.types import Aggregate, Array, PyTree
from fedsim.testing import require

Case = TypeVar("Case")
Step = Callable[..., tuple[PyTree, PyTree]]

MAX_LENGTH = 300  # of another program's message


# Running clauses


def by_name(*clauses: Callable[[Case], None]) -> dict[str, Callable[[Case], None]]:
    """The clauses by the names of their functions, without leading underscores."""
    return {clause.__name__.lstrip("_"): clause for clause in clauses}


def check(
    checked: Any,
    kind: Any,
    clauses: Mapping[str, Callable[[Case], None]],
    make_case: Callable[[], Case],
    skip: Collection[str],
) -> None:
    """Runs `clauses` on a case of `checked`, which must be of the type `kind`, except those in `skip`.

    Raises `AssertionError` for another type or the first violated clause, `ValueError` if `skip` has an unknown name.
    """
    instance(checked, kind, "the argument", "; call the function to get what it makes" if isfunction(checked) else "")
    skipped = {skip} if isinstance(skip, str) else set(skip)
    if unknown := sorted(skipped - set(clauses)):
        raise ValueError(f"skip: must be among {', '.join(clauses)}, got {unknown[0]!r}")
    case = None
    for name, clause in clauses.items():
        try:
            case = make_case() if case is None else case  # if it cannot be made, the first clause is violated
            if name not in skipped:
                clause(case)
        except AssertionError as error:
            raise AssertionError(f"{name}: {one_line(error)}") from None
        except Exception as error:  # of the checked object
            raise AssertionError(f"{name}: {type(error).__name__}: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """The error's message without line breaks, shortened."""
    return " ".join(str(error).split())[:MAX_LENGTH]


# Functions with a state


def take_rows(tree: PyTree, index: Any) -> PyTree:
    """The rows `index` of all leaves [K, ...], as NumPy arrays: an indexing of JAX is compiled for each shape."""
    return jax.tree.map(lambda a: _on_host(a)[index], tree)


def stack_trees(trees: list[PyTree]) -> PyTree:
    """Stacks trees of one structure along a new first axis, on the host."""
    stack = lambda arrays: np.stack(arrays) if isinstance(arrays[0], np.ndarray) else jnp.stack(arrays)
    return jax.tree.map(lambda *leaves: stack(list(map(_on_host, leaves))), *trees)


def _on_host(leaf: Any) -> Any:
    """A NumPy array with the dtype that JAX gives `leaf`; random keys, which NumPy does not know, stay as they are."""
    array = jnp.asarray(leaf)
    return array if is_key(array) else np.asarray(array)


def traced_anew(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`function` inside `jax.jit` with a trace of its own, in which NumPy's random numbers are other constants."""
    return jax.jit(lambda *arguments: function(*arguments), **options)


class Round(NamedTuple):
    """One call of `step(state, *inputs) -> (result, next_state)`."""

    name: str
    """Of the inputs, for messages."""
    state: PyTree
    """Before the call."""
    inputs: tuple[Any, ...]
    """Arguments besides the state."""
    result: PyTree
    """First part of what it returns."""
    next_state: PyTree
    """Second part."""


class StatefulFunctionCase:
    """Rounds of a function with state, the state fed back; the reference that its other forms must equal.

    A function that cannot be compiled runs as it is; the clause `jit` or `vmap` reports that.
    """

    def __init__(self, step: Step, state: PyTree, inputs: Mapping[str, tuple[Any, ...]]) -> None:
        self.step, self.jitted = step, jax.jit(step)
        self._state, self._inputs = state, inputs

    @cached_property
    def rounds(self) -> list[Round]:
        """A round with each of the inputs, until the state changes its structure, shapes or dtypes."""
        state, rounds = self._state, []
        for name, inputs in self._inputs.items():
            result, next_state = self._call(state, *inputs)
            rounds.append(Round(name, state, inputs, result, next_state))
            try:
                require.like(next_state, state, "the state")
            except AssertionError:
                break
            state = next_state
        return rounds

    def _call(self, state: PyTree, *inputs: Any) -> tuple[PyTree, PyTree]:
        try:
            return self.jitted(state, *inputs)
        except Exception:
            return self.step(state, *inputs)

    def require_same(self, outputs: tuple[PyTree, PyTree], round: Round, message: str) -> None:
        """Requires that the outputs of another form of the function are those of `round`."""
        require.close(outputs, (round.result, round.next_state), message, require.max_abs(round.result))


def state(case: StatefulFunctionCase) -> None:
    """The state keeps its structure, shapes and dtypes, and no number in it becomes NaN."""
    for number, round in enumerate(case.rounds, 1):
        require.like(round.next_state, round.state, f"after round {number} the state")
        require.no_new_nan(round.next_state, round.state, f"in round {number} ({round.name}) the state")


def jit(case: StatefulFunctionCase) -> None:
    """The results inside `jax.jit` are the same; in one round, because uncompiled calls are slow."""
    round = case.rounds[0]
    case.jitted(round.state, *round.inputs)  # raises if it cannot be compiled
    arguments = jax.tree.map(lambda a: a, (round.state, *round.inputs))  # containers that the function may change
    case.require_same(case.step(*arguments), round, f"inside jax.jit the result differs ({round.name})")


def vmap(case: StatefulFunctionCase) -> None:
    """The results inside `jax.vmap` are the same."""
    mapped = jax.jit(jax.vmap(case.step))(*stack_trees([(round.state, *round.inputs) for round in case.rounds]))
    for number, round in enumerate(case.rounds):
        message = f"inside jax.vmap the result differs ({round.name})"
        case.require_same(take_rows(mapped, number), round, message)


def gradient(case: StatefulFunctionCase) -> None:
    """The derivative of the update or updates in the result by the clients' updates is finite."""

    def total(updates: PyTree, state: PyTree, report: Any) -> Array:
        with smooth_selection(1.0):
            result, _ = case.step(state, report._replace(updates=updates))
        leaves = jax.tree.leaves(result.update if isinstance(result, Aggregate) else result.updates)
        return sum(map(jnp.sum, leaves), jnp.float32(0))

    derivative = jax.jit(jax.grad(total))
    for round in case.rounds:
        (report,) = round.inputs
        what, hint = (
            f"with {round.name} the derivative by the updates",
            "; square roots at 0, or NaN as a filler, make it NaN",
        )
        require.finite(derivative(report.updates, round.state, report), what, hint)
