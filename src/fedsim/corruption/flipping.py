"""Flipped labels (the paper, "Experimental Setup")."""

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, example_owners, require_classes
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec


def flipping() -> Corruption:
    """All labels of a corrupted client become one class, drawn at random for each client.

    >>> import jax, numpy as np, fedsim
    >>> y, owner = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    >>> data = fedsim.from_arrays(np.eye(6, dtype=np.float32), y, owner, np.eye(6, dtype=np.float32), y)
    >>> corruption = fedsim.corruption.flipping()
    >>> fedsim.corrupt(corruption, jax.random.key(0), data.train, data.spec, 1, client_ids=[1]).y.tolist()
    [0, 1, 2, 1, 1, 1]
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        del spec
        owner = example_owners(data)
        classes = jax.random.randint(key, corrupted.shape, 0, jnp.max(data.y) + 1, data.y.dtype)
        is_corrupted, new_labels = (expand_like(values[owner], data.y) for values in (corrupted, classes))
        return data._replace(y=jnp.where(is_corrupted, new_labels, data.y))

    return Corruption(apply, frozenset({"y"}), require_classes)
