"""The arrays of a model by name, as they are saved."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedsim.core.types import PyTree, Variables

STATISTICS = "statistics"


def by_path(variables: Variables) -> dict[str, Any]:
    """A model's arrays by path, such as "Dense_0/kernel" or "statistics/..."; a plug-in's need not be a dict."""
    params, statistics = variables
    trees: tuple[PyTree, ...] = (
        params if isinstance(params, dict) else {"params": params},
        {STATISTICS: statistics} if statistics else {},
    )
    flat = [leaf for tree in trees for leaf in jax.tree.leaves_with_path(tree)]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}


def from_paths(arrays: Mapping[str, np.ndarray], like: Variables) -> Variables:
    """The model with these arrays by path, of the structure of `like`."""
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in by_path(like)])
