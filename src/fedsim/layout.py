"""How a group's work is laid out on the devices at hand: what runs in lockstep, what one after another, and where.

The rules are from benchmarks/round.py and benchmarks/sweep.py. A layout is chosen once and written into the plan, since
the last bits of results depend on it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedsim.config import Config
from fedsim.errors import ConfigError

RUNS, CLIENTS = "runs", "clients"  # axes of a mesh of devices
SMALL_MODEL = 50_000  # parameters
CACHED_EXAMPLES = 8  # whose patches stay in a core's cache, for the paper's convolutional networks
LEAST_SHARE, NUM_COHORTS = 0.95, 64
SHARE_OF_MEMORY = 0.5  # for the models in lockstep; the rest is for data, states and records


@dataclass(frozen=True)
class Layout:
    """Models trained in lockstep on a device are `client_width` x `run_width`."""

    client_width: int = 1  # clients of a run in lockstep
    run_width: int = 1  # runs in lockstep
    micro_batch: int = 0  # examples whose gradient is computed at a time; 0: the whole batch
    run_devices: int = 1  # devices that the runs of a group are spread over
    client_devices: int = 1  # devices that the cohort of each run is spread over

    @property
    def client_axis(self) -> str | None:
        """The axis of the devices that share a cohort; None: each run is on a single device."""
        return CLIENTS if self.client_devices > 1 else None

    def narrower(self) -> Iterator["Layout"]:
        """Layouts that need less memory, one after another: half the runs in lockstep each time, then the clients."""
        layout = self
        while layout.run_width > 1 or layout.client_width > 1:
            key = "run_width" if layout.run_width > 1 else "client_width"
            layout = replace(layout, **{key: getattr(layout, key) // 2})
            yield layout


def num_slots(sizes: np.ndarray, width: int, batch_size: int, micro_batch: int = 0) -> np.ndarray:
    """The example slots [R] that an epoch of cohorts of `sizes` [R, K], largest first, computes.

    A client's slot in a step is computed whether it holds an example or not; a wave makes the steps that its largest
    client needs, and a last wave that is not full is filled up with clients without examples.
    """
    padding = -sizes.shape[1] % width
    largest = np.pad(sizes, ((0, 0), (0, padding)))[:, ::width]  # of each wave
    if not micro_batch:
        return width * batch_size * np.sum(-(-largest // batch_size), axis=1)
    full, rest = np.divmod(largest, batch_size)
    return width * micro_batch * np.sum(full * -(-batch_size // micro_batch) - (-rest // micro_batch), axis=1)


def draw_cohorts(counts: np.ndarray, cohort_size: int) -> np.ndarray:
    """The sizes [64, K], largest first, of random cohorts of the clients, whose examples are `counts` [N]."""
    rng = np.random.default_rng(0)
    return -np.sort(-np.stack([rng.choice(counts, cohort_size, replace=False) for _ in range(NUM_COHORTS)]))


def useful_width(counts: np.ndarray, cohort_size: int, batch_size: int, most: int) -> int:
    """The most clients in lockstep, up to `most`, of whose slots 95 % as many hold examples as one at a time.

    Over random cohorts of the clients, whose examples are `counts` [N].
    """
    cohorts = draw_cohorts(counts, cohort_size)
    slots = lambda width: num_slots(cohorts, width, batch_size).sum()
    return max(width for width in range(1, min(most, cohort_size) + 1) if slots(width) * LEAST_SHARE <= slots(1))


def choose_layout(
    config: Config,
    num_runs: int,
    num_params: int,
    counts: np.ndarray,
    step_bytes: Callable[[int], int],
    *,
    backend: str,
    num_devices: int = 1,
    memory: int,
) -> Layout:
    """The layout of `num_runs` runs that share a program, with a rule of thumb for each "auto" in `config.engine`.

    Devices take runs of their own as far as there are any, and otherwise share the cohorts. Of a small model a CPU
    wants a few tens in lockstep, for larger operations: runs rather than clients, since runs of one seed have the same
    cohort, so that none waits for another, and otherwise as many clients as hardly wait for each other, by their
    `counts` [N]. Of a large one it wants one at a time and few examples of it, to stay in its cache. An accelerator
    wants many of both. `step_bytes(B)` bounds the bytes of one model's step with B examples; models in lockstep get
    half of `memory`, the bytes of a device.
    """
    engine, cohort_size, batch_size = config.engine, config.server.cohort_size, config.client.batch_size
    shared = min(max(1, num_devices // num_runs), cohort_size)
    client_devices = shared if engine.client_devices == "auto" else engine.client_devices
    if client_devices > num_devices:
        raise ConfigError(f"engine.client_devices: {client_devices}, but the number of devices is {num_devices}")
    run_devices = min(num_devices // client_devices, num_runs)
    num_runs, cohort_size = -(-num_runs // run_devices), -(-cohort_size // client_devices)  # of a device

    small = num_params <= SMALL_MODEL
    if backend != "cpu":
        clients, lockstep, examples = cohort_size, 4096 if small else 128, batch_size
    elif small:
        lockstep, examples = 32, batch_size
        clients = max(2, useful_width(counts, cohort_size, batch_size, most=max(1, lockstep // num_runs)))
    else:
        clients, lockstep, examples = 1, 1, -(-batch_size // max(1, batch_size // CACHED_EXAMPLES))
    micro_batch = min(examples if engine.micro_batch == "auto" else engine.micro_batch, batch_size)
    lockstep = max(1, min(lockstep, int(SHARE_OF_MEMORY * memory) // step_bytes(micro_batch)))

    client_width = min(min(clients, lockstep) if engine.client_width == "auto" else engine.client_width, cohort_size)
    most = max(1, min(lockstep // client_width, num_runs))
    fullest = min(range(most, most // 2, -1), key=lambda width: -num_runs % width)  # the least padding
    return Layout(
        client_width=client_width,
        run_width=fullest if engine.run_width == "auto" else min(engine.run_width, num_runs),
        micro_batch=0 if micro_batch == batch_size else micro_batch,
        run_devices=run_devices,
        client_devices=client_devices,
    )
