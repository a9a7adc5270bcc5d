"""What rows depend on besides the configuration: versions, device, source code, data."""

import hashlib
import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.datasets.portions import portions
from fedsim.engine import devices
from fedsim.errors import RunFolderError
from fedsim.runs.differences import find_differences
from fedsim.runs.groups import GroupFolder
from fedsim.version import __version__

ELSEWHERE = "choose another --out"
MAX_CHANGES = 3  # that a message lists
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


def folder_digest(folder: Path, pattern: str = "**/*.py") -> str:
    """A digest that changes with the name or content of any file in `folder` that matches `pattern`."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(filter(Path.is_file, folder.glob(pattern))):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def check_environment(
    path: Path, known: Sequence[GroupFolder], shown: Sequence[GroupFolder], current: dict[str, Any], is_pending: bool
) -> None:
    """Raises `RunFolderError` if code, versions or devices have changed since the folder's runs were computed.

    `known` are the folder's groups, `shown` those with rows of the plan. If nothing is to be computed, only changed
    code matters.
    """
    is_current = lambda before: before["source"] == current["source"]
    accepted = [before for group in known for before in group.record.environments]
    older = [group for group in shown if not any(map(is_current, group.record.environments))]
    if older or (known and not any(map(is_current, accepted))):
        before = older[-1].record.environments[-1] if older else accepted[-1]
        changed = [f"fedsim/{name}" for name, *_ in find_differences(before["source"], current["source"])]
        to = "compute missing ones" if is_pending else "show its rows"
        raise RunFolderError(
            f"{path}: fedsim's code has changed since its runs were computed ({', '.join(changed)}); add "
            f"--allow-mismatch to {to} all the same, or {ELSEWHERE}"
        )
    if is_pending and accepted and current not in accepted:
        before = next(filter(is_current, reversed(accepted)))
        changes = [f"{key} was {old}, is {new}" for key, old, new in find_differences(before, current)]
        more = [f"and {len(changes) - MAX_CHANGES} more"] if len(changes) > MAX_CHANGES else []
        raise RunFolderError(
            f"{path}: versions or devices have changed since its runs were computed "
            f"({'; '.join([*changes[:MAX_CHANGES], *more])}), so rows may differ in their last digits; add "
            f"--allow-mismatch to compute missing ones all the same, or {ELSEWHERE}"
        )
