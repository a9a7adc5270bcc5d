"""What a group needs, before it runs: memory from shapes, time from a few steps, timed on the devices at hand."""

import time
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedsim import build, memory
from fedsim.config import Config
from fedsim.corruption import CHANGES
from fedsim.layout import Layout, draw_cohorts, num_slots
from fedsim.types import Array, FederatedDataset, PyTree

COPIES = 3  # of a run's data and state, while they are stacked or replaced
STEPS = 5  # that are timed
FORWARD = 1 / 3  # of a gradient step's time
RECORD_BYTES = 13  # of a client in a round


def run_bytes(configs: Sequence[Config], dataset: FederatedDataset) -> list[int]:
    """Bytes that each run of a group holds: the data that its corruption changes, its state, a chunk's records."""
    config = configs[0]
    state = 4 * build.num_params(config, dataset) * (2 if config.server.momentum else 1) + 16 * dataset.num_clients
    chunk = min(config.server.eval_every, config.server.num_rounds)
    records = RECORD_BYTES * chunk * config.server.cohort_size
    size = lambda name: np.asarray(getattr(dataset.train, name)).nbytes
    return [COPIES * (sum(map(size, CHANGES[one.corruption.kind])) + state) + records for one in configs]


def group_bytes(configs: Sequence[Config], dataset: FederatedDataset, layout: Layout) -> int:
    """Bytes that a group needs on all its devices together; an upper bound."""
    config, devices = configs[0], layout.run_devices * layout.client_devices
    arrays = (*dataset.train, dataset.x_test, dataset.y_test)
    task = build.task(config, dataset)
    examples = layout.micro_batch or config.client.batch_size
    step = memory.step_bytes(task, dataset.train.x[0], examples) * layout.client_width * layout.run_width
    return devices * (sum(np.asarray(a).nbytes for a in arrays) + step) + sum(run_bytes(configs, dataset))


def group_seconds(configs: Sequence[Config], dataset: FederatedDataset, layout: Layout) -> float:
    """Seconds that a group runs, without compiling: the time of a step, times the steps of its rounds."""
    config = configs[0]
    counts, server, client = np.asarray(dataset.train.counts), config.server, config.client
    cohorts = draw_cohorts(counts, server.cohort_size)
    slots = num_slots(cohorts, layout.client_width, client.batch_size, layout.micro_batch).mean()
    asks_losses = config.record.losses or server.aggregator == "arfl"
    training = client.epochs * slots + FORWARD * asks_losses * cohorts.sum(axis=1).mean()
    evaluation = FORWARD * len(dataset.y_test) * (1 + -(-server.num_rounds // server.eval_every))
    examples = server.num_rounds * training / layout.client_devices + evaluation + FORWARD * counts.sum()
    return float(-(-len(configs) // layout.run_devices) * examples * _example_seconds(config, dataset, layout))


def _example_seconds(config: Config, dataset: FederatedDataset, layout: Layout) -> float:
    """Seconds of a gradient step for one example of one model, on a device while all others do the same."""
    task = build.task(config, dataset)
    models = layout.client_width * layout.run_width
    batch = min(layout.micro_batch or config.client.batch_size, len(dataset.train.y))
    x, y = jnp.asarray(dataset.train.x[:batch]), jnp.asarray(dataset.train.y[:batch])

    def steps(params: PyTree, key: Array, x: Array, y: Array) -> PyTree:
        def step(i: Array, params: PyTree) -> PyTree:
            gradient = jax.grad(task.loss)(params, x, y, jnp.ones(batch, bool), jax.random.fold_in(key, i))
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient)

        return jax.lax.fori_loop(0, STEPS, step, params)

    run = jax.jit(jax.vmap(partial(steps, x=x, y=y)))
    keys = jax.random.split(jax.random.key(0), models)
    arguments = jax.vmap(task.init)(keys), keys
    devices = jax.devices()[: layout.run_devices * layout.client_devices]
    placed = [jax.device_put(arguments, device) for device in devices]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        jax.block_until_ready([run(*one) for one in placed])
        times.append(time.perf_counter() - started)
    return min(times) / (STEPS * models * batch)
