"""The round and the loop over rounds: pure functions on device, and the only owner of that loop."""

import inspect
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp

from fedsim.core import reports, require, server
from fedsim.core.branches import Branch, MethodFamily
from fedsim.core.chain import ChainKeys, observe_losses, run_rule
from fedsim.core.client import client_loss, take_batch
from fedsim.core.contracts import ALGORITHM_STATES, LocalResult, LocalTraining, RootEvaluator, Task
from fedsim.core.delay import DelayedCorruption, current_data, next_attack_state
from fedsim.core.evaluate import PERSONAL_BATCH_SIZE, evaluate_client
from fedsim.core.keys import InitialKeys, RoundKeys
from fedsim.core.local import LocalSGD
from fedsim.core.method import Method, MethodFunction, check_method
from fedsim.core.options import CohortOptions, LossOptions, TrainingOptions, check_data
from fedsim.core.rule_trace import RuleTrace, trace_rule
from fedsim.core.trees import mask_invalid, select_clients
from fedsim.core.types import (
    Array,
    ClientData,
    ClientSlice,
    Examples,
    HParams,
    Metrics,
    PyTree,
    RoundRecord,
    SimulationState,
    Variables,
)
from fedsim.core.waves import by_size, drop_out, map_clients, sample_cohort

MIN_LOSS_BATCH = 32  # examples of a forward pass


