"""The contract of a local training algorithm, as `fedsim.algorithms` states it."""

from collections.abc import Callable, Collection
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedsim.core.contracts import ALGORITHM_STATES, Algorithm, LocalResult, LocalTraining
from fedsim.core.local import LocalSGD
from fedsim.core.types import Array, ClientData, ClientSlice, HParams, PyTree, Scalar, SimulationState, Variables
from fedsim.testing import require, tiny
from fedsim.testing.clauses import StatefulFunctionCase, by_name, check, jit, stack_trees, take_rows, vmap

KEY = jax.random.key(0)
LEARNING_RATE, NUM_ROUNDS = 0.1, 3
NUM_CLIENTS = len(tiny.NUM_EXAMPLES)


class _Case(StatefulFunctionCase):
    """Its rounds are those of each client alone, from the initial model."""

    def __init__(self, algorithm: Algorithm, seed: int) -> None:
        self.algorithm = algorithm
        self.data = tiny.draw_data(np.random.default_rng(seed))
        self.start: Variables = tiny.make_task().init(jax.random.key(seed))
        self.client_state, self.server_state = require.pair(algorithm.init(self.start.params), ALGORITHM_STATES)
        clients = ClientSlice(jnp.arange(NUM_CLIENTS), self.data.offsets, self.data.num_examples)
        self.clients = [jax.tree.map(jnp.asarray, take_rows(clients, i)) for i in range(NUM_CLIENTS)]
        states = self.client_state, self.server_state
        inputs = {f"client {i}": (client, *states, LEARNING_RATE) for i, client in enumerate(self.clients)}
        super().__init__(self.train, (), inputs)

    def train(
        self, state: tuple[()], client: ClientSlice, client_state: PyTree, server_state: PyTree, learning_rate: Scalar
    ) -> tuple[LocalResult, tuple[()]]:
        """One client's training from the initial model."""
        sgd = LocalSGD(tiny.make_task(), optax.sgd(learning_rate), tiny.TRAINING)
        key = jax.random.fold_in(KEY, client.client_id)
        run = lambda start, *corrections: sgd.train(start, self.data, client, key, *corrections)
        local = LocalTraining(self.start, sgd.num_steps(client), learning_rate, run, None, client.num_examples)
        return self.algorithm.train(local, client_state, server_state), state

    @property
    def results(self) -> list[LocalResult]:
        """Each client's result in its first round."""
        return [round.result for round in self.rounds]

    @cached_property
    def simulate(self) -> Callable[[ClientData, int], tuple[SimulationState, SimulationState, Array]]:
        """`(data, num_rounds) -> (state before, state after, client ids [K] of the first round)`."""
        simulation = tiny.make_simulation(algorithm=self.algorithm)
        hparams = HParams(LEARNING_RATE)

        def run(data: ClientData, num_rounds: Array) -> tuple[SimulationState, SimulationState, Array]:
            before = simulation.init(KEY, data, hparams)
            after, records = simulation.run_rounds(before, data, hparams, NUM_ROUNDS, num_rounds)
            return before, after, records.client_ids[0]

        return jax.jit(run)


def _train(case: _Case) -> None:
    for result in case.results:
        require.true(isinstance(result, LocalResult), f"the result must be a LocalResult, got {type(result).__name__}")
        require.like(result.variables, case.start, "the trained model")
        require.like(result.client_state, case.client_state, "client_state")
        require.like(result.message, case.results[0].message, "the message")
        if case.algorithm.personal is not None:
            personal = jax.eval_shape(case.algorithm.personal, result.client_state, case.start)
            require.like(personal, case.start, "the personal model")


def _finite(case: _Case) -> None:
    for result in case.results:
        require.finite(result.variables, "the trained model")
        require.finite(result.client_state, "client_state")
        require.finite(result.message, "the message")


def _update_server_state(case: _Case) -> None:
    messages = stack_trees([result.message for result in case.results])
    for name, factor in (("all", 1), ("no", 0)):
        masked = jax.tree.map(lambda a, factor=factor: jnp.asarray(factor * a), messages)
        valid = jnp.full(NUM_CLIENTS, bool(factor))
        server_state = case.algorithm.update_server_state(case.server_state, masked, valid, 2 * NUM_CLIENTS)
        require.like(server_state, case.server_state, f"with {name} clients valid server_state")
        require.finite(server_state, f"with {name} clients valid server_state")


