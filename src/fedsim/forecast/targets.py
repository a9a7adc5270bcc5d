"""Devices that programs can be compiled for without having one: what they are, and JAX's descriptions of them.

JAX compiles for a TPU with libtpu and for an NVIDIA GPU with its CUDA plugin on any machine.
"""

import importlib.util
import os
import re
from typing import NamedTuple

import jax

from fedsim.engine.devices import TPU_SETTINGS, enable_program_cache
from fedsim.engine.layout import Machine
from fedsim.engine.memory import GIBIBYTE
from fedsim.errors import ConfigError, pip_install

GPU_SHARE = 0.75  # of a GPU's memory, which JAX takes unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise
MEMORY = {  # of a device in bytes: what a TPU's compiler hands out, and all of a GPU's SXM module
    "v5e": int(15.75 * GIBIBYTE),
    "v5p": int(95.74 * GIBIBYTE),
    "v6e": int(31.25 * GIBIBYTE),
    "a100": 85_100_068_864,
    "h100": 84_978_434_048,
    "h200": 151_397_597_184,
}
TPU_SHAPES = {  # of a slice, by its number of chips
    "v5e": {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8"},
    "v5p": {1: "1x1x1", 4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"},
    "v6e": {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8"},
}
MAX_GPUS = 8  # of a node
CHIPS_PER_HOST = 4  # of a TPU slice; a slice of up to 8 chips of v5e or v6e may have a single host
SINGLE_HOST_CHIPS = {"v5e": 8, "v5p": 4, "v6e": 8}

# What XLA's GPU compiler has to know (stream_executor.GpuTargetConfigProto).
GPU_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: {threads}
  shared_memory_per_block: 49152 shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin}
  core_count: {cores} fpus_per_core: {fpus} clock_rate_ghz: {clock} l2_cache_size: {l2}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth} device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} minor: {minor} {features} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
device_description_str: "{name}"
"""
ON_CHIP = {  # by compute capability: threads and bytes of shared memory of a multiprocessor (CUDA Programming Guide)
    "7.0": (2048, 98304),
    "7.5": (1024, 65536),
    "8.0": (2048, 167936),
    "8.6": (1536, 102400),
    "8.9": (1536, 102400),
    "9.0": (2048, 233472),
    "10.0": (2048, 233472),
    "12.0": (1536, 102400),
}
UNKNOWN = {"cores": "100", "fpus": "128", "clock": "1.5", "l2": "41943040", "bandwidth": "1000000000000"}
"""Of a GPU that is known by capability and memory alone. The compiler weighs alternatives by them."""
AMPERE = {"cores": "108", "fpus": "64", "clock": "1.41", "l2": "41943040", "capability": "8.0"}
HOPPER = {"cores": "132", "fpus": "128", "clock": "1.98", "l2": "52428800", "capability": "9.0"}
GPU_VALUES = {
    "a100": AMPERE | {"name": "NVIDIA A100-SXM4-80GB", "bandwidth": "2039000000000"},
    "h100": HOPPER | {"name": "NVIDIA H100 80GB HBM3", "bandwidth": "3350000000000"},
    "h200": HOPPER | {"name": "NVIDIA H200", "bandwidth": "4800000000000"},
}
GPU = re.compile(r"sm_?(\d+)(\d)-(\d+)(gi?b)?", re.IGNORECASE)  # capability and memory


class Target(NamedTuple):
    """Devices of a kind."""

    name: str
    """As in `MEMORY`, or a GPU's capability and memory, as "sm_86-24gb"."""
    num_devices: int

    @property
    def memory(self) -> int:
        """Of a device, in bytes."""
        gpu = GPU.fullmatch(self.name)
        return int(gpu[3]) * GIBIBYTE if gpu else MEMORY[self.name]

    @property
    def gpu_config(self) -> str:
        """What XLA's GPU compiler has to know of a GPU."""
        gpu = GPU.fullmatch(self.name)
        values = UNKNOWN | {"name": self.name, "capability": f"{gpu[1]}.{gpu[2]}"} if gpu else GPU_VALUES[self.name]
        major, minor = values["capability"].split(".")
        threads, shared = ON_CHIP[values["capability"]]
        optin = shared if int(major) < 8 else shared - 1024
        features = "feature_extension: ACCELERATED_FEATURES" if int(major) >= 9 else ""
        return GPU_CONFIG.format(
            **values,
            major=major,
            minor=minor,
            threads=threads,
            shared=shared,
            optin=optin,
            features=features,
            memory=self.memory,
        )

    @property
    def machine(self) -> Machine:
        """The devices as a plan sees them, with a process for each host."""
        one_host = self.num_devices <= SINGLE_HOST_CHIPS.get(self.name, MAX_GPUS)
        num_hosts = 1 if one_host else self.num_devices // CHIPS_PER_HOST
        backend, share = ("tpu", 1.0) if self.name in TPU_SHAPES else ("gpu", GPU_SHARE)
        return Machine(backend, self.num_devices, int(share * self.memory), num_hosts)

    def __str__(self) -> str:
        return f"{self.name}:{self.num_devices}" if self.num_devices > 1 else self.name


def parse(text: str) -> Target:
    """The target that `text` names, such as "h100" or "v5e:4". Raises `ConfigError` if there is no such target."""
    name, _, number = text.partition(":")
    if gpu := GPU.fullmatch(name):
        if f"{gpu[1]}.{gpu[2]}" not in ON_CHIP or not int(gpu[3]):
            known = ", ".join(f"sm_{known.replace('.', '')}" for known in ON_CHIP)
            raise ConfigError(f"--target: must be one of {known}, and its memory in GiB, got {text}")
    elif name not in MEMORY:
        raise ConfigError(
            f"--target: must be one of {', '.join(MEMORY)}, or a GPU's compute capability and memory as sm_86-24gb, "
            f"got {text}; add a number of devices as in v5e:4"
        )
    numbers = [str(number) for number in TPU_SHAPES.get(name, range(1, MAX_GPUS + 1))]
    if (number or "1") not in numbers:
        raise ConfigError(f"--target: must be {name} with one of {', '.join(numbers)} devices, got {text}")
    return Target(name, int(number or 1))


def disable_accelerators() -> None:
    """Keeps JAX from looking for accelerators, whose compilers only are here, and from caching their programs."""
    enable_program_cache(False)
    if not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")


def devices(target: Target) -> list[jax.Device]:
    """Devices to compile for. Raises `ConfigError` if the compiler is not installed."""
    from jax.experimental import topologies

    if target.name in TPU_SHAPES:
        if importlib.util.find_spec("libtpu") is None:
            raise ConfigError(f"--target {target}: needs the TPU's compiler; {pip_install('tpu-compile')}")
        for name, value in TPU_SETTINGS.items():
            os.environ.setdefault(name, value)
        shape = f"{target.name}:{TPU_SHAPES[target.name][target.num_devices]}"
        return list(topologies.get_topology_desc(shape, "tpu").devices)
    plugins = ("jax_plugins", *(f"jax_plugins.xla_cuda{cuda}" for cuda in (12, 13)))
    if not (importlib.util.find_spec(plugins[0]) and any(map(importlib.util.find_spec, plugins[1:]))):
        raise ConfigError(f"--target {target}: needs the GPU's compiler; {pip_install('cuda')}")
    options = {"target_config": target.gpu_config, "topology": f"1x1x{target.num_devices}"}
    topology = topologies.get_topology_desc(platform="cuda", **options)
    return list(topology.devices)
