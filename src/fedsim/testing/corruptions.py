"""The contract of a corruption, as `fedsim.corruption` states it."""

from collections.abc import Collection
from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.corrupt import CHANGEABLE, Corruption, check_key_order
from fedsim.core.types import Array, ClientData, DataSpec
from fedsim.testing import require, tiny
from fedsim.testing.clauses import by_name, check, traced_anew

KEY = jax.random.key(0)
NUM_EXAMPLES = (1, 4, 6, 3, 5)
CORRUPTED = (False, True, False, True, True)
SPECS = {
    "images": DataSpec("image", 3, (4, 4, 1), "uint8"),
    "texts": DataSpec("text", 7, (6,), "int8", (6,)),
    "vectors": DataSpec("vector", 3, (5,), "float32"),
    "regression": DataSpec("vector", 0, (5,), "float32", (2,)),
}


class _Federation(NamedTuple):
    name: str
    spec: DataSpec
    data: ClientData


class _Case:
    def __init__(self, corruption: Corruption, spec: DataSpec | None, seed: int) -> None:
        self.corruption, rng = corruption, np.random.default_rng(seed)
        specs = SPECS if spec is None else {"the given spec": spec}
        accepted = {name: spec for name, spec in specs.items() if accepts(corruption, spec)}
        self.federations = [_Federation(name, spec, _draw_data(rng, spec)) for name, spec in accepted.items()]
        self.jitted = jax.jit(corruption.apply, static_argnums=2)
        self.corrupted = jnp.asarray(CORRUPTED)

    @cached_property
    def results(self) -> list[tuple[_Federation, ClientData]]:
        """Each federation with its corrupted data, computed inside `jit`."""
        return [(given, self.jitted(given.data, self.corrupted, given.spec, KEY)) for given in self.federations]


def accepts(corruption: Corruption, spec: DataSpec) -> bool:
    """Whether the corruption applies to such data."""
    try:
        corruption.validate(spec)
    except ValueError:
        return False
    return True


def _draw_data(rng: np.random.Generator, spec: DataSpec) -> ClientData:
    shape, target_shape = (sum(NUM_EXAMPLES), *spec.shape), (sum(NUM_EXAMPLES), *spec.target_shape)
    if np.dtype(spec.dtype).kind == "f":
        x: np.ndarray = rng.random(shape)
    else:
        num_values = 256 if spec.inputs == "image" else max(spec.num_classes, 2)
        x = rng.integers(0, min(num_values, np.iinfo(spec.dtype).max + 1), shape)
    y: np.ndarray = rng.normal(size=target_shape)
    if spec.num_classes:
        y = rng.integers(0, spec.num_classes, target_shape)
        y[0] = spec.num_classes - 1  # so that the largest class occurs
    target_dtype = jnp.int32 if spec.num_classes else jnp.float32
    return tiny.join_clients(jnp.asarray(x, spec.dtype), jnp.asarray(y, target_dtype), NUM_EXAMPLES)


def _validate(case: _Case) -> None:
    check_key_order(case.corruption)
    require.true(case.federations, "the corruption must accept some kind of data, but rejects all that are tried")


def _changed_fields(case: _Case) -> None:
    unknown = sorted(set(case.corruption.changed_fields) - set(CHANGEABLE))
    require.true(not unknown, f"changed_fields must be among {', '.join(CHANGEABLE)}, got {unknown}")


def _jit(case: _Case) -> None:
    given, compiled = case.results[0]
    eager = case.corruption.apply(given.data, case.corrupted, given.spec, KEY)
    message = f"inside jax.jit the result differs ({given.name})"
    if given.data.x.dtype.kind != "f":  # rounding may decide between two integers
        is_far = np.abs(np.asarray(compiled.x, int) - np.asarray(eager.x, int)) > 1
        require.true(not is_far.any(), message)
        compiled = compiled._replace(x=eager.x)
    require.close(compiled, eager, message)


def _shapes(case: _Case) -> None:
    for given, after in case.results:
        require.true(isinstance(after, ClientData), f"the result must be ClientData, got {type(after).__name__}")
        for name in ClientData._fields:
            require.like(getattr(after, name), getattr(given.data, name), f"with {given.name} {name}")


def _other_fields(case: _Case) -> None:
    for given, after in case.results:
        for name in {*CHANGEABLE, "offsets"} - case.corruption.changed_fields:
            is_same = np.array_equal(getattr(after, name), getattr(given.data, name))
            require.true(is_same, f"with {given.name} {name} must not change, as it is not in changed_fields")


def _benign_clients(case: _Case) -> None:
    benign = ~np.asarray(CORRUPTED)
    is_benign_example = np.repeat(benign, NUM_EXAMPLES)
    for given, after in case.results:
        for name, rows in (("x", is_benign_example), ("y", is_benign_example), ("num_examples", benign)):
            before_rows, after_rows = (np.asarray(getattr(data, name))[rows] for data in (given.data, after))
            is_same = np.array_equal(before_rows, after_rows)
            require.true(is_same, f"with {given.name} {name} of benign clients must not change")


def _no_corrupted_clients(case: _Case) -> None:
    for given in case.federations:
        after = case.jitted(given.data, jnp.zeros(len(NUM_EXAMPLES), bool), given.spec, KEY)
        is_same = all(
            np.array_equal(a, b) for a, b in zip(require.to_float64(after), require.to_float64(given.data), strict=True)
        )
        require.true(is_same, f"with {given.name} and no corrupted clients nothing must change")


def _labels(case: _Case) -> None:
    for given, after in case.results:
        y = after.y if case.corruption.change_task is None else jnp.maximum(after.y, 0)
        _require_labels(y, given.spec, f"with {given.name} labels")


