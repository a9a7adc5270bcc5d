"""Which runs share a compiled program, and that program mapped over them.

Seeds, fractions of corrupted clients, lambdas and learning rates are data: runs that differ in nothing else are a group
and compile once. A group's runs go through `lax.map` in batches of `run_width`, `vmap` inside a batch. Several devices
are a mesh with the axes "runs" and "clients": each row of it takes an equal part of the runs, and its devices share
their cohorts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedsim.config import Config, CorruptionConfig, num_corrupted
from fedsim.corruption import CHANGES, CORRUPTIONS, corrupt
from fedsim.evaluate import evaluate, evaluate_clients
from fedsim.layout import CLIENTS, RUNS, Layout
from fedsim.simulate import Simulation
from fedsim.types import Array, ClientData, HParams, Metrics, PyTree, RoundRecord, ServerState


@dataclass(frozen=True)
class Group:
    """Runs that share a program, and how they are laid out."""

    runs: tuple[int, ...]  # positions in the experiment's list of runs
    layout: Layout


class RunInputs(NamedTuple):
    """What differs between the runs of a group."""

    key: Array  # [S]
    hparams: HParams  # [S]
    changes: ClientData  # [S, ...] the fields of the clients' data that corruption changed; None: shared by all runs


def shape_of(config: Config) -> Config:
    """`config` without what is data: two runs share a program if this is equal."""
    changes_x = "x" in CHANGES[config.corruption.kind]
    return replace(
        config,
        name="fedsim",
        seed=0,
        corruption=CorruptionConfig(kind="noisy" if changes_x else "none"),
        client=replace(config.client, learning_rate=0.1),
        arfl=Config().arfl,
    )


def group_runs(configs: Sequence[Config]) -> list[tuple[int, ...]]:
    """The positions of the runs that share a program, in order of their first."""
    groups: dict[Config, list[int]] = {}
    for position, config in enumerate(configs):
        groups.setdefault(shape_of(config), []).append(position)
    return [tuple(runs) for runs in groups.values()]


def prepare(configs: Sequence[Config], data: ClientData) -> RunInputs:
    """The inputs of a group's runs: keys, what is swept, and the clients' data corrupted run by run."""
    changed = frozenset({"corrupted"}).union(*(CHANGES[config.corruption.kind] for config in configs))
    parts: list[Any] = [None] * len(configs)
    keys = [jax.random.split(jax.random.key(config.seed)) for config in configs]  # [corruption, simulation]
    by_kind: dict[CorruptionConfig, list[int]] = {}
    for i, config in enumerate(configs):
        by_kind.setdefault(replace(config.corruption, fraction=0.0), []).append(i)
    for settings, members in by_kind.items():
        numbers = jnp.asarray([num_corrupted(configs[i], data.counts.shape[0]) for i in members])
        corruption_keys = jnp.stack([keys[i][0] for i in members])
        results = _corrupt_runs(settings.kind, settings.clients, changed, corruption_keys, numbers, data)
        for slot, i in enumerate(members):
            parts[i] = jax.tree.map(lambda a, slot=slot: a[slot], results)
    stack = partial(jax.tree.map, lambda *runs: jnp.stack(runs))
    hparams = HParams(
        learning_rate=jnp.asarray([config.client.learning_rate for config in configs], jnp.float32),
        lam=jnp.asarray([config.arfl.lam for config in configs], jnp.float32),
    )
    return RunInputs(jnp.stack([key[1] for key in keys]), hparams, stack(*parts))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _corrupt_runs(
    kind: str, client_ids: tuple[int, ...], changed: frozenset[str], keys: Array, numbers: Array, data: ClientData
) -> ClientData:
    """The fields `changed` of `data`, corrupted run by run; the others are None, so that they are not even computed."""

    def one(args: tuple[Array, Array]) -> ClientData:
        key, number = args
        result = corrupt(CORRUPTIONS[kind], key, data, number, client_ids)
        unchanged: dict[str, Any] = {name: None for name in ClientData._fields if name not in changed}
        return result._replace(**unchanged)

    return jax.lax.map(one, (keys, numbers))


def merged(shared: ClientData, changes: ClientData) -> ClientData:
    """`shared` with the fields that `changes` has."""
    return shared._replace(**{name: value for name, value in changes._asdict().items() if value is not None})


@dataclass(frozen=True)
class Programs:
    """A group's three programs, to be jitted by the caller: pure functions of arrays with a leading run axis [S].

    With a `mesh`, S is a multiple of its "runs" axis, and the simulation's `client_axis` names its "clients" axis.
    """

    simulation: Simulation
    run_width: int
    max_rounds: int
    num_test_clients: int = 0  # C
    mesh: Mesh | None = None

    def init(self, shared: ClientData, inputs: RunInputs) -> ServerState:
        """The states [S] before the first round."""

        def one(run: RunInputs, shared: ClientData) -> ServerState:
            return self.simulation.init(run.key, merged(shared, run.changes), run.hparams)

        return self._map(one, inputs, shared)

    def chunk(
        self, states: ServerState, shared: ClientData, inputs: RunInputs, num_rounds: Array
    ) -> tuple[ServerState, RoundRecord]:
        """`num_rounds` <= `max_rounds` rounds of every run; records [S, max_rounds, K]."""

        def one(
            args: tuple[ServerState, RunInputs], shared: ClientData, num_rounds: Array
        ) -> tuple[ServerState, RoundRecord]:
            state, run = args
            data = merged(shared, run.changes)
            return self.simulation.run(state, data, run.hparams, self.max_rounds, num_rounds)

        return self._map(one, (states, inputs), shared, num_rounds)

    def measure(
        self, states: ServerState, inputs: RunInputs, x_test: Array, y_test: Array, test_clients: Array | None = None
    ) -> tuple[Metrics, Array | None]:
        """Test metrics, and the weights alpha [S, N] of all clients where the rule keeps them.

        Metrics are sums over all examples [S] or, where they belong to clients, over those of each client [S, C].
        """

        def one(
            args: tuple[ServerState, HParams], x_test: Array, y_test: Array, test_clients: Array | None
        ) -> tuple[Metrics, Array | None]:
            state, hparams = args
            task, params = self.simulation.task, state.params
            if test_clients is None:
                metrics = evaluate(task, params, x_test, y_test)
            else:
                metrics = evaluate_clients(task, params, x_test, y_test, test_clients, self.num_test_clients)
            return metrics, self.simulation.client_weights(state, hparams)

        return self._map(one, (states, inputs.hparams), x_test, y_test, test_clients)

    def _map(self, fn: Callable[..., PyTree], runs: PyTree, *shared: PyTree) -> PyTree:
        """`fn(run, *shared)` over the leading axis [S] of `runs`, on all devices."""

        def local(runs: PyTree, *shared: PyTree) -> PyTree:
            return map_runs(lambda run: fn(run, *shared), runs, self.run_width)

        if self.mesh is None:
            return local(runs, *shared)
        specs = (P(RUNS), *(P() for _ in shared))
        return jax.shard_map(local, mesh=self.mesh, in_specs=specs, out_specs=P(RUNS), check_vma=False)(runs, *shared)


def make_mesh(layout: Layout) -> Mesh | None:
    """The devices of a layout as a mesh with the axes "runs" and "clients"; None: it needs a single one."""
    shape = (layout.run_devices, layout.client_devices)
    if shape == (1, 1):
        return None
    types = (jax.sharding.AxisType.Auto,) * 2
    return jax.make_mesh(shape, (RUNS, CLIENTS), axis_types=types, devices=jax.devices()[: math.prod(shape)])


def map_runs(fn: Callable[[Any], PyTree], runs: PyTree, width: int) -> PyTree:
    """`fn` over the leading axis [S] of `runs`, `width` at a time; a last batch is filled up with the last run."""
    num_runs = jax.tree.leaves(runs)[0].shape[0]
    if width >= num_runs:
        return jax.vmap(fn)(runs)
    num_batches = -(-num_runs // width)
    slots = jnp.minimum(jnp.arange(num_batches * width), num_runs - 1).reshape(num_batches, width)
    batched = lambda slot: jax.vmap(fn)(jax.tree.map(lambda a: a[slot], runs))
    results = jax.lax.map(batched, slots)
    return jax.tree.map(lambda a: a.reshape(num_batches * width, *a.shape[2:])[:num_runs], results)
