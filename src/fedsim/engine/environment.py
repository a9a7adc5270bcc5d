"""What rows depend on besides the configuration: versions, device, source code, data."""

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.datasets.portions import portions
from fedsim.engine import devices
from fedsim.version import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")  # whose versions are recorded
SOURCES = ("core", "aggregators", "attacks", "corruption", "algorithms", "models", "config", "datasets", "engine")


def environment() -> dict[str, Any]:
    """Versions, device and source of this process: rows may differ in their last digits if these do."""
    versions = {"fedsim": __version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in PACKAGES}
    return {"versions": versions, "device": devices.describe(), "source": source_digests()}


def dataset_digest(dataset: FederatedDataset) -> str:
    """A digest that changes with any example, the kind of the data, or the clients of test examples."""
    digest = hashlib.blake2b(f"{dataset.num_classes} {dataset.inputs}".encode(), digest_size=8)
    held_out = jax.tree.leaves((dataset.root, dataset.validation, dataset.test_clients))
    for array in map(np.asarray, (*jax.tree.leaves(dataset.train), dataset.x_test, dataset.y_test, *held_out)):
        digest.update(f"{array.dtype}{array.shape}".encode())
        for portion in portions(array):
            digest.update(np.ascontiguousarray(array[portion]).data)
    return digest.hexdigest()


@cache
def source_digests() -> dict[str, str]:
    """{package: digest} of the source files that rows depend on, as they are at the first call."""
    root = Path(__file__).parents[1]
    return {name: folder_digest(root / name) for name in SOURCES}


def folder_digest(folder: Path) -> str:
    """A digest that changes with the name or content of any Python file in `folder`."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()
