"""Flipped labels (the paper, "Experimental Setup"), and clients that agree on one (Sec. 6)."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, example_owners, require_classes
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec


def flipping(
    *,
    to: Annotated[
        Literal["one", "opposite"], "one class, drawn for each client, or from each class y the class C - 1 - y"
    ] = "one",
) -> Corruption:
    """All labels of a corrupted client become one class, drawn at random for each client.

    Or, as label flipping is often defined, a label y of C classes becomes C - 1 - y (Fang, Cao, Jia, Gong: "Local Model
    Poisoning Attacks to Byzantine-Robust Federated Learning", USENIX Security 2020, https://arxiv.org/abs/1911.11815).

    >>> import jax, numpy as np, fedsim
    >>> y, owner = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    >>> data = fedsim.from_arrays(np.eye(6, dtype=np.float32), y, owner, np.eye(6, dtype=np.float32), y)
    >>> corruption = fedsim.corruption.flipping()
    >>> fedsim.corrupt(corruption, jax.random.key(0), data.train, data.spec, 1, client_ids=[1]).y.tolist()
    [0, 1, 2, 1, 1, 1]
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        of_examples = lambda values: expand_like(values[example_owners(data)], data.y)
        new_labels = spec.num_classes - 1 - data.y
        if to == "one":
            classes = jax.random.randint(key, corrupted.shape, 0, jnp.max(data.y) + 1, data.y.dtype)
            new_labels = of_examples(classes)
        return data._replace(y=jnp.where(of_examples(corrupted), new_labels, data.y))

    return Corruption(apply, frozenset({"y"}), require_classes)


def collusion() -> Corruption:
    """All labels of all corrupted clients become one class, drawn at random."""

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        new_label = jax.random.randint(key, (), 0, jnp.max(data.y) + 1, data.y.dtype)
        return data._replace(y=jnp.where(expand_like(corrupted[example_owners(data)], data.y), new_label, data.y))

    return Corruption(apply, frozenset({"y"}), require_classes)
