"""The devices that JAX runs on: a CPU's cores, and a description of them for run folders."""

import logging
import os
import re
from pathlib import Path
from typing import Any

import jax

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
