"""The cores of a CPU as devices of JAX."""

import os

import jax

MOST = 8  # each device has a copy of the data
CHOSEN_BY = ("JAX_NUM_CPU_DEVICES", "xla_force_host_platform_device_count")


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