@dataclass(frozen=True)
class Simulation:
    """A federated training run as pure functions of arrays: jit them, `vmap` them over key, `HParams` or data; static.

    Raises `ValueError` if `method` does not take `(hparams, round)`, `AssertionError` if `task` is no `Task`.

    >>> import flax.linen as nn, jax, numpy as np, fedsim
    >>> data = fedsim.from_arrays(np.eye(3, dtype=np.float32), np.arange(3), np.arange(3), np.eye(3), np.arange(3))
    >>> simulation = fedsim.Simulation(
    ...     task=fedsim.classification(nn.Dense(3), data.train.x[0]),
    ...     method=lambda hparams, round: fedsim.Method(fedsim.aggregators.fedavg(), fedsim.client_sgd(hparams)),
    ...     cohort=fedsim.CohortOptions(size=2),
    ...     training=fedsim.TrainingOptions(batch_size=1, max_num_examples=1),
    ... )
    >>> state = simulation.init(jax.random.key(0), data.train, fedsim.HParams(learning_rate=0.1))
    >>> state, record = simulation.round(state, data.train, fedsim.HParams(learning_rate=0.1))
    >>> int(state.round), record.weights.tolist()
    (1, [0.5, 0.5])
    """

    task: Task
    """The model with its loss."""
    method: MethodFunction
    """Builds training, attack and aggregation of a round, inside the trace."""
    cohort: CohortOptions
    """The clients of a round."""
    training: TrainingOptions
    """Their local training."""
    losses: LossOptions = field(default_factory=LossOptions)
    """The losses that they report."""
    root: Examples | None = None
    """The server's own clean examples, for rules that need them."""
    state_rows: Array | None = None
    """[N] int32, the row of each client in `SimulationState.client_states` [U, ...]; None: client i has row i of N."""

    def __post_init__(self) -> None:
        require.instance(self.task, Task, "task", "; use fedsim.classification(module, example)")
        for name, expected in (("cohort", CohortOptions), ("training", TrainingOptions), ("losses", LossOptions)):
            require.instance(getattr(self, name), expected, name)
        try:
            inspect.signature(self.method).bind(HParams(), 0)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "method: must be a function of (hparams, round) that returns a fedsim.Method, such as `lambda hparams, "
                f"round: Method(arfl(lam=1.0), client_sgd(hparams))`, got {self.method!r} ({error})"
            ) from None

    def bind(
        self,
        frozen: PyTree,
        root: Examples | None = None,
        branch: Branch | None = None,
        state_rows: Array | None = None,
    ) -> "Simulation":
        """The simulation with these arrays instead of its own, and of the task's frozen ones: for use inside a trace.

        A `branch` chooses one of the methods of a `MethodFamily`.
        """
        bound = self if self.task.bind is None else replace(self, task=self.task.bind(frozen))
        bound = bound if root is None else replace(bound, root=root)
        bound = bound if state_rows is None else replace(bound, state_rows=state_rows)
        if branch is not None and isinstance(self.method, MethodFamily):
            bound = replace(bound, method=replace(self.method, branch=branch))
        return bound

    def init(
        self, key: Array, data: ClientData | DelayedCorruption, hparams: HParams, losses: Array | None = None
    ) -> SimulationState:
        """The state before the first round, after all N clients have reported their loss at the initial model.

        `losses` [N] are given where `data` does not hold the examples of all clients (`initial_losses`).
        """
        clean = data.clean if isinstance(data, DelayedCorruption) else data
        require.instance(clean, ClientData, "data", "; use dataset.train")
        check_data(clean, self.task, self.cohort, self.training)
        data = current_data(jax.tree.map(jnp.asarray, data), 0)  # NumPy arrays cannot be indexed by a traced loop
        keys, method = InitialKeys.of(key), self._method(hparams, jnp.int32(0))
        variables = self.task.init(keys.params)
        clients = by_size(data, jnp.arange(data.num_examples.shape[0]))
        attack_state = method.attack.init(variables, data.num_examples)
        measured = self._losses(data, clients, variables) if losses is None else losses[clients.client_id]
        make_report = partial(reports.make_report, data, clients, method.attack, attack_state, keys.report_attack)
        report = make_report(self.losses.recorded, clients.num_examples > 0, (), measured)
        in_order = lambda values: jnp.zeros_like(values).at[clients.client_id].set(values)
        num_examples, losses = in_order(report.num_examples), in_order(report.losses)
        aggregator_state = method.server.init(variables, num_examples, losses)
        alphas = method.server.client_weights(aggregator_state)  # of a family one for each server
        for alpha in alphas if isinstance(alphas, tuple) else (alphas,):
            if alpha is not None:
                require.shape(alpha, num_examples.shape, "a rule's client_weights")
        client_state, server_state = require.pair(method.algorithm.init(variables.params), ALGORITHM_STATES)
        require.no_keys(client_state, "client_state")
        num_states = self.cohort.num_states or num_examples.size
        return SimulationState(
            variables=variables,
            optimizer=method.server_optimizer.init(variables.params),
            aggregator=aggregator_state,
            attack=attack_state,
            client_states=jax.tree.map(lambda a: jnp.broadcast_to(a, (num_states, *jnp.shape(a))), client_state),
            server_state=server_state,
            key=keys.rounds,
            round=jnp.int32(0),
        )

    def initial_losses(
        self, key: Array, data: ClientData | DelayedCorruption, client_ids: Array
    ) -> tuple[Array, Array]:
        """The clients `client_ids` [P], largest first, and their losses [P] at the initial model, for `init`."""
        data = current_data(jax.tree.map(jnp.asarray, data), 0)
        clients = by_size(data, client_ids)
        return clients.client_id, self._losses(data, clients, self.task.init(InitialKeys.of(key).params))

    def cohorts(self, key: Array, data: ClientData | DelayedCorruption, rounds: Array) -> Array:
        """The client ids [T, K] of the cohorts after `rounds` [T] rounds of the run with `key`.

        They depend on the clients' numbers of examples only, so they are known before anything is trained.
        """
        key = InitialKeys.of(key).rounds
        num_examples = lambda round: current_data(data, round + 1).num_examples
        sample = lambda round: sample_cohort(RoundKeys.of(key, round).cohort, num_examples(round), self.cohort.size)
        return jax.lax.map(sample, rounds)

    def round(
        self, state: SimulationState, data: ClientData | DelayedCorruption, hparams: HParams
    ) -> tuple[SimulationState, RoundRecord]:
        """One round: sample a cohort, train, drop out, attack, aggregate, step, observe losses (Algorithm 1).

        With `losses.model = "aggregated"` the weights of this round come from the losses of earlier rounds.
        """
        given, data = data, current_data(jax.tree.map(jnp.asarray, data), state.round + 1)
        method = self._method(hparams, state.round)
        keys = RoundKeys.of(state.key, state.round)
        report_now = self.losses.model == "broadcast"

        clients = by_size(data, sample_cohort(keys.cohort, data.num_examples, self.cohort.size))
        rows = clients.client_id if self.state_rows is None else self.state_rows[clients.client_id]
        old_states = jax.tree.map(lambda states: states[rows], state.client_states)
        updates, client_states, messages = self._train(method, state, data, (clients, old_states), keys.training)
        answered = drop_out(clients, self.cohort.dropout_rate, keys.dropout)
        make_report = partial(
            reports.make_report, data, clients, method.attack, state.attack, keys.report_attack, self.losses.recorded
        )
        losses = self._losses(data, clients, state.variables) if report_now else None
        report = make_report(answered, updates, losses)
        server_keys = ChainKeys(keys.pre_aggregators, keys.aggregator)
        root = self._evaluate_root(method, state.variables, data, keys.root)
        aggregate_report = lambda report: run_rule(method.server, state.aggregator, report, server_keys, root)
        step = lambda aggregate, valid: server.server_step(
            method.server_optimizer,
            server.rescale(method.algorithm, aggregate, messages, valid),
            state.variables,
            state.optimizer,
        )
        valid = report.valid  # before the attack
        next_loss = lambda aggregate, mask, key: self._batch_loss(data, clients, step(aggregate, valid)[0], mask, key)
        report, attack_state = reports.apply_update_attack(
            method.attack, state.attack, report, data, state.variables, aggregate_report, next_loss, keys.update_attack
        )
        aggregate, aggregator_state = aggregate_report(report)
        variables, optimizer = step(aggregate, report.valid)
        if not report_now:
            observed = make_report(answered, (), self._losses(data, clients, variables))
            report = report._replace(losses=observed.losses)
            observed = observed._replace(valid=observed.valid & report.valid)
            aggregator_state = observe_losses(method.server, aggregator_state, observed)

        client_states = select_clients(report.valid, client_states, old_states)
        messages = mask_invalid(messages, report.valid)
        num_clients = jnp.maximum(jnp.sum(data.num_examples > 0), 1)  # without excluded ones
        server_state = method.algorithm.update_server_state(state.server_state, messages, report.valid, num_clients)
        require.like(server_state, state.server_state, "an algorithm's server state")
        next_state = SimulationState(
            variables=variables,
            optimizer=optimizer,
            aggregator=aggregator_state,
            attack=next_attack_state(given, state.round + 1, attack_state, state.attack),
            client_states=jax.tree.map(
                lambda states, cohort: states.at[rows].set(cohort), state.client_states, client_states
            ),
            server_state=server_state,
            key=state.key,
            round=state.round + 1,
        )
        losses = report.losses if self.losses.recorded else jnp.full_like(report.losses, jnp.nan)
        record = RoundRecord(report.client_ids, losses, aggregate.weights, report.valid, dict(aggregate.info))
        return next_state, record

    def run_rounds(
        self,
        state: SimulationState,
        data: ClientData | DelayedCorruption,
        hparams: HParams,
        max_rounds: int,
        num_rounds: Array | None = None,
    ) -> tuple[SimulationState, RoundRecord]:
        """Runs `num_rounds` rounds (default: `max_rounds`) in one loop; returns their records [max_rounds, ...], too.

        `max_rounds` is static, `num_rounds` may be traced, so that a last, shorter chunk runs the same program. Records
        of rounds that were not run are zeros.
        """

        def step(i: Array, carry: tuple[SimulationState, RoundRecord]) -> tuple[SimulationState, RoundRecord]:
            state, records = carry
            state, record = self.round(state, data, hparams)
            return state, jax.tree.map(lambda rounds, new: rounds.at[i].set(new), records, record)

        zeros = lambda dtype: jnp.zeros((max_rounds, self.cohort.size), dtype)
        method = self._method(hparams, state.round)
        scalars = self._trace_server(method, state.variables, current_data(data, 0)).info
        info = {name: jnp.zeros((max_rounds, *a.shape), a.dtype) for name, a in scalars.items()}
        records = RoundRecord(zeros(jnp.int32), zeros(jnp.float32), zeros(jnp.float32), zeros(jnp.bool_), info)
        return jax.lax.fori_loop(0, max_rounds if num_rounds is None else num_rounds, step, (state, records))

    def client_weights(self, state: SimulationState, hparams: HParams) -> Array | None:
        """The weights alpha [N] of all clients, or None if the rule keeps none; of a family, one for each server."""
        return self._method(hparams, state.round).server.client_weights(state.aggregator)

    def personal_metrics(
        self,
        state: SimulationState,
        data: ClientData | DelayedCorruption,
        hparams: HParams,
        test: ClientData,
        num_steps: int = 0,
    ) -> Metrics:
        """Metrics [N] of each client's own model on its examples in `test`.

        It is that of the algorithm, or the broadcast model if it trains none, after `num_steps` more local steps, with
        the batches of the next round and the learning rate of the last one.
        """
        data, key = current_data(data, state.round + 1), RoundKeys.of(state.key, state.round).training
        method = self._method(hparams, jnp.maximum(state.round - 1, 0))
        sgd = self._local_sgd(method, replace(self.training, steps=max(num_steps, 1)))
        personal = method.algorithm.personal or (lambda client_state, broadcast: broadcast)

        def measure(client: ClientSlice) -> Metrics:
            client_state = jax.tree.map(lambda states: states[client.client_id], state.client_states)
            model = personal(client_state, state.variables)
            if num_steps:
                model = sgd.train(model, data, client, jax.random.fold_in(key, client.client_id))
            return evaluate_client(self.task, model, test, client.client_id, PERSONAL_BATCH_SIZE)

        clients = ClientSlice(jnp.arange(data.num_examples.size), data.offsets, data.num_examples)
        return map_clients(measure, (clients,), self._width, self.cohort.axis)

    def _method(self, hparams: HParams, round: Array) -> Method:
        require.instance(hparams, HParams, "hparams")
        method = self.method(hparams, round)
        check_method(method)
        return method

    # Clients

    def _train(
        self, method: Method, state: SimulationState, data: ClientData, cohort: tuple[PyTree, ...], key: Array
    ) -> tuple[PyTree, PyTree, PyTree]:
        """The updates, next states and messages, each [K, ...], of a cohort: clients with their states."""
        sgd = self._local_sgd(method, self.training)

        def train(client: ClientSlice, client_state: PyTree) -> tuple[PyTree, PyTree, PyTree]:
            client_key = jax.random.fold_in(key, client.client_id)
            local = LocalTraining(
                state.variables,
                sgd.num_steps(client),
                method.client_optimizer.learning_rate,
                lambda start, *corrections: sgd.train(start, data, client, client_key, *corrections),
                method.client_optimizer.momentum,
                client.num_examples,
            )
            result = method.algorithm.train(local, client_state, state.server_state)
            require.instance(result, LocalResult, "the result of train")
            require.like(result.variables, state.variables, "the trained model")
            require.like(result.client_state, client_state, "client_state")
            update = jax.tree.map(jnp.subtract, result.variables, state.variables)
            return update, result.client_state, result.message

        return map_clients(train, cohort, self._width, self.cohort.axis)

    def _losses(self, data: ClientData, clients: ClientSlice, variables: Variables) -> Array:
        """The clients' mean training losses [K] at `variables`."""
        batch_size = self._loss_batch(self.training.max_num_examples)
        loss = lambda client: client_loss(self.task, variables, data, client, batch_size)
        return map_clients(loss, (clients,), self._width, self.cohort.axis)

    def _batch_loss(
        self, data: ClientData, clients: ClientSlice, variables: Variables, mask: Array, key: Array
    ) -> Array:
        """The mean loss of the clients in `mask` [K] on a batch of each, drawn with replacement; differentiable."""

        def metrics(client: ClientSlice) -> Metrics:
            client_key, last = jax.random.fold_in(key, client.client_id), jnp.maximum(client.num_examples, 1)
            positions = jax.random.randint(client_key, (self.training.batch_size,), 0, last)
            return self.task.metrics(variables, *take_batch(data, client, positions))

        of_clients = jax.vmap(metrics)(clients)
        total = lambda values: jnp.sum(jnp.where(mask, values, 0).astype(jnp.float32))
        return total(of_clients.loss_sum) / jnp.maximum(total(of_clients.num_examples), 1)

    @property
    def _width(self) -> int:
        return self.cohort.width or self.cohort.size

    def _local_sgd(self, method: Method, options: TrainingOptions) -> LocalSGD:
        return LocalSGD(self.task, method.client_optimizer.transformation, options)

    def _loss_batch(self, max_num_examples: int) -> int:
        return min(max_num_examples, self.training.micro_batch or max(MIN_LOSS_BATCH, self.training.batch_size))

    # The server

    def _evaluate_root(
        self, method: Method, variables: Variables, data: ClientData, key: Array
    ) -> RootEvaluator | None:
        """What the server can compute from its root data, on which it trains here; None if the rule uses none."""
        if method.server.measure is None:
            return None
        if self.root is None:
            raise ValueError("root: must be clean examples of the server, which this rule needs, got None")
        root = jax.tree.map(jnp.asarray, self.root)
        num_examples = root.y.shape[0]
        sgd = self._local_sgd(method, replace(self.training, max_num_examples=num_examples))
        evaluator = server.root_evaluator(root, sgd, variables, key, self._loss_batch(num_examples), self._width)
        return server.train_once(evaluator, self._trace_server(method, variables, data).trains_on_root)

    def _trace_server(self, method: Method, variables: Variables, data: ClientData) -> RuleTrace:
        if isinstance(self.method, MethodFamily):
            return self.method.trace
        return trace_rule(method.server, variables, data.num_examples.size, self.cohort.size)
