"""The arrays of a model by name, as they are saved."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedsim.core.types import Variables

STATISTICS = "statistics"


def by_path(variables: Variables) -> dict[str, Any]:
    """A model's arrays by path, such as "Dense_0/kernel" or "statistics/..."; a plug-in's need not be a dict."""
    flat, _ = jax.tree.flatten_with_path(_as_dict(variables))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}


def from_paths(arrays: Mapping[str, np.ndarray], like: Variables) -> Variables:
    """The model with these arrays by path, of the structure of `like`."""
    leaves = [arrays[name] for name in by_path(like)]
    tree: dict[str, Any] = jax.tree.unflatten(jax.tree.structure(_as_dict(like)), leaves)
    statistics = tree.pop(STATISTICS) if like.statistics else like.statistics
    return Variables(tree if isinstance(like.params, dict) else tree["params"], statistics)


def _as_dict(variables: Variables) -> dict[str, Any]:
    params, statistics = variables
    tree = params if isinstance(params, dict) else {"params": params}
    return tree | ({STATISTICS: statistics} if statistics else {})
