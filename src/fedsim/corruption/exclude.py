"""Training with the benign clients only (the paper's benign FedAvg, Sec. 5.6)."""

import jax.numpy as jnp

from fedsim.core.types import Array, ClientData, Corruption, DataSpec


def exclude() -> Corruption:
    """Corrupted clients are out of the game."""

    def apply(key: Array, data: ClientData, corrupted: Array, spec: DataSpec) -> ClientData:
        del key, spec
        return data._replace(counts=jnp.where(corrupted, 0, data.counts))

    return Corruption(apply, frozenset({"counts"}))
