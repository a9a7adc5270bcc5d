"""The contract of corruptions, and corrupting the data of some clients. Corruptions are in `fedsim.corruption`."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Shaped

from fedsim.core import require
from fedsim.core.contracts import Task
from fedsim.core.draws import check_key
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec

Clients: TypeAlias = Bool[Array, " N"]  # a selection of all clients

__all__ = ["draw_labels", "example_owners", "mix", "require_classes"]  # of `fedsim.corruption`


class ApplyCorruption(Protocol):
    """The data after the corruption of some clients."""

    def __call__(self, data: ClientData, corrupted: Clients, spec: DataSpec, key: Array, /) -> ClientData: ...


class ChangeInputs(Protocol):
    """The inputs of the clients `owners`, bit for bit those that `ApplyCorruption` gives them with the same key.

    All examples of some clients, in any order, with their `positions` in the training data. Owner N marks padding,
    which must not change the others. `fedsim.corruption.draw_rows` draws the random numbers of selected examples.
    """

    def __call__(
        self,
        x: Shaped[Array, " m *s"],
        positions: Int[Array, " m"],
        owners: Int[Array, " m"],
        corrupted: Clients,
        spec: DataSpec,
        key: Array,
        /,
    ) -> Shaped[Array, " m *s"]: ...


CHANGEABLE = ("x", "y", "num_examples")
"""Fields of `ClientData` that a corruption may change."""


class Corruption(NamedTuple):
    """Changes corrupted clients' training data once, before the first round."""

    apply: ApplyCorruption
    changed_fields: frozenset[str] = frozenset()
    """Fields of `ClientData` that `apply` changes; the others are shared by all runs of a program."""
    validate: Callable[[DataSpec], None] = lambda spec: None
    """Raises `ValueError` if the corruption does not apply to such data."""
    trigger: Callable[[Array, Array, DataSpec], tuple[Array, Array]] | None = None
    """A backdoor's: `(x, y, spec) -> (x, y)` with the trigger applied and the target labels.

    Its success is the share of examples, of those whose label changes, that the model gives the target label.
    """
    change_inputs: ChangeInputs | None = None
    """None if inputs do not change, or those of all clients are needed at once, which must then be on the device."""
    change_task: Callable[[Task, DataSpec], Task] | None = None
    """For labels that depend on the model: `(task, spec) -> task` that understands the negative labels of `apply`.

    Its `num_classes` is None, since they are no classes. All clients get it, so such runs have programs of their own.
    """


def choose_clients(
    key: Array, num_clients: int, number: Array | int, others: Clients | None = None, *, from_end: bool = False
) -> Clients:
    """Which clients are corrupted: the first `number` of a random permutation; or malicious: the last, `from_end`.

    So under one key a larger number keeps the clients of a smaller one, and malicious clients have clean data as long
    as there are enough clients. `others`, those that are known to be in the other set, are chosen last.
    """
    order = jax.random.permutation(key, num_clients)
    if others is not None:
        order = order[jnp.argsort((~others if from_end else others)[order], stable=True)]
    positions = jnp.arange(num_clients)
    is_chosen = positions >= num_clients - number if from_end else positions < number
    return jnp.zeros(num_clients, bool).at[order].set(is_chosen)


def example_owners(data: ClientData) -> Int[Array, " M"]:
    """The client that owns each training example."""
    return jnp.searchsorted(data.offsets, jnp.arange(data.y.shape[0]), side="right") - 1


def draw_labels(key: Array, data: ClientData, rates: Float[Array, " N"]) -> Bool[Array, " M *target"]:
    """A random selection of labels: each with the probability of its client in `rates`."""
    return jax.random.uniform(key, data.y.shape) < expand_like(rates[example_owners(data)], data.y)


def require_classes(spec: DataSpec) -> None:
    """The `Corruption.validate` of label noise: raises `ValueError` if the targets are not classes."""
    if not spec.num_classes:
        raise ValueError("targets must be classes, got numbers")


def mix(*corruptions: Corruption) -> Corruption:
    """Each corrupted client has one of `corruptions`, in turn by the clients' numbers.

    One that is given twice is that of twice as many clients. At most one may have a trigger, and none may change the
    numbers of examples; `validate` says so.
    """
    triggers = [part.trigger for part in corruptions if part.trigger]
    of_inputs = [part.change_inputs for part in corruptions if "x" in part.changed_fields]

    def split(corrupted: Clients, key: Array) -> Iterator[tuple[Corruption, Clients, Array]]:
        turns = (jnp.cumsum(corrupted) - 1) % len(corruptions)
        keys = jax.random.split(key, len(corruptions))
        return ((part, corrupted & (turns == turn), keys[turn]) for turn, part in enumerate(corruptions))

    def apply(data: ClientData, corrupted: Clients, spec: DataSpec, key: Array) -> ClientData:
        owners, mixed = example_owners(data), data
        for part, clients, part_key in split(corrupted, key):
            changed, is_own = part.apply(data, clients, spec, part_key), clients[owners]
            arrays = ((name, getattr(changed, name), getattr(mixed, name)) for name in part.changed_fields)
            mixed = mixed._replace(**{name: jnp.where(expand_like(is_own, a), a, b) for name, a, b in arrays})
        return mixed

    def change_inputs(x: Array, positions: Array, owners: Array, corrupted: Array, spec: DataSpec, key: Array) -> Array:
        for part, clients, part_key in split(corrupted, key):
            if part.change_inputs:
                x = part.change_inputs(x, positions, owners, clients, spec, part_key)
        return x

    def validate(spec: DataSpec) -> None:
        for part in corruptions:
            check_key_order(part)
            part.validate(spec)
            if "num_examples" in part.changed_fields:
                raise ValueError("one that excludes clients must be the only one")
        if len(triggers) > 1:
            raise ValueError("at most one may aim at a class (backdoor, targeted)")

    def change_task(task: Task, spec: DataSpec) -> Task:
        for part in corruptions:
            task = part.change_task(task, spec) if part.change_task else task
        return task

    return Corruption(
        apply,
        frozenset().union(*(part.changed_fields for part in corruptions)),
        validate,
        triggers[0] if triggers else None,
        change_inputs if of_inputs and all(of_inputs) else None,
        change_task if any(part.change_task for part in corruptions) else None,
    )


