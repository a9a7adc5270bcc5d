"""What a group takes on this machine: its memory, from shapes, and its time, from a few steps that are timed."""

import timeit
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.clients import num_malicious
from fedsim.config.schema import Config
from fedsim.core.client import loss_gradient
from fedsim.core.types import Array, FederatedDataset, PyTree, Variables
from fedsim.engine import build, devices, memory
from fedsim.engine.data import find_trigger
from fedsim.engine.inputs import buffer_shapes
from fedsim.engine.layout import Layout
from fedsim.engine.model import cached_by_program, model_shapes
from fedsim.engine.padding import FORWARD_SHARE, num_computed, sample_cohort_sizes
from fedsim.errors import ConfigError

NUM_STEPS = 5  # that are timed at once
COHORT_COPIES = 3  # of a cohort's updates and states in a round
NUM_EXAMPLES = 32  # of each client, where not its training is timed


def group_bytes(configs: Sequence[Config], dataset: FederatedDataset, layout: Layout) -> int:
    """Bytes that a group needs on all its devices together, estimated from shapes."""
    config = configs[0]
    task = build.task(config, dataset)
    num_triggers = len({find_trigger(config) for config in configs} - {None})
    tests = [*[dataset.x_test] * (1 + num_triggers), dataset.y_test]
    train = dataset.train
    if layout.buffer_examples:
        train = buffer_shapes(train, 2 * layout.buffer_examples)  # one is in use, the other is filled
    arrays = jax.tree.leaves((train, tests, dataset.root, dataset.validation, task.frozen))
    examples = min(layout.micro_batch or config.client.batch_size, dataset.max_num_examples)
    optimizer = build.client_optimizer(config, build.hparams(config)).transformation
    steps = memory.step_bytes(task, dataset, examples, optimizer) * layout.num_models
    client_bytes = memory.tree_bytes(model_shapes(config, dataset)) + memory.client_state_bytes(config, dataset)
    cohorts = COHORT_COPIES * layout.run_width * config.server.cohort_size * client_bytes
    return layout.num_devices * (memory.tree_bytes(arrays) + steps + cohorts) + sum(
        memory.run_bytes(configs, dataset, layout.buffer_examples > 0)
    )


def group_seconds(configs: Sequence[Config], dataset: FederatedDataset, layout: Layout) -> float:
    """Seconds that a group runs, without compiling. Raises `ConfigError` if its steps do not fit into memory."""
    config = configs[0]
    of_round, of_evaluations = example_work(config, dataset, layout)
    examples = config.server.num_rounds * of_round / layout.client_devices + of_evaluations
    return float(-(-len(configs) // layout.run_devices) * examples * _example_seconds(config, dataset, layout))


def example_work(config: Config, dataset: FederatedDataset, layout: Layout) -> tuple[float, float]:
    """Examples that a run computes in a round, over random cohorts with padding, and in all evaluations.

    Those of a forward pass only count by the time that it takes of a gradient step.
    """
    num_examples, server, client = np.asarray(dataset.train.num_examples), config.server, config.client
    cohorts = sample_cohort_sizes(num_examples, server.cohort_size)
    batch_size = min(client.batch_size, dataset.max_num_examples)
    micro_batch = min(layout.micro_batch, batch_size)
    computed = num_computed(cohorts, layout.client_width, batch_size, micro_batch, client.steps).mean()
    epochs = client.epochs if client.steps is None else 1
    num_validation = 0 if dataset.validation is None else len(dataset.validation.y)
    num_test = len(dataset.y_test) * (1 + config.record.classes)
    evaluated = (num_test + num_validation) * (1 + -(-server.num_rounds // server.eval_every))
    has_losses = config.record.losses or build.trace_server(config, dataset).uses_losses
    losses, first_losses = (cohorts.sum(axis=1).mean(), num_examples.sum()) if has_losses else (0, 0)
    return epochs * computed + FORWARD_SHARE * losses, FORWARD_SHARE * (evaluated + first_losses)


def server_seconds(config: Config, dataset: FederatedDataset, layout: Layout) -> float:
    """Seconds of a round of one run that trains for one step: mostly its attack and server, without compiling.

    It is on one device, since each of those that share a cohort computes its attack and server.
    """
    of_step = replace(config, client=replace(config.client, epochs=1, steps=1))
    num_examples = jnp.minimum(jnp.asarray(dataset.train.num_examples), NUM_EXAMPLES)
    malicious = jnp.arange(num_examples.size) < num_malicious(config, dataset.num_clients)
    data = jax.tree.map(jnp.asarray, dataset.train)._replace(num_examples=num_examples, malicious=malicious)
    simulation = replace(build.simulation(of_step, dataset, replace(layout, client_devices=1)), root=dataset.root)
    hparams = build.hparams(of_step)
    state = jax.jit(simulation.init)(jax.random.key(0), data, hparams)
    run = jax.jit(simulation.round).lower(state, data, hparams).compile()
    return _shortest(lambda: run(state, data, hparams))


@cached_by_program(build.change_task)
def _example_seconds(config: Config, dataset: FederatedDataset, layout: Layout) -> float:
    """Seconds of a gradient step for one example of one model, on a device while all others do the same."""
    task = build.task(config, dataset, layout.backend)
    batch = min(layout.micro_batch or config.client.batch_size, dataset.max_num_examples)
    x, y = jnp.asarray(dataset.train.x[:batch]), jnp.asarray(dataset.train.y[:batch])

    loss_and_gradient, mask = loss_gradient(task), jnp.ones(batch, bool)

    def steps(variables: Variables, key: Array, x: Array, y: Array) -> Variables:
        def step(i: Array, variables: Variables) -> Variables:
            gradient, statistics = loss_and_gradient(*variables, x, y, mask, jax.random.fold_in(key, i))
            return Variables(jax.tree.map(lambda p, g: p - 0.01 * g, variables.params, gradient), statistics)

        return jax.lax.fori_loop(0, NUM_STEPS, step, variables)

    run = jax.jit(jax.vmap(partial(steps, x=x, y=y)))
    keys = jax.random.split(jax.random.key(0), layout.num_models)
    shapes = jax.eval_shape(jax.vmap(task.init), keys)
    needed, available = sum(memory.program_memory(run.lower(shapes, keys).compile())), devices.free_bytes()
    if needed > available:
        raise ConfigError(
            f"engine.client_width: steps of {layout.num_models} models in lockstep need {memory.gibibytes(needed)}, "
            f"and {memory.gibibytes(available)} are free; lower the widths or client.batch_size, or use a smaller model"
        )
    arguments = jax.vmap(task.init)(keys), keys
    placed = [jax.device_put(arguments, device) for device in jax.local_devices()[: layout.num_devices]]
    return _shortest(lambda: [run(*arguments) for arguments in placed]) / (NUM_STEPS * layout.num_models * batch)


def _shortest(call: Callable[[], PyTree]) -> float:
    """The seconds of the fastest of three calls."""
    return min(timeit.repeat(lambda: jax.block_until_ready(call()), number=1, repeat=3))
