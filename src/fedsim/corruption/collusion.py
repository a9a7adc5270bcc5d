"""Collusion: corrupted clients agree on a class (the paper, Sec. 6)."""

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, example_owners, require_classes
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec


def collusion() -> Corruption:
    """All labels of all corrupted clients become one class, drawn at random."""

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        del spec
        new_label = jax.random.randint(key, (), 0, jnp.max(data.y) + 1, data.y.dtype)
        return data._replace(y=jnp.where(expand_like(corrupted[example_owners(data)], data.y), new_label, data.y))

    return Corruption(apply, frozenset({"y"}), require_classes)
