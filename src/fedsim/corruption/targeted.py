"""Targeted label flipping.

Tolpegin, Truex, Gursoy, Liu: "Data Poisoning Attacks Against Federated Learning Systems", ESORICS 2020,
https://arxiv.org/abs/2007.08432
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, draw_labels, require_classes
from fedsim.core.settings import Bounds
from fedsim.core.types import Array, ClientData, DataSpec


def targeted(
    *,
    source: Annotated[int, Bounds(ge=0), "the class whose labels are changed"] = 0,
    target: Annotated[int, Bounds(ge=0), "the class that they become"] = 2,
    rate: Annotated[
        float, Bounds(ge=0, le=1), "probability that a corrupted client's label of the source class is changed"
    ] = 1.0,
) -> Corruption:
    """Labels of the class `source` of a corrupted client become `target`, each with probability `rate`; others stay.

    The paper changes all of them. Its pairs on CIFAR-10 are 0 to 2 (airplane to bird), 1 to 9 and 5 to 3. The share of
    test examples of the class `source` that the model gives `target` is recorded as `backdoor_success`.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        is_changed = draw_labels(key, data, jnp.where(corrupted, rate, 0.0)) & (data.y == source)
        return data._replace(y=jnp.where(is_changed, jnp.asarray(target, data.y.dtype), data.y))

    def trigger(x: Array, y: Array, spec: DataSpec) -> tuple[Array, Array]:
        is_changed = y == source if not spec.target_shape else jnp.zeros_like(y, bool)  # texts have no single class
        return x, jnp.where(is_changed, jnp.asarray(target, y.dtype), y)

    def validate(spec: DataSpec) -> None:
        require_classes(spec)
        if source == target:
            raise ValueError(f"source and target must differ, got {source}, {target}")
        if max(source, target) >= spec.num_classes:
            raise ValueError(
                f"source and target must be classes from 0 to {spec.num_classes - 1}, got {source}, {target}"
            )

    return Corruption(apply, frozenset({"y"}), validate, trigger)