def _scale(case: _Case) -> None:
    if case.algorithm.scale is None:
        return
    messages = stack_trees([result.message for result in case.results])
    for name, weight in (("all", 1 / NUM_CLIENTS), ("no", 0.0)):
        masked = jax.tree.map(lambda a, weight=weight: jnp.asarray(a if weight else np.zeros_like(a)), messages)
        factor = case.algorithm.scale(masked, jnp.full(NUM_CLIENTS, weight))
        require.like(factor, jnp.float32(0), f"with {name} clients valid the factor")
        require.finite(factor, f"with {name} clients valid the factor")


def _zero_learning_rate(case: _Case) -> None:
    result, _ = case.jitted((), case.clients[1], case.client_state, case.server_state, 0.0)
    require.close(result.variables, case.start, "with learning rate 0 the model must not change, but differs")
    messages = jax.tree.map(jnp.asarray, stack_trees([result.message] * NUM_CLIENTS))
    valid = jnp.ones(NUM_CLIENTS, bool)
    server_state = case.algorithm.update_server_state(case.server_state, messages, valid, NUM_CLIENTS)
    for name, value in (("client_state", result.client_state), ("server_state", server_state)):
        require.finite(value, f"with learning rate 0 {name}")


def _not_sampled(case: _Case) -> None:
    before, after, ids = case.simulate(case.data, 1)
    rest = np.setdiff1d(np.arange(NUM_CLIENTS), np.asarray(ids))
    states = zip(require.to_float64(before.client_states), require.to_float64(after.client_states), strict=True)
    is_same = all((a[rest] == b[rest]).all() for a, b in states)
    require.true(is_same, "client_state must not change in a round in which the client is not sampled")


def _independent(case: _Case) -> None:
    """All other clients keep a single, different example."""
    _, after, ids = case.simulate(case.data, 1)
    client = ids[-1]  # the smallest of them
    others = jnp.arange(NUM_CLIENTS) != client
    owner = np.repeat(np.arange(NUM_CLIENTS), tiny.NUM_EXAMPLES)
    changed = case.data._replace(
        x=jnp.where(others[owner][:, None], -case.data.x, case.data.x),
        num_examples=jnp.where(others, 1, case.data.num_examples),
    )
    _, after_change, ids_after = case.simulate(changed, 1)
    require.true(client in ids_after, "the cohort must not depend on the data")
    actual, expected = take_rows(after_change.client_states, client), take_rows(after.client_states, client)
    message = "client_state must not depend on other clients' data, but differs"
    require.close(actual, expected, message, require.max_abs(expected))


def _simulation(case: _Case) -> None:
    _, state, _ = case.simulate(case.data, NUM_ROUNDS)
    for name in ("variables", "client_states", "server_state"):
        require.finite(getattr(state, name), f"after {NUM_ROUNDS} rounds {name}")


CLAUSES = by_name(
    _train,
    _finite,
    _update_server_state,
    _scale,
    jit,
    vmap,
    _zero_learning_rate,
    _not_sampled,
    _independent,
    _simulation,
)


def check_algorithm(algorithm: Algorithm, *, seed: int = 0, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence if `algorithm` violates the contract; `skip` names clauses to leave out.

    Softmax regression on four clients with 2 to 9 examples. The clauses:

    - train: the model is like the broadcast one, `client_state` like that of `init`, all messages have one structure;
    - finite: model, `client_state` and message;
    - update_server_state: keeps structure, shapes and dtypes and is finite, also without valid clients;
    - scale: if the algorithm has it, a finite number, also without valid clients;
    - jit: the result is the same inside;
    - vmap: the results are the same inside, in lockstep with clients of other sizes;
    - zero_learning_rate: the model does not change, and the states stay finite;
    - not_sampled: a client that is not in the cohort keeps its state;
    - independent: a client's state after its first round does not depend on the others' data;
    - simulation: three rounds run in a loop, and everything stays finite.

    >>> import fedsim
    >>> from fedsim.testing import check_algorithm
    >>> check_algorithm(fedsim.algorithms.fedprox(mu=0.1))
    """
    check(algorithm, Algorithm, CLAUSES, lambda: _Case(algorithm, seed), skip)
