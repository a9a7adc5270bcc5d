"""Shuffled labels (the paper, "Experimental Setup")."""

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, example_owners
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec


def shuffling() -> Corruption:
    """Permutes a corrupted client's labels among its examples.

    >>> import jax, numpy as np, fedsim
    >>> y, owner = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    >>> data = fedsim.from_arrays(np.eye(6, dtype=np.float32), y, owner, np.eye(6, dtype=np.float32), y)
    >>> corruption = fedsim.corruption.shuffling()
    >>> fedsim.corrupt(corruption, jax.random.key(0), data.train, data.spec, 1, client_ids=[1]).y.tolist()
    [0, 1, 2, 2, 1, 0]
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        owner = example_owners(data)
        order = jnp.lexsort((jax.random.uniform(key, owner.shape), owner))
        return data._replace(y=jnp.where(expand_like(corrupted[owner], data.y), data.y[order], data.y))

    return Corruption(apply, frozenset({"y"}))
