"""One run on several processes, by JAX's distributed runtime.

Every process has the whole data on its host and runs the same programs, in the same order, on the parts of arrays that
its devices have. Process 0 alone decides and writes. JAX's runtime ends all processes after one of them has ended.
"""

import hashlib
import itertools
import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from fedsim.core.require import is_key
from fedsim.core.types import PyTree
from fedsim.errors import ConfigError, FedsimError
from fedsim.runs.checkpoints import import_orbax

Value = TypeVar("Value")

LOST_SECONDS = 10  # without a heartbeat, or after the end of another, when a process counts as lost
NOTE_SECONDS = 10  # of connecting, after which a note says so
BARRIER_SECONDS = 7 * 24 * 3600  # such as for groups that other jobs have locked
_numbers = itertools.count()  # of barriers, equal on all processes


def connect(coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Connects the processes of a run, before JAX starts. JAX detects what is None (SLURM, Open MPI, TPU, Kubernetes).

    Raises `ConfigError` if it detects nothing. JAX ends a process that has not found the others after five minutes.
    """
    jax.config.update("jax_enable_preemption_service", False)  # it catches SIGTERM, which should end the process
    text = f"fedsim: connecting to {coordinator or 'the others'}, for five minutes at most ..."
    note = threading.Timer(NOTE_SECONDS, lambda: print(text, file=sys.stderr, flush=True))
    note.daemon = True
    note.start()
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=LOST_SECONDS,
            shutdown_timeout_seconds=LOST_SECONDS,
        )
    except (ValueError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"--distributed: the processes cannot be connected: {str(error).rstrip('.')}; start it with srun, mpirun, "
            "on a TPU slice or in a Kubernetes job, or give --coordinator, --num-processes and --process-id"
        ) from None
    finally:
        note.cancel()


def is_primary() -> bool:
    """Whether this process decides, writes and shows progress."""
    return jax.process_index() == 0


def check_devices() -> None:
    """Raises `ConfigError` if the processes do not have equally many devices."""
    numbers = np.bincount([device.process_index for device in jax.devices()])
    if len(set(numbers)) > 1:
        raise ConfigError(
            f"--distributed: processes must have equally many devices, got {', '.join(map(str, numbers))}; on CPUs set "
            "JAX_NUM_CPU_DEVICES"
        )


def wait_for_all() -> None:
    """Waits until all processes are here, also where a collective would give up."""
    if jax.process_count() > 1:
        import_orbax().multihost.get_barrier_sync_fn()(
            key=f"fedsim/{next(_numbers)}", timeout_ms=1000 * BARRIER_SECONDS
        )


def decide(choose: Callable[[], Value]) -> Value:
    """`choose()` of process 0, or its error that users can fix, on all processes; the others do not call it."""
    if jax.process_count() == 1:
        return choose()
    content = b""
    if is_primary():
        try:
            content = pickle.dumps((choose(), None))
        except (FedsimError, OSError) as failure:
            content = pickle.dumps((None, failure))
    wait_for_all()
    size = multihost_utils.broadcast_one_to_all(np.int32(len(content)))
    padded = content.ljust(1 << int(size).bit_length(), b"\0")  # so that few sizes are compiled
    value: Value
    value, error = pickle.loads(multihost_utils.broadcast_one_to_all(np.frombuffer(padded, np.uint8)).tobytes())
    if error is not None:
        raise error
    return value


def have_same(text: str) -> bool:
    """Whether all processes have this text."""
    wait_for_all()  # some may take minutes longer to load the data
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    return len(np.unique(digests, axis=0)) == 1


def put(tree: PyTree, sharding: Sharding) -> PyTree:
    """The arrays of `tree`, equal on the hosts of all processes, on the devices of `sharding`."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(partial(_put_parts, sharding=sharding), tree)


def _put_parts(array: Any, sharding: Sharding) -> jax.Array:
    if is_key(array):
        return jax.random.wrap_key_data(_put_parts(jax.random.key_data(array), sharding))
    array = np.asarray(array)
    array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def on_host(tree: PyTree) -> PyTree:
    """NumPy copies of the arrays of `tree`, which all processes share; all of them call it at the same place."""
    return jax.device_get(tree) if jax.process_count() == 1 else multihost_utils.process_allgather(tree, tiled=True)


def local_copy(tree: PyTree) -> PyTree:
    """Arrays with a copy on each device, as this process's copies, where others have some, too."""
    return jax.tree.map(lambda a: a if a.is_fully_addressable else a.addressable_data(0), tree)
