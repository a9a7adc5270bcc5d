"""What a group's runs read: data that they share, and what differs between them."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.components import settings_under
from fedsim.config.schema import Config, Settings, num_corrupted
from fedsim.core.branches import Branch
from fedsim.core.corrupt import corrupt, corrupt_inputs
from fedsim.core.delay import DelayedCorruption
from fedsim.core.types import Array, ClientData, DataSpec, Examples, FederatedDataset, HParams, PyTree
from fedsim.engine import build


class SharedInputs(NamedTuple):
    """What all runs of a group read and none changes."""

    train: ClientData
    """The clients' clean data."""
    frozen: PyTree
    """The task's frozen arrays."""
    root: Examples | None = None
    """The server's clean examples."""
    branch: Branch | None = None
    """The branch of a family's program; None if there is only one."""
    state_rows: Array | None = None
    """[N] int32, the row of each client's state; None if the states of all clients are on the device."""


class RunInputs(NamedTuple):
    """What differs between the runs of a group."""

    key: Array
    """Random keys [S]."""
    hparams: HParams
    """Swept numbers [S]."""
    changes: dict[str, Array]
    """The fields [S, ...] of the clients' data that corruption changes, by name."""
    start_round: Array | None = None
    """The first round [S] with corruption; None if all runs are corrupted from the start."""

    def data(self, shared: SharedInputs) -> ClientData | DelayedCorruption:
        """The clients' data of one run."""
        if self.start_round is None:
            return shared.train._replace(**self.changes)
        return DelayedCorruption(shared.train, self.changes, self.start_round)


def buffer_shapes(data: ClientData, num_examples: int) -> ClientData:
    """The shapes of `data` with the examples of some clients, in a buffer of `num_examples`."""
    resize = lambda a: jax.ShapeDtypeStruct((num_examples, *a.shape[1:]), a.dtype)
    return data._replace(x=resize(data.x), y=resize(data.y))  # type: ignore[arg-type]


class EvaluationData(NamedTuple):
    """Examples that no client trains on."""

    x: Array
    """Test inputs [T, *feature]."""
    y: Array
    """Test labels [T]."""
    clients: Array | None
    """The clients [T] that test examples belong to, if they do."""
    validation: Examples | None = None
    """Clean validation examples."""


def changed_fields(configs: Sequence[Config]) -> frozenset[str]:
    """The fields of the clients' data that the corruptions of the runs change."""
    return _all_changed_fields({_corruption_config(config) for config in configs})


def _all_changed_fields(corruptions: Iterable[Config]) -> frozenset[str]:
    return frozenset({"corrupted"}).union(*(build.corruption(config).changed_fields for config in corruptions))


def make_run_inputs(
    configs: Sequence[Config],
    hparams: HParams,
    data: ClientData,
    spec: DataSpec,
    fields: frozenset[str] = frozenset(ClientData._fields),
) -> RunInputs:
    """The inputs of the runs `configs` with the traced numbers `hparams` [S] and the clean `data`, corrupted.

    Of the fields that corruption changes, only `fields` are computed.
    """
    keys = _make_keys(np.asarray([config.seed for config in configs], np.int32))
    slots_of = _by_corruption(configs)
    changed = _all_changed_fields(slots_of) & fields
    parts = []
    for config, slots in slots_of.items():
        numbers = np.asarray([num_corrupted(configs[slot], data.num_examples.shape[0]) for slot in slots])
        factory = build.corruption_factory(config)
        parts.append(_corrupt_runs(factory, config, spec, changed, keys[np.asarray(slots), 0], numbers, data))
    changes = parts[0]
    if len(parts) > 1:
        order = np.argsort(np.concatenate(list(slots_of.values())))
        changes = jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[order], *parts)
    starts = [config.corruption.start_round for config in configs]
    start_round = jnp.asarray(starts, jnp.int32) if any(starts) else None
    return RunInputs(keys[:, 1], hparams, changes, start_round)


def corrupt_labels(configs: Sequence[Config], data: ClientData, spec: DataSpec) -> list[np.ndarray]:
    """The labels [M] of each run, on the host; runs with equal ones share the array."""
    labels: dict[Hashable, np.ndarray] = {}

    def corrupt_run(config: Config) -> np.ndarray:
        if "y" not in build.corruption(config).changed_fields:
            return np.asarray(data.y)
        corruption, number = _corruption_config(config), num_corrupted(config, data.num_examples.shape[0])
        if (run := (corruption, config.seed, number)) not in labels:
            keys = _make_keys(np.asarray([config.seed], np.int32))[:, 0]
            factory, changed = build.corruption_factory(corruption), frozenset({"y"})
            changes = _corrupt_runs(factory, corruption, spec, changed, keys, np.asarray([number]), data)
            labels[run] = np.asarray(changes["y"])[0]
        return labels[run]

    return list(map(corrupt_run, configs))


