"""What compiling has told is kept between starts: programs in JAX's own cache, forecasts beside them."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import jax

from fedsim.datasets import cache
from fedsim.engine import devices

Value = TypeVar("Value")

MOST_BYTES = 2**30  # what has not been used for longest goes
LEAST_SECONDS = 0.1  # that compiling took


def keep_programs(wanted: bool = True) -> None:
    """Makes JAX keep what it compiles, where nobody has chosen another place by JAX_COMPILATION_CACHE_DIR.

    A folder a device: what is compiled for one CPU may not run on another. JAX_ENABLE_COMPILATION_CACHE=false keeps
    nothing, and neither does this where it is not `wanted`, wherever programs may have been kept.
    """
    if not wanted:
        jax.config.update("jax_enable_compilation_cache", False)
    chosen = jax.config.values
    if chosen["jax_compilation_cache_dir"] is not None or not chosen["jax_enable_compilation_cache"]:
        return
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder()))
    if "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ:
        jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def folder() -> Path:
    """Of the programs for the devices at hand."""
    kind = {name: value for name, value in devices.describe().items() if name != "count"}
    digest = hashlib.blake2b(json.dumps(kind, sort_keys=True).encode(), digest_size=4).hexdigest()
    return cache.directory() / "programs" / f"{jax.default_backend()}-{digest}"


def remembered(key: str, make: Callable[[], Value]) -> Value:
    """`make()`, a value of JSON, or what it was when it was last asked for with this `key`."""
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    path = cache.directory() / "programs" / "forecasts" / f"{digest}.json"
    try:
        found: Value = json.loads(path.read_text())
        return found
    except (OSError, ValueError):
        value = make()
        with contextlib.suppress(OSError):  # a folder that cannot be written costs time alone
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(value))
            partial.replace(path)
        return value
