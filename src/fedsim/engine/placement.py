"""Which data sets stay on the host, and how many of their examples are on a device at a time."""

import shutil
import tempfile
from collections.abc import Sequence

import numpy as np

from fedsim.config.schema import Config
from fedsim.core.types import FederatedDataset
from fedsim.engine import build, memory
from fedsim.engine.estimate import client_state_bytes
from fedsim.engine.inputs import changed_fields
from fedsim.errors import ConfigError

MAX_DATA_SHARE = 0.5  # of a device's memory, for data that are placed there as a whole
BUFFER_SHARE = 0.1  # of a device's memory, for the examples of cohorts; the next buffer is filled meanwhile
SPARE = 1.2  # times the expected examples of a chunk's cohorts


def stays_on_host(configs: Sequence[Config], dataset: FederatedDataset, available: int) -> bool:
    """Whether the data of a group's clients stay on the host, where a device has `available` bytes.

    Raises `ConfigError` if they have to be on the device.
    """
    placement = configs[0].data.placement
    needed = train_bytes(dataset) + dataset.num_clients * client_state_bytes(configs[0], dataset)
    if placement == "device" or (placement == "auto" and needed <= MAX_DATA_SHARE * available):
        return False
    if not (reason := _needs_device(configs)):
        return True
    if placement == "auto":
        return False
    raise ConfigError(f'data.placement: must be "device" or "auto" for {reason}, got "host"')


def _needs_device(configs: Sequence[Config]) -> str:
    """Why the data have to be on the device; empty if they need not."""
    if configs[0].record.data:
        return "record.data = true"
    for config in configs:
        corruption = build.corruption(config)
        if "x" in corruption.changed_fields and corruption.change_inputs is None:
            return f"corruption.kind = {config.corruption.kind}, which needs all inputs at once"
    return ""


def train_bytes(dataset: FederatedDataset) -> int:
    """Bytes of the training examples of all clients."""
    return dataset.train.x.nbytes + dataset.train.y.nbytes


def buffer_examples(configs: Sequence[Config], dataset: FederatedDataset, run_width: int, available: int) -> int:
    """Examples of a buffer for the cohorts of `run_width` runs: what a chunk needs, if that is little.

    It holds any cohorts of a single round, however large.
    """
    server, sizes = configs[0].server, -np.sort(-np.asarray(dataset.train.num_examples, np.int64))
    largest = int(sizes[: server.cohort_size * run_width].sum())
    num_rounds = min(server.eval_every, server.num_rounds)
    num_draws = num_rounds * min(run_width, len({config.seed for config in configs}))
    share = 1 - (1 - server.cohort_size / len(sizes)) ** num_draws  # of the clients that are drawn
    num_copies = dict.fromkeys(changed_fields(configs), run_width)
    example_bytes = sum(getattr(dataset.train, name)[:1].nbytes * (1 + num_copies.get(name, 0)) for name in ("x", "y"))
    wanted = min(SPARE * share * sizes.sum(), BUFFER_SHARE * available / example_bytes)
    return int(min(sizes.sum(), max(largest, wanted)))


def buffer_clients(configs: Sequence[Config], dataset: FederatedDataset, run_width: int, available: int) -> int:
    """Clients whose states are on a device at a time; 0 if the algorithm keeps none.

    Raises `ConfigError` if the states of all clients do not fit on the host's disk.
    """
    state_bytes = client_state_bytes(configs[0], dataset)
    needed, folder = len(configs) * dataset.num_clients * state_bytes, tempfile.gettempdir()
    if needed > (free := shutil.disk_usage(folder).free):
        raise ConfigError(
            f"client.algorithm: {configs[0].client.algorithm} keeps {memory.gibibytes(needed)} of states for "
            f"{dataset.num_clients:,} clients in {len(configs)} runs, and {memory.gibibytes(free)} are free in "
            f"{folder}; use fewer clients, fewer runs or a smaller model, or set TMPDIR"
        )
    if not state_bytes:
        return 0
    server = configs[0].server
    largest = server.cohort_size * run_width
    wanted = int(BUFFER_SHARE * available / (state_bytes * run_width))
    return min(dataset.num_clients, max(largest, min(wanted, largest * min(server.eval_every, server.num_rounds))))


def placement_note(dataset: FederatedDataset, available: int) -> str:
    """A remark that the data stay on the host although the configuration leaves it open."""
    return (
        f"data.placement: the training data of {dataset.name} take {memory.gibibytes(train_bytes(dataset))}, and "
        f"{memory.gibibytes(available)} are free, so they stay on the host"
    )