def corrupt_buffers(
    configs: Sequence[Config],
    x: np.ndarray,
    positions: np.ndarray,
    owners: np.ndarray,
    corrupted: Array,
    spec: DataSpec,
) -> Array:
    """The corrupted inputs [B, C, *feature] of the examples that are gathered for each of the runs `configs` [B].

    The runs are spread evenly over D buffers `x` [D, C, *feature], which hold the examples at `positions` [D, C] of the
    training data, of the clients `owners` [D, C]; owner N marks padding. `corrupted` is [B, N].
    """
    keys = _make_keys(np.asarray([config.seed for config in configs], np.int32))[:, 0]
    buffers = np.arange(len(configs)) * len(x) // len(configs)
    slots_of = _by_corruption(configs)
    parts = []
    for config, slots in slots_of.items():
        runs = keys[np.asarray(slots)], corrupted[np.asarray(slots)], buffers[slots]
        parts.append(_corrupt_buffers(build.corruption_factory(config), config, spec, runs, (x, positions, owners)))
    order = np.argsort(np.concatenate(list(slots_of.values())))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)[order]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _corrupt_buffers(
    factory: Hashable, config: Config, spec: DataSpec, runs: tuple[Array, ...], buffers: tuple[Array, ...]
) -> Array:
    """The inputs of runs (keys, corrupted, positions of their buffers), run by run, as in `_corrupt_runs`."""
    del factory
    corruption = build.corruption(config)

    def corrupt_run(run: tuple[Array, ...]) -> Array:
        key, corrupted, buffer = run
        x, positions, owners = (a[buffer] for a in buffers)
        return corrupt_inputs(corruption, key, x, positions, owners, corrupted, spec)

    return jax.lax.map(corrupt_run, runs)


def _by_corruption(configs: Sequence[Config]) -> dict[Config, list[int]]:
    """The positions of the runs that have each corruption."""
    slots_of: dict[Config, list[int]] = {}
    for slot, config in enumerate(configs):
        slots_of.setdefault(_corruption_config(config), []).append(slot)
    return slots_of


def _corruption_config(config: Config) -> Config:
    """The part of a configuration that determines the corruption, except keys and numbers."""
    corruption = replace(config.corruption, fraction=0.0, rounding="nearest", start_round=0)
    return replace(Config(), corruption=corruption, settings=settings_under(config, "corruption.kind"))


@jax.jit
@jax.vmap
def _make_keys(seed: Array) -> Array:
    """The keys [2] of a run, for corruption and simulation."""
    return jax.random.split(jax.random.key(seed))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _corrupt_runs(
    factory: Hashable,
    config: Config,
    spec: DataSpec,
    changed: frozenset[str],
    keys: Array,
    numbers: Array,
    data: ClientData,
) -> dict[str, Array]:
    """The fields `changed` [S, ...] of `data`, corrupted run by run; the others are not even computed."""
    del factory  # of the corruption: another factory is another program
    corruption = build.corruption(config)
    declared = corruption.changed_fields | {"corrupted"}

    def corrupt_run(args: tuple[Array, Array]) -> dict[str, Array]:
        key, number = args
        result = corrupt(corruption, key, data, spec, number, config.corruption.clients)
        return {name: getattr(result if name in declared else data, name) for name in changed}

    return jax.lax.map(corrupt_run, (keys, numbers))


class BackdoorTests(NamedTuple):
    """Test examples with backdoors' triggers on them, which measure the success of the backdoors."""

    examples: ClientData
    """Examples of other classes, labeled with the target; those of trigger i are client i's."""
    trigger_ids: Array
    """The trigger [S] of each run, int32; 0 means no trigger, and client 0 has no examples."""


class Trigger(NamedTuple):
    """A corruption that has a trigger, and its settings."""

    kind: str
    settings: Settings


def find_trigger(config: Config) -> Trigger | None:
    """The trigger of a run; None if its corruption has none."""
    if build.corruption(config).trigger is None:
        return None
    return Trigger(config.corruption.kind, settings_under(config, "corruption.kind"))


def make_backdoor_tests(configs: Sequence[Config], dataset: FederatedDataset) -> BackdoorTests | None:
    """The test set once for each different trigger of the runs `configs`; None if there is nothing to measure.

    Examples whose label the trigger does not change are left out: they belong to the target class already.
    """
    triggers = [find_trigger(config) for config in configs]
    config_of = {trigger: config for trigger, config in zip(triggers, configs, strict=True) if trigger is not None}
    xs, ys = [dataset.x_test[:0]], [dataset.y_test[:0]]
    for config in config_of.values():
        apply = build.corruption(config).trigger
        assert apply is not None
        x, y = map(np.asarray, apply(jnp.asarray(dataset.x_test), jnp.asarray(dataset.y_test), dataset.spec))
        is_relabeled = (y != dataset.y_test).reshape(len(y), -1).any(axis=1)
        xs.append(x[is_relabeled])
        ys.append(y[is_relabeled])
    num_examples = np.asarray([len(y) for y in ys], np.int32)
    if not num_examples.any():
        return None
    offsets = np.concatenate([[0], np.cumsum(num_examples)[:-1]]).astype(np.int32)
    arrays = np.concatenate(xs), np.concatenate(ys), offsets, num_examples, np.zeros(len(num_examples), bool)
    id_of = {None: 0} | {trigger: 1 + position for position, trigger in enumerate(config_of)}
    trigger_ids = np.asarray([id_of[trigger] for trigger in triggers], np.int32)
    return BackdoorTests(ClientData(*arrays), trigger_ids)  # type: ignore[arg-type]
