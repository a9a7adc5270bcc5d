"""Flipped labels (the paper, "Experimental Setup")."""

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import owners, wants_classes
from fedsim.core.trees import per_client
from fedsim.core.types import Array, ClientData, Corruption, DataSpec


def flipping() -> Corruption:
    """All labels of a corrupted client become one class, drawn for each client."""

    def apply(key: Array, data: ClientData, corrupted: Array, spec: DataSpec) -> ClientData:
        del spec
        owner = owners(data)
        classes = jax.random.randint(key, corrupted.shape, 0, jnp.max(data.y) + 1, data.y.dtype)
        chosen, labels = (per_client(values[owner], data.y) for values in (corrupted, classes))
        return data._replace(y=jnp.where(chosen, labels, data.y))

    return Corruption(apply, frozenset({"y"}), wants_classes)
