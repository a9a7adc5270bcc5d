"""The round and the loop over rounds: pure functions on device, and the only owner of that loop."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedsim.aggregators.pairwise import squared_norms
from fedsim.attacks import Attack, honest
from fedsim.client import client_loss, local_sgd
from fedsim.cohort import by_size, map_clients, sample_cohort
from fedsim.types import (
    Aggregator,
    Array,
    Client,
    ClientData,
    CohortReport,
    HParams,
    PyTree,
    RoundRecord,
    ServerState,
    Task,
)

PLAIN_AVERAGING = optax.sgd(1.0)
MAX_SQUARED_NORM = 1e34  # of an update: sums over a cohort stay within float32


@dataclass(frozen=True)
class Simulation:
    """A federated training run as functions of arrays; everything in here is static.

    All methods are pure: jit them, and `vmap` them over key, `HParams` or data. `aggregator` is a factory, called
    inside the trace, so that a rule may close over a traced `HParams.lam`.
    """

    task: Task
    aggregator: Callable[[HParams], Aggregator]
    cohort_size: int  # K
    batch_size: int  # B
    max_count: int  # examples of the largest client
    epochs: int = 1  # E
    client_optimizer: Callable[[Array | float], optax.GradientTransformation] = optax.sgd  # from the learning rate
    server_optimizer: optax.GradientTransformation = PLAIN_AVERAGING
    attack: Attack = honest
    dropout_rate: float = 0.0  # probability that a client of the cohort does not answer
    client_width: int = 0  # clients in lockstep; 0: the whole cohort
    micro_batch: int = 0  # examples whose gradient is computed at a time; 0: the whole batch
    client_axis: str | None = None  # of a mesh whose devices share the cohort; inside `shard_map` only
    record_losses: bool = True  # False: losses that the rule does not use either are never computed

    def init(self, key: Array, data: ClientData, hparams: HParams) -> ServerState:
        """The state before the first round. All N clients report their loss at the initial parameters."""
        if (
            not isinstance(data.counts, jax.core.Tracer)
            and (largest := np.max(np.asarray(data.counts))) > self.max_count
        ):
            raise ValueError(f"max_count is {self.max_count}, but a client has {largest} examples")
        data = jax.tree.map(jnp.asarray, data)  # NumPy arrays cannot be indexed by a traced loop
        params_key, rounds_key = jax.random.split(key)
        params = self.task.init(params_key)
        clients = by_size(data, jnp.arange(data.counts.shape[0]))
        report = self._safe(self._report(data, clients, self._losses(params, data, clients)))
        losses = jnp.zeros_like(report.losses).at[clients.client_id].set(report.losses)
        aggregator_state = self.aggregator(hparams).init(params, data.counts, losses)
        return ServerState(params, self.server_optimizer.init(params), aggregator_state, rounds_key, jnp.int32(0))

    def round(self, state: ServerState, data: ClientData, hparams: HParams) -> tuple[ServerState, RoundRecord]:
        """One round: sample a cohort, measure its losses, train locally, aggregate, step (Algorithm 1)."""
        data = jax.tree.map(jnp.asarray, data)
        key = jax.random.fold_in(state.key, state.round)
        cohort_key, clients_key, dropout_key, server_key = jax.random.split(key, 4)
        clients = sample_cohort(cohort_key, data, self.cohort_size)

        losses = self._losses(state.params, data, clients)
        updates = self._updates(state.params, data, clients, clients_key, hparams)
        report = self._report(data, clients, losses, updates)
        if self.dropout_rate > 0:
            keys = jax.vmap(lambda i: jax.random.fold_in(dropout_key, i))(clients.client_id)
            draws = jax.vmap(jax.random.uniform)(keys)
            report = report._replace(valid=report.valid & (draws >= self.dropout_rate))
        report = self._safe(report)

        aggregate, aggregator_state = self.aggregator(hparams).aggregate(state.aggregator, report, server_key)
        descent = jax.tree.map(jnp.negative, aggregate.update)
        steps, optimizer_state = self.server_optimizer.update(descent, state.optimizer, state.params)
        void = jnp.sum(aggregate.weights) == 0
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(void, old, new),
            (optax.apply_updates(state.params, steps), optimizer_state),
            (state.params, state.optimizer),
        )
        recorded = report.losses if self.record_losses else jnp.full_like(report.losses, jnp.nan)
        record = RoundRecord(report.client_ids, recorded, aggregate.weights, report.valid)
        return ServerState(params, optimizer_state, aggregator_state, state.key, state.round + 1), record

    def run(
        self, state: ServerState, data: ClientData, hparams: HParams, max_rounds: int, num_rounds: Array | None = None
    ) -> tuple[ServerState, RoundRecord]:
        """`num_rounds` rounds (default: `max_rounds`) as one call, and their records [max_rounds, K].

        `max_rounds` is static, `num_rounds` may be traced: a last, shorter chunk runs the same program. Records of
        rounds that were not run are zeros.
        """

        def step(i: Array, carry: tuple[ServerState, RoundRecord]) -> tuple[ServerState, RoundRecord]:
            state, records = carry
            state, record = self.round(state, data, hparams)
            return state, jax.tree.map(lambda all_, one: all_.at[i].set(one), records, record)

        empty = lambda dtype: jnp.zeros((max_rounds, self.cohort_size), dtype)
        records = RoundRecord(empty(jnp.int32), empty(jnp.float32), empty(jnp.float32), empty(jnp.bool_))
        return jax.lax.fori_loop(0, max_rounds if num_rounds is None else num_rounds, step, (state, records))

    def client_weights(self, state: ServerState, hparams: HParams) -> Array | None:
        """The weights alpha [N] of all clients, or None where the rule keeps none."""
        return self.aggregator(hparams).client_weights(state.aggregator)

    def _losses(self, params: PyTree, data: ClientData, clients: Client) -> Array:
        loss_batch = min(self.max_count, self.micro_batch or max(32, self.batch_size))
        loss = lambda client: client_loss(self.task, params, data, client, loss_batch)
        return map_clients(loss, clients, self.client_width or self.cohort_size, self.client_axis)

    def _updates(self, params: PyTree, data: ClientData, clients: Client, key: Array, hparams: HParams) -> PyTree:
        def update(client: Client) -> PyTree:
            return local_sgd(
                self.task,
                self.client_optimizer(hparams.learning_rate),
                params,
                data,
                client,
                jax.random.fold_in(key, client.client_id),
                epochs=self.epochs,
                batch_size=min(self.batch_size, self.max_count),
                max_count=self.max_count,
                micro_batch=self.micro_batch,
            )

        return map_clients(update, clients, self.client_width or self.cohort_size, self.client_axis)

    def _report(self, data: ClientData, clients: Client, losses: Array, updates: PyTree = ()) -> CohortReport:
        """What the clients send, lies included."""
        report = CohortReport(clients.client_id, clients.num_examples, losses, updates, clients.num_examples > 0)
        return self.attack(report, data.corrupted[clients.client_id])

    def _safe(self, report: CohortReport) -> CohortReport:
        """Marks what is not finite as invalid, and zeroes invalid updates: 0 x NaN is NaN, a zero weight is not enough.

        An update so large that its inner products would overflow counts as not finite. A server that does not record
        losses does not judge clients by them either; rules that use them see inf.
        """
        finite = report.valid
        if jax.tree.leaves(report.updates):
            finite &= squared_norms(report.updates) < MAX_SQUARED_NORM
        if self.record_losses:
            finite &= jnp.isfinite(report.losses)
        losses = jnp.where(jnp.isfinite(report.losses), report.losses, jnp.inf)
        losses = jnp.where(report.valid, losses, jnp.nan)
        zero = lambda u: jnp.where(finite.reshape(-1, *[1] * (u.ndim - 1)), u, 0)
        return report._replace(losses=losses, updates=jax.tree.map(zero, report.updates), valid=finite)
