"""Training with the benign clients only (the paper's benign FedAvg, Sec. 5.6)."""

import jax.numpy as jnp

from fedsim.core.corrupt import Corruption
from fedsim.core.types import Array, ClientData, DataSpec


def exclude() -> Corruption:
    """Corrupted clients are excluded: they have no examples."""

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        return data._replace(num_examples=jnp.where(corrupted, 0, data.num_examples))

    return Corruption(apply, frozenset({"num_examples"}))
