"""Collusion: corrupted clients agree on a class (the paper, Sec. 6)."""

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import owners, wants_classes
from fedsim.core.trees import per_client
from fedsim.core.types import Array, ClientData, Corruption, DataSpec


def collusion() -> Corruption:
    """All labels of all corrupted clients become the same class."""

    def apply(key: Array, data: ClientData, corrupted: Array, spec: DataSpec) -> ClientData:
        del spec
        the_class = jax.random.randint(key, (), 0, jnp.max(data.y) + 1, data.y.dtype)
        return data._replace(y=jnp.where(per_client(corrupted[owners(data)], data.y), the_class, data.y))

    return Corruption(apply, frozenset({"y"}), wants_classes)
