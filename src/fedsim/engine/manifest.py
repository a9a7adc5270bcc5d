"""The contents of a run folder's manifest: what the rows depend on."""

import hashlib
import platform
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from fedsim.config.components import flatten
from fedsim.config.roles import data_choice
from fedsim.core.types import FederatedDataset
from fedsim.datasets.portions import portions
from fedsim.engine import devices, factories
from fedsim.engine.layout import Layout
from fedsim.engine.plan import Group, Plan
from fedsim.version import __version__

Manifest: TypeAlias = dict[str, Any]

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")  # whose versions are recorded
SOURCES = ("core", "aggregators", "attacks", "corruption", "algorithms", "models", "config", "datasets", "engine")
ENVIRONMENT = ("versions", "device", "source")  # keys of the manifest; rows may differ if these do


def make_manifest(plan: Plan) -> Manifest:
    """The manifest of a plan before its first run."""
    return {
        "status": "incomplete",
        "config": plan.experiment.dump(),
        "versions": {"fedsim": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        "device": devices.describe(),
        "source": source_digests(),
        "data": [*map(dataset_digest, plan.datasets.values()), *_memory_digests(plan.experiment.data)],
        "claims": plan.experiment.claims,  # which the report checks
        "files": factories.plugin_files(plan.runs),
        "runs": [flatten(config) for config in plan.runs],
        "num_clients": [plan.datasets[data_choice(config)].num_clients for config in plan.runs],
        "plan": dump_groups(plan.groups),
    }


def dump_groups(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """The groups of a plan as a manifest has them."""
    return [{"runs": list(group.runs), "layout": asdict(group.layout)} for group in groups]


def read_groups(manifest: Manifest) -> list[Group]:
    """The groups of a manifest's plan."""
    return [Group(tuple(entry["runs"]), Layout(**entry["layout"])) for entry in manifest["plan"]]


def dataset_digest(dataset: FederatedDataset) -> str:
    """A digest that changes with any example."""
    digest = hashlib.blake2b(digest_size=8)
    held_out = jax.tree.leaves((dataset.root, dataset.validation))
    for array in map(np.asarray, (*jax.tree.leaves(dataset.train), dataset.x_test, dataset.y_test, *held_out)):
        digest.update(f"{array.dtype}{array.shape}".encode())
        for portion in portions(array):
            digest.update(np.ascontiguousarray(array[portion]).data)
    return digest.hexdigest()


def _memory_digests(dataset: FederatedDataset | None) -> list[str]:
    """A digest of what no key says of a data set in memory, besides its examples: their kind, and the test clients."""
    if dataset is None:
        return []
    digest = hashlib.blake2b(f"{dataset.num_classes} {dataset.inputs}".encode(), digest_size=8)
    if dataset.test_clients is not None:
        digest.update(np.ascontiguousarray(dataset.test_clients).data)
    return [digest.hexdigest()]


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
