"""One run on several processes, by JAX's distributed runtime: how they connect, agree and end together.

Every process runs the same programs in the same order. Process 0 alone decides and writes; the others ask for what it
decided (`decide`), by the key-value store of the runtime's coordination service.
"""

import itertools
import json
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

import jax
from jax._src import distributed

from fedsim.errors import ConfigError

Value = TypeVar("Value")

HEARTBEAT_SECONDS = 10  # without a sign of life, after which a process counts as lost
BARRIER_SECONDS = 24 * 3600
POLL_SECONDS = 1.0  # between two looks for Ctrl-C
DECISIONS, BARRIERS = "fedsim/decisions", "fedsim/barriers"
_numbers = itertools.count()  # of decisions and barriers, equal on all processes


def connect(coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Connects the processes of a run, before JAX starts. JAX detects what is None (SLURM, Open MPI, TPU, Kubernetes).

    Raises `ConfigError` if it detects nothing, or the processes do not find each other.
    """
    jax.config.update("jax_enable_preemption_service", False)  # it catches SIGTERM, which should end the process
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    except (ValueError, RuntimeError, OSError) as error:
        remedy = (
            "start it with srun, mpirun, on a TPU slice or in a Kubernetes job, or give --coordinator, "
            "--num-processes and --process-id"
        )
        raise ConfigError(
            f"--distributed: the processes cannot be connected: {str(error).rstrip('.')}; {remedy}"
        ) from None


def coordination_client() -> Any:
    """The client of the coordination service."""
    return distributed.global_state.client


def count() -> int:
    """The number of processes. Does not start JAX."""
    return int(distributed.global_state.num_processes)


def index() -> int:
    """The number of this process, from 0. Does not start JAX."""
    return int(distributed.global_state.process_id)


def is_primary() -> bool:
    """Whether this process decides, writes and shows progress."""
    return index() == 0


def check_devices() -> None:
    """Raises `ConfigError` if the processes do not have equally many devices."""
    if count() == 1:
        return
    numbers = [0] * count()
    for device in jax.devices():
        numbers[device.process_index] += 1
    if len(set(numbers)) > 1:
        raise ConfigError(
            f"--distributed: processes must have equally many devices, got {', '.join(map(str, numbers))}; on CPUs set "
            "JAX_NUM_CPU_DEVICES"
        )


def decide(choose: Callable[[], Value]) -> Value:
    """`choose()` of process 0, a JSON value, on all processes; the others do not call it."""
    if count() == 1:
        return choose()
    key = f"{DECISIONS}/{next(_numbers)}"
    if is_primary():
        text = json.dumps(choose())
        coordination_client().key_value_set(key, text)
    else:
        text = _wait_for(key)
    value: Value = json.loads(text)
    return value


def _wait_for(key: str) -> str:
    """The text of `key` in the key-value store, once it is there."""
    while True:
        try:
            return str(coordination_client().blocking_key_value_get(key, round(1e3 * POLL_SECONDS)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


def decide_each(items: Iterable[Value]) -> Generator[Value]:
    """The `items` of process 0, JSON values, one after another on all processes."""
    iterator = iter(items)
    while (item := decide(lambda: next(iterator, None))) is not None:
        yield item


def wait_for_all() -> None:
    """Waits until all processes are here; then no decision is awaited any more, so the store is emptied."""
    if count() == 1:
        return
    coordination_client().wait_at_barrier(f"{BARRIERS}/{next(_numbers)}", round(1e3 * BARRIER_SECONDS))
    if is_primary():
        coordination_client().key_value_delete(f"{DECISIONS}/")
