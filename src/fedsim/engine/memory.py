"""The memory that programs and runs need, known before they run."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedsim.config.roles import attack_component
from fedsim.config.schema import Config
from fedsim.core import require
from fedsim.core.client import loss_gradient
from fedsim.core.contracts import ALGORITHM_STATES, Task
from fedsim.core.require import is_key
from fedsim.core.types import FederatedDataset, PyTree, Variables
from fedsim.datasets.portions import ALIGNMENT
from fedsim.engine import build
from fedsim.engine.model import cached_by_program, model_shapes
from fedsim.errors import ConfigError

GIBIBYTE = 2**30
NUM_COPIES = 3  # of a run's data and state, while they are stacked or replaced
RECORD_BYTES = 13  # of a client in a round
KEY_BYTES = 16  # of a random key


class ProgramMemory(NamedTuple):
    """Bytes of a device that a compiled program needs."""

    argument_bytes: int
    """Its arguments."""
    temp_bytes: int
    """Intermediate values, and results that do not take the place of an argument."""


def program_memory(program: jax.stages.Compiled) -> ProgramMemory:
    """The memory of `program` as its compiler reports it; zeros if it does not."""
    analysis = program.memory_analysis()
    if analysis is None:
        return ProgramMemory(0, 0)
    temp_bytes = analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return ProgramMemory(analysis.argument_size_in_bytes, temp_bytes)


def peak(programs: Iterable[ProgramMemory]) -> ProgramMemory:
    """The memory that a device needs to run `programs` one at a time."""
    return ProgramMemory(*map(max, zip(*programs, strict=True)))


def step_bytes(
    task: Task, dataset: FederatedDataset, batch_size: int, optimizer: optax.GradientTransformation | None = None
) -> int:
    """Bytes of a gradient step of one model: its variables, all intermediate values, the state of `optimizer`.

    An upper bound from the traced step, which is not compiled: a compiler frees or never stores much of this.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    variables = jax.eval_shape(task.init, key)
    batch = lambda a: jax.ShapeDtypeStruct((batch_size, *a.shape[1:]), a.dtype)
    mask = jax.ShapeDtypeStruct((batch_size,), jnp.bool_)
    examples = batch(dataset.train.x), batch(dataset.train.y), mask
    step = jax.make_jaxpr(loss_gradient(task))(*variables, *examples, key)
    optimizer_state = () if optimizer is None else jax.eval_shape(optimizer.init, variables.params)
    kept = tree_bytes(variables) + 2 * tree_bytes(optimizer_state)  # the state before and after the step
    return kept + tree_bytes([out.aval for eqn in step.eqns for out in eqn.outvars])


def tree_bytes(tree: PyTree) -> int:
    """Bytes of a tree of arrays, or of their shapes; a random key counts as 16."""
    item_bytes = lambda a: KEY_BYTES if is_key(a) else np.dtype(a.dtype).itemsize
    return sum(math.prod(leaf.shape) * item_bytes(leaf) for leaf in jax.tree.leaves(tree))


def check_data_fits(dataset: FederatedDataset, free_bytes: int, backend: str, needed_by: str = "") -> None:
    """Raises `ConfigError` if the examples of `dataset` do not fit into the `free_bytes` of a device.

    `needed_by` is the setting that needs them there; empty if none does.
    """
    needed = data_bytes(dataset, backend)
    if needed > free_bytes:
        last = " or free memory"
        if backend == "cpu":
            last = ", free memory or store them as a folder of .npy files, sorted by client, which needs no copy"
        use = f"they must be there for {needed_by}; use" if needed_by else 'use data.placement = "host", or'
        raise ConfigError(
            f"data.name: all examples of {dataset.name} must fit on a device, which has {gibibytes(free_bytes)} free, "
            f"got {gibibytes(needed)}; {use} fewer (data.num_train, or data.sample_fraction for natural "
            f"clients){last}"
        )


def data_bytes(dataset: FederatedDataset, backend: str) -> int:
    """Bytes that the examples of `dataset` take on a device; a CPU device copies only arrays that are not aligned."""
    placed = dataset.train, dataset.x_test, dataset.y_test, dataset.root, dataset.validation
    is_copied = lambda a: backend != "cpu" or not a.flags.c_contiguous or a.ctypes.data % ALIGNMENT
    return sum(array.nbytes for array in map(np.asarray, jax.tree.leaves(placed)) if is_copied(array))


def gibibytes(size: int) -> str:
    """Formats a number of bytes, for example "3.1 GiB" or "20 MiB"."""
    return f"{size / GIBIBYTE:.1f} GiB" if size >= GIBIBYTE / 10 else f"{size / 2**20:.0f} MiB"


def run_bytes(configs: Sequence[Config], dataset: FederatedDataset, is_on_host: bool = False) -> list[int]:
    """Bytes of each run of a group: the data that its corruption changes, its state, a chunk's records.

    Without changed examples and states of clients, if these stay on the host.
    """
    config = configs[0]
    record_bytes = RECORD_BYTES * config.server.max_rounds * config.server.cohort_size
    field_bytes = lambda name: np.asarray(getattr(dataset.train, name)).nbytes
    examples = {"x", "y"} if is_on_host else set()
    changed_bytes = [sum(map(field_bytes, build.corruption(config).changed_fields - examples)) for config in configs]
    client_bytes, other_bytes = map(tree_bytes, training_shapes(config, dataset))
    state = other_bytes + server_bytes(config, dataset) + attack_bytes(config, dataset)
    state += 0 if is_on_host else dataset.num_clients * client_bytes
    return [NUM_COPIES * (changed + state) + record_bytes for changed in changed_bytes]


def server_bytes(config: Config, dataset: FederatedDataset) -> int:
    """Bytes of the state that a run's server keeps."""
    return tree_bytes(build.trace_server(config, dataset).state)


@cached_by_program(attack_component)
def attack_bytes(config: Config, dataset: FederatedDataset) -> int:
    """Bytes of the state that a run's attack keeps."""
    num_examples = jax.ShapeDtypeStruct((dataset.num_clients,), jnp.int32)
    init = lambda *reports: build.attack(config)(build.hparams(config)).init(*reports)
    return tree_bytes(jax.eval_shape(init, model_shapes(config, dataset), num_examples))


def client_state_bytes(config: Config, dataset: FederatedDataset) -> int:
    """Bytes of the state that the algorithm keeps for each client."""
    return tree_bytes(training_shapes(config, dataset)[0])


@cached_by_program()
def training_shapes(config: Config, dataset: FederatedDataset) -> tuple[PyTree, PyTree]:
    """The shapes of what the algorithm keeps for each client, and of a run's model and other states of training."""

    def init(variables: Variables) -> tuple[PyTree, PyTree]:
        method = build.method(config)(build.hparams(config), jnp.int32(0))
        client_state, server_state = require.pair(method.algorithm.init(variables.params), ALGORITHM_STATES)
        optimizer_state = method.server_optimizer.init(variables.params)
        return client_state, (variables, optimizer_state, server_state, jax.random.key(0), jnp.int32(0))

    return jax.eval_shape(init, model_shapes(config, dataset))
