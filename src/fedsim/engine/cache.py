"""What is kept between starts to compile less: programs in JAX's cache."""

import hashlib
import json
import os
from pathlib import Path

import jax

from fedsim.datasets import cache
from fedsim.engine import devices

MAX_BYTES = 2**30  # then JAX deletes the programs that were not used for longest
MIN_SECONDS = 0.1  # of compiling, below which a program is not kept


def enable_program_cache(enabled: bool = True) -> None:
    """Makes JAX keep compiled programs in `folder`, unless JAX_COMPILATION_CACHE_DIR names another one.

    With `enabled` false, or JAX_ENABLE_COMPILATION_CACHE=false, JAX keeps none and reads none.
    """
    if not enabled:
        jax.config.update("jax_enable_compilation_cache", False)
    options = jax.config.values
    if options["jax_compilation_cache_dir"] is not None or not options["jax_enable_compilation_cache"]:
        return
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder()))
    if "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ:
        jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)


def folder() -> Path:
    """The folder of programs for the devices of this machine; another CPU may not run them."""
    kind = {name: value for name, value in devices.describe().items() if name != "count"}
    digest = hashlib.blake2b(json.dumps(kind, sort_keys=True).encode(), digest_size=4).hexdigest()
    return cache.directory() / "programs" / f"{jax.default_backend()}-{digest}"
