"""Bytes of a run's data and states, known from shapes before it runs."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import attack_component
from fedsim.config.schema import Config
from fedsim.core.types import FederatedDataset, PyTree, Variables
from fedsim.engine import build, factories, memory
from fedsim.engine.model import cached_by_program, model_shapes

NUM_COPIES = 3  # of a run's data and state, while they are stacked or replaced
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
