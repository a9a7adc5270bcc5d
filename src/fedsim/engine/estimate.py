"""Estimates of a group's memory, from shapes, and of its time, from a few steps that are timed on the device."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import attack_component
from fedsim.config.schema import Config
from fedsim.core.client import loss_gradient
from fedsim.core.contracts import Task
from fedsim.core.method import client_sgd
from fedsim.core.types import Array, FederatedDataset, PyTree, Variables
from fedsim.engine import build, factories, memory
from fedsim.engine.backdoors import find_trigger
from fedsim.engine.inputs import buffer_shapes
from fedsim.engine.layout import Layout
from fedsim.engine.model import cached_by_program, make_task, model_shapes
from fedsim.engine.slots import num_slots, sample_cohort_sizes
from fedsim.errors import ConfigError

NUM_COPIES = 3  # of a run's data and state, while they are stacked or replaced
NUM_STEPS = 5  # that are timed at once
FORWARD_SHARE = 1 / 3  # of a gradient step's time
RECORD_BYTES = 13  # of a client in a round


def run_bytes(configs: Sequence[Config], dataset: FederatedDataset, is_on_host: bool = False) -> list[int]:
    """Bytes of each run of a group: the data that its corruption changes, its state, a chunk's records.

    Without changed examples and states of clients, if these stay on the host.
    """
    config = configs[0]
    max_rounds = min(config.server.eval_every, config.server.num_rounds)
    record_bytes = RECORD_BYTES * max_rounds * config.server.cohort_size
    field_bytes = lambda name: np.asarray(getattr(dataset.train, name)).nbytes
    examples = {"x", "y"} if is_on_host else set()
    changed_bytes = [sum(map(field_bytes, build.corruption(config).changed_fields - examples)) for config in configs]
    run_state = state_bytes(config, dataset, 0 if is_on_host else dataset.num_clients)
    return [NUM_COPIES * (changed + run_state) + record_bytes for changed in changed_bytes]


def state_bytes(config: Config, dataset: FederatedDataset, num_clients: int) -> int:
    """Bytes of the state that a run carries from round to round, with what the algorithm keeps for `num_clients`."""
    clients = num_clients * client_state_bytes(config, dataset)
    return _training_bytes(config, dataset) + clients + server_bytes(config, dataset) + attack_bytes(config, dataset)


def server_bytes(config: Config, dataset: FederatedDataset) -> int:
    """Bytes of the state that a run's server keeps."""
    return memory.tree_bytes(build.trace_server(config, dataset).state)


@cached_by_program(attack_component)
def attack_bytes(config: Config, dataset: FederatedDataset) -> int:
    """Bytes of the state that a run's attack keeps."""
    num_examples = jax.ShapeDtypeStruct((dataset.num_clients,), jnp.int32)
    init = lambda *reports: build.attack(config)(build.hparams(config)).init(*reports)
    return memory.tree_bytes(jax.eval_shape(init, model_shapes(config, dataset), num_examples))


@cached_by_program()
def client_state_bytes(config: Config, dataset: FederatedDataset) -> int:
    """Bytes of the state that the algorithm keeps for each client."""
    algorithm = factories.build(config, "client.algorithm", config.client.algorithm)
    client_state, _ = jax.eval_shape(algorithm.init, model_shapes(config, dataset).params)
    return memory.tree_bytes(client_state)


@cached_by_program()
def _training_bytes(config: Config, dataset: FederatedDataset) -> int:
    """Bytes of a run's model and of all states but those of clients, server and attack."""

    def init(variables: Variables) -> PyTree:
        method = build.method(config)(build.hparams(config), jnp.int32(0))
        _, server_state = method.algorithm.init(variables.params)
        state = (variables, method.server_optimizer.init(variables.params), server_state)
        return *state, jax.random.key(0), jnp.int32(0)

    return memory.tree_bytes(jax.eval_shape(init, model_shapes(config, dataset)))


def group_bytes(configs: Sequence[Config], dataset: FederatedDataset, layout: Layout) -> int:
    """Bytes that a group needs on all its devices together; an upper bound."""
    config = configs[0]
    task = make_task(config, dataset)
    num_triggers = len({find_trigger(config) for config in configs} - {None})
    tests = [*[dataset.x_test] * (1 + num_triggers), dataset.y_test]
    train = dataset.train
    if layout.buffer_examples:
        train = buffer_shapes(train, 2 * layout.buffer_examples)  # one is in use, the other is filled
    arrays = jax.tree.leaves((train, tests, dataset.root, dataset.validation, task.frozen))
    examples = layout.micro_batch or config.client.batch_size
    optimizer = client_sgd(build.hparams(config), config.client.clip).transformation
    steps = memory.step_bytes(task, dataset, examples, optimizer) * layout.num_models
    return layout.num_devices * (memory.tree_bytes(arrays) + steps) + sum(
        run_bytes(configs, dataset, layout.buffer_examples > 0)
    )


