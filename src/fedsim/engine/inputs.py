"""What a group's runs read: data that they share, and what differs between them."""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.clients import num_corrupted, num_malicious, numbers_of
from fedsim.config.components import positions_by
from fedsim.config.roles import corruption_config
from fedsim.config.schema import Config
from fedsim.core.branches import Branch
from fedsim.core.corrupt import corrupt
from fedsim.core.delay import DelayedCorruption
from fedsim.core.reports import malicious_clients
from fedsim.core.settings import MAX_INT
from fedsim.core.types import Array, ClientData, DataSpec, Examples, HParams, PyTree
from fedsim.engine import build, factories


class SharedInputs(NamedTuple):
    """What all runs of a group read and none changes."""

    train: ClientData
    """The clients' clean data."""
    frozen: PyTree
    """The task's frozen arrays."""
    root: Examples | None = None
    """The server's clean examples."""
    branch: Branch | None = None
    """The branch of a family's program; None for the first one."""
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
    corrupted_rounds: Array | None = None
    """The first and the last round [S, 2] with corruption; None if all runs are corrupted in all rounds."""
    trigger_ids: Array | None = None
    """The trigger [S] of each run's backdoor; None if there are no `EvaluationData.backdoors`."""

    def data(self, shared: SharedInputs) -> ClientData | DelayedCorruption:
        """The clients' data of one run."""
        if self.corrupted_rounds is None:
            return shared.train._replace(**self.changes)
        return DelayedCorruption(shared.train, self.changes, *self.corrupted_rounds)


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
    backdoors: ClientData | None = None
    """Test examples with backdoors' triggers, as `make_backdoor_tests` returns them; None if no run has a backdoor."""


def is_delayed(configs: Sequence[Config]) -> bool:
    """Whether a run has rounds without its corruption."""
    return any(config.corruption.rounds != (0, MAX_INT) for config in configs)


def changed_fields(configs: Sequence[Config]) -> frozenset[str]:
    """The fields of the clients' data that the corruptions of the runs change, and "malicious" if a run has such."""
    return frozenset().union(*map(_fields_of, by_corruption(configs)))


def _fields_of(corruption: Config) -> frozenset[str]:
    marks = {"corrupted", "malicious"} if corruption.has_malicious_set else {"corrupted"}
    return build.corruption(corruption).changed_fields | marks


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
    _, keys = run_keys(np.asarray([config.seed for config in configs], np.int32))
    positions_of = by_corruption(configs)
    changed, num_clients = frozenset().union(*map(_fields_of, positions_of)) & fields, data.num_examples.shape[0]
    parts = []
    for config, positions in positions_of.items():
        runs = [configs[position] for position in positions]
        numbers = [(run.seed, num_corrupted(run, num_clients), num_malicious(run, num_clients)) for run in runs]
        draws = np.asarray(numbers, np.int32)
        parts.append(_corrupt_runs(factories.corruptions_of(config), config, spec, changed, draws, data))
    changes = in_order(parts, positions_of)
    rounds = jnp.asarray([config.corruption.rounds for config in configs], jnp.int32) if is_delayed(configs) else None
    return RunInputs(keys, hparams, changes, rounds)


def by_corruption(configs: Sequence[Config]) -> dict[Config, list[int]]:
    """The positions of the runs that have each corruption."""
    positions_of: dict[Config, list[int]] = {}
    for positions in positions_by(configs, "corruption", "attack", "settings").values():
        positions_of.setdefault(corruption_config(configs[positions[0]]), []).extend(positions)
    return {config: sorted(positions) for config, positions in positions_of.items()}


def in_order(parts: Sequence[PyTree], positions_of: Mapping[Config, Sequence[int]]) -> PyTree:
    """The `parts`, arrays of the runs at each of `positions_of`, as arrays [S, ...] of all runs."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(list(positions_of.values())))
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[order], *parts)


@jax.jit
@jax.vmap
def run_keys(seed: Array) -> tuple[Array, Array]:
    """The keys of a run, for corruption and for simulation."""
    corruption, simulation = jax.random.split(jax.random.key(seed))
    return corruption, simulation


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _corrupt_runs(
    named: Hashable,
    config: Config,
    spec: DataSpec,
    changed: frozenset[str],
    draws: Array,
    data: ClientData,
) -> dict[str, Array]:
    """The fields `changed` [S, ...] of `data`, corrupted run by run; the others are not even computed.

    `draws` [S, 3] are seeds and the numbers of corrupted and of malicious clients. `named` are the corruption's
    factories: another one is another program.
    """
    corruption = build.corruption(config)
    declared = _fields_of(config)

    def corrupt_run(args: tuple[Array, Array]) -> dict[str, Array]:
        key, (number, num_malicious) = args
        corrupted = number, numbers_of(config.corruption.clients)
        malicious = num_malicious if config.has_malicious_set else None, numbers_of(config.attack.clients)
        result = corrupt(corruption, key, data, spec, *corrupted, *malicious)
        given = {name: getattr(result if name in declared else data, name) for name in changed}
        return given | ({"malicious": malicious_clients(result)} if "malicious" in changed else {})

    keys, _ = run_keys(draws[:, 0])
    return jax.lax.map(corrupt_run, (keys, draws[:, 1:]))


def cut_batches(runs: RunInputs, size: int) -> list[RunInputs]:
    """`runs` [S] in batches of `size`, on the host; the last run fills up the last batch."""
    num_runs = len(runs.key)
    if num_runs == size:
        return [runs]
    on_host = jax.tree.map(np.asarray, runs._replace(key=jax.random.key_data(runs.key)))
    batches = [jax.tree.map(lambda a, rows=rows: a[rows], on_host) for rows in batch_positions(num_runs, size)]
    return [batch._replace(key=jax.random.wrap_key_data(batch.key)) for batch in batches]


def batch_positions(num_runs: int, size: int) -> np.ndarray:
    """The positions [batches, size] of the runs of each batch; the last run fills up the last batch."""
    return np.minimum(np.arange(-(-num_runs // size) * size), num_runs - 1).reshape(-1, size)
