"""How a group's work is laid out on devices: what runs in lockstep, what one after another, and where.

The rules come from benchmarks/round.py and benchmarks/sweep.py. A layout is chosen once and written into the plan,
because the last bits of results depend on it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from fedsim.config.schema import Config
from fedsim.config.sections import EngineConfig
from fedsim.engine import devices
from fedsim.engine.padding import efficient_width, most_computed, sample_cohort_sizes
from fedsim.errors import ConfigError

RUNS, CLIENTS = "runs", "clients"  # axes of a mesh of devices
MAX_SMALL_MODEL = 50_000  # parameters
CACHED_EXAMPLES = 8  # whose patches stay in a core's cache, for the paper's convolutional networks
SHARE_OF_MEMORY = 0.5  # for the models in lockstep; the rest is for data, states and records
MAX_SHARE_OF_TIME = 0.8  # devices with a run each share cohorts only if the runs take no more of the time then
WIDTHS = ("run_width", "client_width")


@dataclass(frozen=True)
class Layout:
    """What runs in lockstep, and on which devices."""

    client_width: int = 1
    """Clients of a run in lockstep."""
    run_width: int = 1
    """Runs in lockstep."""
    micro_batch: int = 0
    """Examples whose gradient is computed at a time; 0 means the whole batch."""
    run_devices: int = 1
    """Devices that the runs of a group are spread over."""
    client_devices: int = 1
    """Devices that the cohort of each run is spread over."""
    backend: str = "cpu"
    """Kind of the devices, which decides the form of layers."""
    buffer_examples: int = 0
    """Training examples on a device at a time, of cohorts, while all others stay on the host; 0: all of them."""
    buffer_clients: int = 0
    """Clients whose states, if the algorithm keeps any, are on a device at a time; 0: all of them."""

    @property
    def num_models(self) -> int:
        """Models that train in lockstep on a device."""
        return self.client_width * self.run_width

    @property
    def num_devices(self) -> int:
        """Devices in use."""
        return self.run_devices * self.client_devices

    @property
    def client_axis(self) -> str | None:
        """The axis of the devices that share a cohort; None if each run is on a single device."""
        return CLIENTS if self.client_devices > 1 else None

    def narrower(self, engine: EngineConfig | None = None) -> Iterator["Layout"]:
        """Layouts that need less memory, widest first: halves the runs in lockstep, then the clients.

        Widths that `engine` gives stay as they are.
        """
        layout = self
        for key in WIDTHS:
            is_fixed = engine is not None and getattr(engine, key) != "auto"
            while not is_fixed and getattr(layout, key) > 1:
                layout = replace(layout, **{key: getattr(layout, key) // 2})
                yield layout


class Machine(NamedTuple):
    """The devices that a layout is for."""

    backend: str
    """ "cpu", "gpu" or "tpu"."""
    num_devices: int
    memory: int
    """Free bytes of a device."""
    num_processes: int = 1
    """Processes that share the devices evenly."""

    @classmethod
    def current(cls) -> "Machine":
        """The devices of this machine. Raises `ConfigError` if JAX finds none."""
        return cls(devices.backend(), jax.device_count(), devices.free_bytes(), jax.process_count())


# The most models in lockstep that "auto" means, by device and size of the model: measured by benchmarks/round.py and
# benchmarks/sweep.py, on an H100 by benchmarks/accelerator.py. On a CPU, larger operations of small models are faster,
# and of large ones what stays in a core's cache; many small products fill an accelerator.
MAX_MODELS = {("cpu", "small"): 32, ("cpu", "large"): 1, ("accelerator", "small"): 4096, ("accelerator", "large"): 128}


def choose_layout(
    config: Config,
    num_runs: int,
    num_params: int,
    num_examples: np.ndarray,
    step_bytes: Callable[[int], int],
    machine: Machine,
) -> Layout:
    """The layout of a group of `num_runs` runs, with a rule of thumb for each "auto" in `config.engine`.

    Runs are spread over the devices first; devices that are left share the cohorts. Where models train one by one, they
    also share cohorts if the last run would leave devices idle for long: three runs on two devices. `num_examples` [N]
    are the clients' examples. `step_bytes(B)` bounds the bytes of one model's step with B examples: on a CPU, models in
    lockstep get half of a device's memory. On an accelerator the compiler decides (`widest_fitting`). Raises
    `ConfigError` if `config` gives more devices than there are, or a number that several processes cannot share evenly.
    """
    engine, cohort_size, batch_size = config.engine, config.server.cohort_size, config.client.batch_size
    device = "cpu" if machine.backend == "cpu" else "accelerator"
    size = "small" if num_params <= MAX_SMALL_MODEL else "large"
    max_models, examples = MAX_MODELS[device, size], batch_size
    if (device, size) == ("cpu", "large"):
        examples = -(-batch_size // max(1, batch_size // CACHED_EXAMPLES))
    micro_batch = min(examples if engine.micro_batch == "auto" else engine.micro_batch, batch_size)

    client_devices = engine.client_devices
    if client_devices == "auto" and max_models == 1 and machine.num_devices > machine.num_processes == 1:
        client_devices = _fastest_client_devices(config, num_runs, num_examples, micro_batch, machine.num_devices)
    run_devices, client_devices = _devices(client_devices, num_runs, cohort_size, machine)
    num_runs, cohort_size = -(-num_runs // run_devices), -(-cohort_size // client_devices)  # of a device

    clients = cohort_size
    if (device, size) == ("cpu", "small"):  # only as many as hardly wait for each other; runs of one seed never do
        max_width, steps = max(1, max_models // num_runs), config.client.steps
        clients = max(2, efficient_width(num_examples, cohort_size, batch_size, max_width, steps))
    if device == "cpu":
        max_models = max(1, min(max_models, int(SHARE_OF_MEMORY * machine.memory) // step_bytes(micro_batch)))
    client_width = min(min(clients, max_models) if engine.client_width == "auto" else engine.client_width, cohort_size)
    max_runs = max(1, min(max_models // client_width, num_runs))
    least_padding = min(range(max_runs, max_runs // 2, -1), key=lambda width: -num_runs % width)
    return Layout(
        client_width=client_width,
        run_width=least_padding if engine.run_width == "auto" else min(engine.run_width, num_runs),
        micro_batch=0 if micro_batch == batch_size else micro_batch,
        run_devices=run_devices,
        client_devices=client_devices,
        backend=machine.backend,
    )


def _fastest_client_devices(
    config: Config, num_runs: int, num_examples: np.ndarray, micro_batch: int, num_devices: int
) -> int | Literal["auto"]:
    """Devices that share each cohort, if the runs take far less time then; "auto" if not.

    Runs come one after another on each device, and clients of a run, too.
    """
    cohort_size, client = config.server.cohort_size, config.client
    cohorts = sample_cohort_sizes(num_examples, cohort_size)

    def computed(columns: int) -> float:
        rows = min(num_devices // columns, num_runs)
        return -(-num_runs // rows) * most_computed(cohorts, columns, client.batch_size, micro_batch, client.steps)

    fastest = min(range(1, min(num_devices, cohort_size) + 1), key=computed)
    return fastest if computed(fastest) <= MAX_SHARE_OF_TIME * computed(1) else "auto"


def _devices(client_devices: int | str, num_runs: int, cohort_size: int, machine: Machine) -> tuple[int, int]:
    """(devices that the runs are spread over, devices that share the cohort of each run)."""
    num_devices, num_processes = machine.num_devices, machine.num_processes
    most = min(max(1, num_devices // num_runs), cohort_size)
    candidates = list(range(most, 0, -1)) if isinstance(client_devices, str) else [client_devices]
    if candidates[0] > num_devices:
        raise ConfigError(
            f"engine.client_devices: must be at most the number of devices, {num_devices}, got {client_devices}"
        )
    for columns in candidates:
        rows = min(num_devices // columns, num_runs)
        # More rows than runs repeat a run; otherwise a process would have no part in collectives and checkpoints.
        for filled in range(rows, num_devices // columns + 1):
            if filled * columns % num_processes == 0:
                return filled, columns
    raise ConfigError(
        f"engine.client_devices: must be such that {num_processes} processes share the {num_devices} devices "
        f"evenly, got {client_devices}"
    )


def widest_fitting(
    layout: Layout, engine: EngineConfig, peak_bytes: Callable[[Layout], int | None], available: int
) -> tuple[Layout, int | None]:
    """`layout`, or the widest narrower one that fits into `available` bytes, and its `peak_bytes`.

    `peak_bytes(layout)` are the bytes of a device as its compiler reports them; None if it runs out of memory. They are
    taken to grow with the models in lockstep, so most layouts are never compiled. If none fits, returns the narrowest.
    """
    candidates = [layout, *layout.narrower(engine)]
    while True:
        layout = candidates.pop(0)
        needed = peak_bytes(layout)
        if not candidates or (needed is not None and needed <= available):
            return layout, needed
        max_models = layout.num_models * available // needed if needed else layout.num_models // 2
        candidates = [narrower for narrower in candidates if narrower.num_models <= max_models] or candidates[-1:]


def make_mesh(layout: Layout, devices: Sequence[jax.Device] | None = None) -> Mesh | None:
    """The mesh of a layout on the first of `devices`; None for a single device."""
    shape = (layout.run_devices, layout.client_devices)
    if shape == (1, 1):
        return None
    types = (jax.sharding.AxisType.Auto,) * 2
    devices, number = jax.devices() if devices is None else devices, layout.num_devices
    if number < len(devices):  # the first ones of each process, equally many; of a TPU, whatever their places
        by_process = np.reshape(sorted(devices, key=lambda device: device.process_index), (jax.process_count(), -1))
        chosen = by_process[:, : number // jax.process_count()].reshape(shape)
        return Mesh(chosen, (RUNS, CLIENTS), axis_types=types)
    return jax.make_mesh(shape, (RUNS, CLIENTS), axis_types=types, devices=devices)