class ExampleCounts(NamedTuple):
    """Examples that a run computes."""

    training: float
    """Of a round, forward and backward, with empty slots."""
    losses: float
    """Of a round, forward only, for the losses that clients report."""
    evaluation: float
    """Of all rounds, forward only, for evaluation and the losses before the first round."""


def count_examples(config: Config, dataset: FederatedDataset, layout: Layout) -> ExampleCounts:
    """Counts the examples that a run computes, on average over random cohorts."""
    num_examples, server, client = np.asarray(dataset.train.num_examples), config.server, config.client
    cohorts = sample_cohort_sizes(num_examples, server.cohort_size)
    batch_size = min(client.batch_size, dataset.max_num_examples)
    slots = num_slots(cohorts, layout.client_width, batch_size, layout.micro_batch, client.steps).mean()
    epochs = client.epochs if client.steps is None else 1
    num_validation = 0 if dataset.validation is None else len(dataset.validation.y)
    evaluated = (len(dataset.y_test) + num_validation) * (1 + -(-server.num_rounds // server.eval_every))
    return ExampleCounts(epochs * slots, cohorts.sum(axis=1).mean(), float(evaluated + num_examples.sum()))


def group_seconds(configs: Sequence[Config], dataset: FederatedDataset, layout: Layout) -> float:
    """Seconds that a group runs, without compiling. Raises `ConfigError` if its steps do not fit into memory."""
    config = configs[0]
    counts = count_examples(config, dataset, layout)
    per_round = (counts.training + FORWARD_SHARE * counts.losses) / layout.client_devices
    examples = config.server.num_rounds * per_round + FORWARD_SHARE * counts.evaluation
    return float(-(-len(configs) // layout.run_devices) * examples * _example_seconds(config, dataset, layout))


def sgd_step(task: Task) -> Callable[..., Variables]:
    """A step of plain SGD: `(variables, x [B, ...], y [B, ...], mask [B], key) -> variables`."""
    loss_and_gradient = loss_gradient(task)

    def step(variables: Variables, *batch: Array) -> Variables:
        gradient, statistics = loss_and_gradient(*variables, *batch)
        return Variables(jax.tree.map(lambda p, g: p - 0.01 * g, variables.params, gradient), statistics)

    return step


@cached_by_program()
def _example_seconds(config: Config, dataset: FederatedDataset, layout: Layout) -> float:
    """Seconds of a gradient step for one example of one model, on a device while all others do the same."""
    task = make_task(config, dataset, layout.backend)
    batch = min(layout.micro_batch or config.client.batch_size, len(dataset.train.y))
    x, y = jnp.asarray(dataset.train.x[:batch]), jnp.asarray(dataset.train.y[:batch])

    def steps(variables: Variables, key: Array, x: Array, y: Array) -> PyTree:
        mask, step = jnp.ones(batch, bool), sgd_step(task)
        body = lambda i, variables: step(variables, x, y, mask, jax.random.fold_in(key, i))
        return jax.lax.fori_loop(0, NUM_STEPS, body, variables)

    run = jax.jit(jax.vmap(partial(steps, x=x, y=y)))
    keys = jax.random.split(jax.random.key(0), layout.num_models)
    shapes = jax.eval_shape(jax.vmap(task.init), keys)
    needed, available = sum(memory.program_memory(run.lower(shapes, keys).compile())), memory.available()
    if needed > available:
        raise ConfigError(
            f"engine.client_width: steps of {layout.num_models} models in lockstep need {memory.gibibytes(needed)}, "
            f"and {memory.gibibytes(available)} are free; lower the widths or client.batch_size, or use a smaller model"
        )
    arguments = jax.vmap(task.init)(keys), keys
    placed = [jax.device_put(arguments, device) for device in jax.local_devices()[: layout.num_devices]]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        jax.block_until_ready([run(*arguments) for arguments in placed])
        times.append(time.perf_counter() - started)
    return min(times) / (NUM_STEPS * layout.num_models * batch)
