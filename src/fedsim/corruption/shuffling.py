"""Shuffled labels (the paper, "Experimental Setup")."""

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import owners
from fedsim.core.trees import per_client
from fedsim.core.types import Array, ClientData, Corruption, DataSpec


def shuffling() -> Corruption:
    """A corrupted client's labels are permuted among its examples."""

    def apply(key: Array, data: ClientData, corrupted: Array, spec: DataSpec) -> ClientData:
        del spec
        owner = owners(data)
        order = jnp.lexsort((jax.random.uniform(key, owner.shape), owner))
        return data._replace(y=jnp.where(per_client(corrupted[owner], data.y), data.y[order], data.y))

    return Corruption(apply, frozenset({"y"}))
