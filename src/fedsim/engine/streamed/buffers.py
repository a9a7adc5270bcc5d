"""Which data sets stay on the host, and how many of their examples are on a device at a time."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from fedsim.config.schema import Config
from fedsim.core.draws import draws_by_threefry
from fedsim.core.types import FederatedDataset
from fedsim.engine import build, memory
from fedsim.engine.inputs import changed_fields
from fedsim.engine.layout import Layout, Machine
from fedsim.engine.memory import client_state_bytes
from fedsim.errors import ConfigError

MAX_DATA_SHARE = 0.5  # of a device's memory, for data that are placed there as a whole
BUFFER_SHARE = 0.1  # of a device's memory, for the examples of cohorts; the next buffer is filled meanwhile
SPARE = 1.2  # times the expected examples of a chunk's cohorts


def stays_on_host(configs: Sequence[Config], dataset: FederatedDataset, machine: Machine) -> bool:
    """Whether the data of a group's clients stay on the host.

    Raises `ConfigError` if they must be on a device, and if they have to be there but do not fit.
    """
    placement, reason = configs[0].data.placement, _needs_device(configs)
    if placement == "auto" and _device_bytes(configs[0], dataset, machine) <= MAX_DATA_SHARE * machine.memory:
        return False
    if placement != "device":
        if not reason:
            return True
        if placement == "host":
            raise ConfigError(f'data.placement: must be "device" or "auto" for {reason}, got "host"')
    memory.check_data_fits(dataset, machine.memory, machine.backend, reason)
    return False


def _device_bytes(config: Config, dataset: FederatedDataset, machine: Machine) -> int:
    """Bytes of a device for the examples of all clients and the states that the algorithm keeps for them in a run."""
    return memory.data_bytes(dataset, machine.backend) + dataset.num_clients * client_state_bytes(config, dataset)


def _needs_device(configs: Sequence[Config]) -> str:
    """Why the data have to be on the device; empty if they need not."""
    if configs[0].record.data:
        return "record.data = true"
    if configs[0].record.local_steps:
        return f"record.local_steps = {configs[0].record.local_steps}"
    for config in configs:
        corruption = build.corruption(config)
        if "x" in corruption.changed_fields and corruption.change_inputs is None:
            return f"corruption.kind = {config.corruption.kind}, which needs all inputs at once"
        if "x" in corruption.changed_fields and not draws_by_threefry(jax.random.key(0)):
            return f"corruption.kind = {config.corruption.kind} with random keys that are not threefry2x32"
    return ""


def with_buffers(layout: Layout, configs: Sequence[Config], dataset: FederatedDataset, machine: Machine) -> Layout:
    """The layout of a group whose data stay on the host: buffers for what a chunk needs, if that is little.

    They hold any cohorts of a single round, however large. Raises `ConfigError` if an algorithm's states of all clients
    do not fit on the host's disk.
    """
    server, sizes = configs[0].server, -np.sort(-np.asarray(dataset.train.num_examples, np.int64))
    most = BUFFER_SHARE * machine.memory
    in_round = server.cohort_size * layout.run_width
    num_draws = server.max_rounds * min(layout.run_width, len({config.seed for config in configs}))
    share = 1 - (1 - server.cohort_size / len(sizes)) ** num_draws  # of the clients that are drawn
    num_copies = dict.fromkeys(changed_fields(configs), layout.run_width)
    example_bytes = sum(getattr(dataset.train, name)[:1].nbytes * (1 + num_copies.get(name, 0)) for name in ("x", "y"))
    target = min(SPARE * share * sizes.sum(), most / example_bytes)
    examples = int(min(sizes.sum(), max(sizes[:in_round].sum(), target)))
    clients = 0
    if state_bytes := client_state_bytes(configs[0], dataset):
        _check_disk(configs, dataset.num_clients, state_bytes)
        target = int(most / (state_bytes * layout.run_width))
        clients = min(dataset.num_clients, max(in_round, min(target, in_round * server.max_rounds)))
    return replace(layout, buffer_examples=examples, buffer_clients=clients)


def _check_disk(configs: Sequence[Config], num_clients: int, state_bytes: int) -> None:
    needed, folder = len(configs) * num_clients * state_bytes, tempfile.gettempdir()
    if needed > (free := shutil.disk_usage(folder).free):
        num_runs = "1 run" if len(configs) == 1 else f"{len(configs)} runs"
        raise ConfigError(
            f"client.algorithm: {configs[0].client.algorithm} keeps {memory.gibibytes(needed)} of states for "
            f"{num_clients:,} clients in {num_runs}, and {memory.gibibytes(free)} are free in {folder}; use "
            "fewer clients, fewer runs or a smaller model, or set TMPDIR"
        )


def placement_notes(config: Config, dataset: FederatedDataset, layout: Layout, machine: Machine) -> list[str]:
    """A remark if the data stay on the host although the configuration leaves it open."""
    if not layout.buffer_examples or config.data.placement != "auto":
        return []
    needed, free = (memory.gibibytes(size) for size in (_device_bytes(config, dataset, machine), machine.memory))
    return [f"data.placement: {dataset.name} would take {needed} of the {free} that are free, so it stays on the host"]
