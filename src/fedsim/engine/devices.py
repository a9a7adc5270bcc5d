"""The devices that JAX runs on: a CPU's cores, and what is written down of them."""

import os
import re
from pathlib import Path
from typing import Any

import jax

from fedsim.errors import ConfigError

MOST = 8  # each device has a copy of the data
CHOSEN_BY = ("JAX_NUM_CPU_DEVICES", "xla_force_host_platform_device_count")
LLVM_LEVEL = "xla_backend_optimization_level"
VECTORS = re.compile("avx|fma|amx|asimd|sve")  # instructions that XLA chooses by


def one_per_core() -> None:
    """Makes each core of the CPU a device, up to 8, where JAX has not started and nobody has chosen a number.

    One device spreads each operation over all cores; small operations, and what runs between large ones, leave all but
    one idle. With a device a core, each trains clients or runs of its own. JAX_NUM_CPU_DEVICES chooses another number.
    """
    if CHOSEN_BY[0] in os.environ or CHOSEN_BY[1] in os.environ.get("XLA_FLAGS", ""):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        jax.config.update("jax_num_cpu_devices", min(cores, MOST))
    except RuntimeError:  # JAX has started
        return


def backend() -> str:
    """The kind of the devices; `ConfigError` where JAX finds none of the kind that it is told to use."""
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # JAX's own words differ by version
        reason = f": {error}" if str(error) else ""
        asked = os.environ.get("JAX_PLATFORMS") or "accelerators"
        raise ConfigError(
            f"JAX finds no {asked} here{reason}; set JAX_PLATFORMS=cpu, or install what it needs, such as "
            "'fedsim[cuda]' for cuda"
        ) from None


def compiler_options(device: jax.Device) -> dict[str, str | bool]:
    """XLA's options for the programs of `device`; XLA_FLAGS may choose another level for LLVM.

    On a CPU level 1 compiles sooner than level 3, XLA's own, and the programs are as fast; those of level 0 are not.
    """
    return {LLVM_LEVEL: "1"} if device.platform == "cpu" and LLVM_LEVEL not in os.environ.get("XLA_FLAGS", "") else {}


def describe() -> dict[str, Any]:
    """Platform, kind and number of the devices; of CPUs the model, and its vector instructions.

    A run that goes on elsewhere says what differs: last digits may depend on it.
    """
    device = jax.devices()[0]
    found = {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()}
    return found | _cpu() if device.platform == "cpu" else found


def _cpu() -> dict[str, str]:
    """Where Linux tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    properties = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    features = (properties.get("flags") or properties.get("Features", "")).split()
    found = {"kind": properties.get("model name"), "vectors": " ".join(sorted(filter(VECTORS.match, features)))}
    return {key: value for key, value in found.items() if value}