def check_key_order(corruption: Corruption) -> None:
    """Raises `ValueError` if the corruption's functions take the key first, as they did before 0.5."""
    for name in ("apply", "change_inputs"):
        function = getattr(corruption, name)
        if function is not None and next(iter(inspect.signature(function).parameters), None) == "key":
            raise ValueError(f"{name}: key must be its last argument, not its first")


def _require_integers(values: Sequence[tuple[str, Array | int]], largest: int, meaning: str) -> None:
    """Raises `ValueError` if one of the named `values` is not an integer from 0 to `largest`; traced ones pass."""
    for name, value in values:
        if isinstance(value, jax.core.Tracer):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{name}: must be an integer, got {value!r}") from None
        if not number.is_integer() or not 0 <= number <= largest:
            raise ValueError(f"{name}: must be an integer from 0 to {largest}, {meaning}, got {number:g}")


def corrupt(
    corruption: Corruption,
    key: Array,
    data: ClientData,
    spec: DataSpec,
    num_corrupted: Array | int,
    client_ids: Sequence[int] = (),
    num_malicious: Array | int | None = None,
    malicious_ids: Sequence[int] = (),
) -> ClientData:
    """Corrupts `num_corrupted` clients drawn from `key`, or exactly `client_ids` if given, and marks them as such.

    With `num_malicious` or `malicious_ids` the clients that forge reports are a set of their own, drawn or given in the
    same way; drawn clients are in one of the two sets only, as long as there are enough. Raises `ValueError` if the
    corruption does not apply to such data, or for a number of clients, or the id of one, that is not possible, and
    `AssertionError` for a corruption or data of another type. `Simulation.init` needs another key: with this one, its
    draws would be correlated with those of some corruptions.

    >>> import jax, numpy as np, fedsim
    >>> y = np.repeat(np.arange(3), 4)
    >>> data = fedsim.from_arrays(np.zeros((12, 2), np.float32), y, y, np.zeros((3, 2), np.float32), np.arange(3))
    >>> flipping = fedsim.corruption.flipping()
    >>> fedsim.corrupt(flipping, jax.random.key(0), data.train, data.spec, num_corrupted=2).corrupted.sum().item()
    2
    """
    require.instance(corruption, Corruption, "corruption")
    require.instance(data, ClientData, "data", "; use dataset.train")
    check_key(key)
    corruption.validate(spec)
    num_clients = data.num_examples.shape[0]
    numbers = [("num_corrupted", num_corrupted)]
    numbers += [] if num_malicious is None else [("num_malicious", num_malicious)]
    _require_integers(numbers, num_clients, "the number of clients")
    ids = [("client_ids", client) for client in client_ids] + [("malicious_ids", client) for client in malicious_ids]
    _require_integers(ids, num_clients - 1, "the largest client id")
    data = jax.tree.map(jnp.asarray, data)
    clients_key, data_key = jax.random.split(key)
    mark = lambda ids: jnp.zeros(num_clients, bool).at[jnp.asarray(ids)].set(True)
    listed, malicious = (mark(ids) if len(ids) else None for ids in (client_ids, malicious_ids))
    corrupted = choose_clients(clients_key, num_clients, num_corrupted, malicious) if listed is None else listed
    if malicious is None and num_malicious is not None:
        malicious = choose_clients(clients_key, num_clients, num_malicious, listed, from_end=True)
    return corruption.apply(data, corrupted, spec, data_key)._replace(corrupted=corrupted, malicious=malicious)


def corrupt_inputs(
    corruption: Corruption,
    key: Array,
    x: Shaped[Array, " m *s"],
    positions: Int[Array, " m"],
    owners: Int[Array, " m"],
    corrupted: Clients,
    spec: DataSpec,
) -> Shaped[Array, " m *s"]:
    """The inputs that `corrupt` with the same `key` gives the examples at `positions`.

    `x` are their clean inputs, `owners` their clients, with all examples of each, and `corrupted` those that `corrupt`
    marked. Rows of padding have owner N and any valid position; their result is undefined. The
    corruption must have `change_inputs`.

    For the same bits, map this over runs by `lax.map`, as `corrupt` is mapped: compilers round `a * b + c` differently
    inside a loop.
    """
    assert corruption.change_inputs is not None
    _, data_key = jax.random.split(key)
    return corruption.change_inputs(x, positions, owners, corrupted, spec, data_key)