def _require_labels(y: Array, spec: DataSpec, name: str) -> None:
    if spec.num_classes:
        low, high = np.min(y), np.max(y)
        require.true(
            low >= 0 and high < spec.num_classes,
            f"{name} must be from 0 to {spec.num_classes - 1}, got {low} to {high}",
        )


def _num_examples(case: _Case) -> None:
    for given, after in case.results:
        sizes = np.asarray(after.num_examples)
        is_fewer = np.all((sizes >= 0) & (sizes <= np.asarray(given.data.num_examples)))
        require.true(is_fewer, f"with {given.name} num_examples must be neither negative nor increased")


def _finite(case: _Case) -> None:
    for given, after in case.results:
        require.finite((after.x, after.y), f"with {given.name} inputs and targets")


def _deterministic(case: _Case) -> None:
    given, first = case.results[0]
    second = traced_anew(case.corruption.apply, static_argnums=2)(given.data, case.corrupted, given.spec, KEY)
    require.close(second, first, f"with {given.name} the same key must give the same data, but a second call differs")


def _trigger(case: _Case) -> None:
    if case.corruption.trigger is None:
        return
    for given in case.federations:
        x, y = given.data.x, given.data.y
        triggered = case.corruption.trigger(x, y, given.spec)
        require.like(triggered[0], x, f"with {given.name} triggered x")
        require.like(triggered[1], y, f"with {given.name} triggered y")
        require.finite(triggered[0], f"with {given.name} triggered inputs")
        _require_labels(triggered[1], given.spec, f"with {given.name} triggered labels")
        again, first_two = (case.corruption.trigger(x[:n], y[:n], given.spec) for n in (len(x), 2))
        require.close(again, triggered, f"with {given.name} a second call of trigger differs")
        message = f"with {given.name} a triggered example must not depend on others, but differs"
        require.close(first_two, (triggered[0][:2], triggered[1][:2]), message)


def _change_inputs(case: _Case) -> None:
    """Mapped over keys as in the engine, with padding."""
    apply, change_inputs, corrupted = case.corruption.apply, case.corruption.change_inputs, case.corrupted
    if change_inputs is None:
        return
    require.true("x" in case.corruption.changed_fields, "with change_inputs x must be in changed_fields")

    @partial(jax.jit, static_argnums=2)
    def apply_to_all(keys: Array, data: ClientData, spec: DataSpec) -> Array:
        return jax.lax.map(lambda key: apply(data, corrupted, spec, key).x, keys)

    @partial(jax.jit, static_argnums=4)
    def change(keys: Array, x: Array, positions: Array, owners: Array, spec: DataSpec) -> Array:
        return jax.lax.map(lambda key: change_inputs(x, positions, owners, corrupted, spec, key), keys)

    keys, owners = jax.random.split(KEY), np.repeat(np.arange(len(NUM_EXAMPLES), dtype=np.int32), NUM_EXAMPLES)
    for given in case.federations:
        given_x, all_x = np.asarray(given.data.x), np.asarray(apply_to_all(keys, given.data, given.spec))
        for clients in ((4, 3, 2, 1, 0), (3, 0), (1, 4)):
            positions = np.concatenate([np.flatnonzero(owners == client)[::-1] for client in clients]).astype(np.int32)
            padding = (0, len(owners) + 2 - len(positions))
            rows = np.pad(positions, padding)
            row_owners = np.pad(owners[positions], padding, constant_values=len(NUM_EXAMPLES))
            x = change(keys, given_x[rows], rows, row_owners, given.spec)
            require.like(x, np.zeros((2, *given_x[rows].shape), given_x.dtype), f"with {given.name} x")
            is_same = np.array_equal(np.asarray(x)[:, : len(positions)], all_x[:, positions])
            require.true(is_same, f"with {given.name} x of clients {clients} must be that of apply, bit for bit")


CLAUSES = by_name(
    _validate,
    _changed_fields,
    _shapes,
    _jit,
    _other_fields,
    _benign_clients,
    _no_corrupted_clients,
    _labels,
    _num_examples,
    _finite,
    _deterministic,
    _trigger,
    _change_inputs,
)


def check_corruption(
    corruption: Corruption, spec: DataSpec | None = None, *, seed: int = 0, skip: Collection[str] = ()
) -> None:
    """Raises `AssertionError` with a sentence if `corruption` violates the contract; `skip` names clauses to leave out.

    Five clients, three of them corrupted, with synthetic data like `spec`; by default with images, texts, vectors and a
    regression, except those that `corruption.validate` rejects. The clauses:

    - validate: accepts at least one kind of data, and functions take the key last;
    - changed_fields: among x, y and num_examples;
    - shapes: all fields keep shapes and dtypes;
    - jit: the result is the same inside;
    - other_fields: only `changed_fields` change;
    - benign_clients: their examples and numbers of examples do not change;
    - no_corrupted_clients: then nothing changes;
    - labels: classes are from 0 to num_classes - 1, or negative if `change_task` understands them;
    - num_examples: is neither negative nor increased;
    - finite: inputs and targets;
    - deterministic: the same key gives the same result;
    - trigger: if there is one, triggered examples keep shapes and dtypes, are finite, and do not depend on each other;
    - change_inputs: if there is one, it gives the examples of some clients, in any order and next to padding, exactly
      the inputs that `apply` gives them.

    >>> import fedsim
    >>> from fedsim.testing import check_corruption
    >>> check_corruption(fedsim.corruption.pairflip(rate=0.5))
    """
    check(corruption, Corruption, CLAUSES, lambda: _Case(corruption, spec, seed), skip)
