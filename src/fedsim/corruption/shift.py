"""Shifted inputs (the paper's introductory example, Sec. 3.3)."""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import owners
from fedsim.core.settings import POSITIVE, Bounds
from fedsim.core.trees import per_client
from fedsim.core.types import Array, ClientData, Corruption, DataSpec


def shift(
    *,
    scale: Annotated[float, Bounds(**POSITIVE), "standard deviation of a shift, in those of the inputs"] = 2.0,
) -> Corruption:
    """All inputs of a corrupted client are moved by one vector, drawn for each client.

    Its elements are normal, with `scale` times the standard deviation of the inputs.
    """

    def apply(key: Array, data: ClientData, corrupted: Array, spec: DataSpec) -> ClientData:
        moves = scale * jnp.std(data.x) * jax.random.normal(key, (corrupted.size, *spec.shape))
        moves = jnp.where(per_client(corrupted, moves), moves, 0)
        return data._replace(x=(data.x + moves[owners(data)]).astype(data.x.dtype))

    return Corruption(apply, frozenset({"x"}), _problem)


def _problem(spec: DataSpec) -> str | None:
    return None if spec.dtype == "float32" else f"is for float32 inputs, and these are {spec.dtype}"
