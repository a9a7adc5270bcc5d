"""Shifted inputs (the paper's introductory example, Sec. 3.3)."""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, example_owners
from fedsim.core.settings import POSITIVE, Bounds
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec


def shift(
    *,
    scale: Annotated[
        float, Bounds(**POSITIVE), "standard deviation of the shifts, relative to that of the inputs"
    ] = 2.0,
) -> Corruption:
    """Shifts all inputs of a corrupted client by one vector, drawn for each client.

    Its coordinates are normal, with `scale` times the standard deviation of the inputs. It is that of
    all clients' inputs together, so there is no `change_inputs`.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        shifts = scale * jnp.std(data.x) * jax.random.normal(key, (corrupted.size, *spec.shape))
        shifts = jnp.where(expand_like(corrupted, shifts), shifts, 0)
        return data._replace(x=(data.x + shifts[example_owners(data)]).astype(data.x.dtype))

    return Corruption(apply, frozenset({"x"}), _validate)


def _validate(spec: DataSpec) -> None:
    if spec.dtype != "float32":
        raise ValueError(f"inputs must be float32, got {spec.dtype}")
