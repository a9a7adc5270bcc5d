"""Pair flipping: label noise between neighboring classes.

Han, Yao, Yu, Niu, Xu, Hu, Tsang, Sugiyama: "Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy
Labels", NeurIPS 2018, https://arxiv.org/abs/1804.06872
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, draw_labels, require_classes
from fedsim.core.settings import Bounds
from fedsim.core.types import Array, ClientData, DataSpec


def pairflip(
    *, rate: Annotated[float, Bounds(ge=0, le=1), "probability that a corrupted client's label is changed"] = 0.45
) -> Corruption:
    """Each label of a corrupted client becomes, with probability `rate`, the next class: y -> (y + 1) mod C.

    Labels are drawn independently: the fraction is `rate` in expectation, not in each client.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        is_changed = draw_labels(key, data, jnp.where(corrupted, rate, 0.0))
        return data._replace(y=jnp.where(is_changed, (data.y + 1) % spec.num_classes, data.y))

    return Corruption(apply, frozenset({"y"}), require_classes)
