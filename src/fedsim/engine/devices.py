"""The devices that JAX runs on: a CPU's cores, their free memory, the cache of their programs, a description."""

import hashlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import jax

from fedsim import host_memory
from fedsim.datasets import cache
from fedsim.errors import ConfigError, pip_install

MAX_DEVICES = 8  # each device has a copy of the data
DEVICE_OPTIONS = ("JAX_NUM_CPU_DEVICES", "xla_force_host_platform_device_count")
LLVM_LEVEL = "xla_backend_optimization_level"
TPU_SETTINGS = {  # else libtpu looks for TPUs of this machine, and allows one process at a time
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
GOOGLE = "0x1ae0"  # the PCI vendor of TPUs
MAX_CACHE_BYTES = 2**30  # of compiled programs; then JAX deletes those that were not used for longest
MIN_CACHED_SECONDS = 0.1  # of compiling, below which a program is not kept
VECTORS = re.compile("avx|fma|amx|asimd|sve")  # instructions that XLA chooses by


def use_one_per_core() -> None:
    """Makes each core of the CPU a device, up to 8, unless JAX has started or the user has set the number of devices.

    A single device spreads each operation over all cores, and small operations leave all but one core idle. With a
    device for each core, each trains other clients or runs. JAX_NUM_CPU_DEVICES sets another number.
    """
    _silence_libtpu()
    logging.getLogger("jax._src.xla_bridge").addFilter(_shorten_traceback)
    if DEVICE_OPTIONS[0] in os.environ or DEVICE_OPTIONS[1] in os.environ.get("XLA_FLAGS", ""):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        jax.config.update("jax_num_cpu_devices", min(cores, MAX_DEVICES))
    except RuntimeError:  # JAX has started
        return


def _silence_libtpu() -> None:
    """Keeps libtpu, which also compiles for TPUs elsewhere, from reporting at length that this machine has none."""
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    if any(vendor.read_text().strip() == GOOGLE for vendor in vendors):
        return
    for name, value in TPU_SETTINGS.items():
        os.environ.setdefault(name, value)


def _shorten_traceback(record: logging.LogRecord) -> bool:
    """Makes one line of JAX's report on a plugin without its device, such as CUDA's on a login node."""
    if record.exc_info and record.exc_info[1]:
        record.msg = f"{record.getMessage()}: {' '.join(str(record.exc_info[1]).split())}"
        record.args, record.exc_info = None, None
    return True


def backend() -> str:
    """The kind of the devices. Raises `ConfigError` if JAX finds none of the kind in JAX_PLATFORMS."""
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # depends on JAX's version
        reason = f": {error}" if str(error) else ""
        platforms = os.environ.get("JAX_PLATFORMS") or "accelerators"
        raise ConfigError(
            f"JAX finds no {platforms} here{reason}; set JAX_PLATFORMS=cpu, or install what it needs: for "
            f"cuda, {pip_install('cuda')}"
        ) from None


def compiler_options(device: jax.Device) -> dict[str, str | bool]:
    """XLA's options for programs of `device`.

    On a CPU, LLVM's level 1 compiles faster than XLA's default, level 3, and the programs are as fast; those of level 0
    are slower. XLA_FLAGS may set another level.
    """
    return {LLVM_LEVEL: "1"} if device.platform == "cpu" and LLVM_LEVEL not in os.environ.get("XLA_FLAGS", "") else {}


def describe() -> dict[str, Any]:
    """Platform, kind and number of the devices; for a CPU also its vector instructions, if the system tells.

    Raises `ConfigError` as `backend` does.
    """
    backend()
    device = jax.devices()[0]
    description = {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()}
    return description | (_describe_cpu() if device.platform == "cpu" else {})


def _describe_cpu() -> dict[str, str]:
    """Model and vector instructions of the CPU, on which last digits may depend; empty if this is not Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    properties = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    features = (properties.get("flags") or properties.get("Features", "")).split()
    vectors = " ".join(sorted(filter(VECTORS.match, features)))
    return {key: value for key, value in (("kind", properties.get("model name")), ("vectors", vectors)) if value}


def enable_program_cache(enabled: bool = True) -> None:
    """Makes JAX keep compiled programs in `program_cache_folder`, unless JAX_COMPILATION_CACHE_DIR names another one.

    With `enabled` false, or JAX_ENABLE_COMPILATION_CACHE=false, JAX keeps none and reads none.
    """
    if not enabled:
        jax.config.update("jax_enable_compilation_cache", False)
    options = jax.config.values
    if options["jax_compilation_cache_dir"] is not None or not options["jax_enable_compilation_cache"]:
        return
    try:
        program_cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(program_cache_folder()))
    if "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ:
        jax.config.update("jax_compilation_cache_max_size", MAX_CACHE_BYTES)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_CACHED_SECONDS)


def program_cache_folder() -> Path:
    """The folder of programs for the devices of this machine; another CPU may not run them."""
    kind = {name: value for name, value in describe().items() if name != "count"}
    digest = hashlib.blake2b(json.dumps(kind, sort_keys=True).encode(), digest_size=4).hexdigest()
    return cache.directory() / "programs" / f"{jax.default_backend()}-{digest}"


def free_bytes() -> int:
    """Bytes that are free on a device of this process; devices of a CPU share its memory, or what a limit leaves."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    return host_memory.free_bytes() // jax.local_device_count()
