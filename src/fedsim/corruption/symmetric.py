"""Symmetric label noise.

Van Rooyen, Menon, Williamson: "Learning with Symmetric Label Noise: The Importance of Being Unhinged", NeurIPS 2015,
https://arxiv.org/abs/1505.07634; with these rates in Han et al.: "Co-teaching: Robust Training of Deep Neural Networks
with Extremely Noisy Labels", NeurIPS 2018, https://arxiv.org/abs/1804.06872
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.core.corrupt import Corruption, draw_labels, require_classes
from fedsim.core.settings import Bounds
from fedsim.core.types import Array, ClientData, DataSpec

NewLabel = Literal["other", "any"]
MEANING = "a changed label: one of the C - 1 other classes, or any of all C, the same one included"


def symmetric(
    *,
    rate: Annotated[float, Bounds(ge=0, le=1), "probability that a corrupted client's label is changed"] = 0.5,
    new_label: Annotated[NewLabel, MEANING] = "other",
) -> Corruption:
    """Each label of a corrupted client becomes, with probability `rate`, another class, drawn uniformly.

    P(c -> c) = 1 - rate and P(c -> d) = rate / (C - 1). With "any", P(c -> d) = rate / C, and (1 - 1 / C) rate of the
    labels are wrong. Labels are drawn independently: the fraction is `rate` in expectation, not in each client.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        rates = jnp.where(corrupted, rate, 0.0)
        return data._replace(y=resample_labels(key, data, rates, spec, new_label))

    return Corruption(apply, frozenset({"y"}), require_classes)


def resample_labels(
    key: Array, data: ClientData, rates: Float[Array, " N"], spec: DataSpec, new_label: NewLabel
) -> Array:
    """The labels, like `data.y`, each resampled with the probability of its client in `rates`."""
    which_key, class_key = jax.random.split(key)
    y = data.y
    if new_label == "any":
        new = jax.random.randint(class_key, y.shape, 0, spec.num_classes, y.dtype)
    else:  # an offset of 1 to C - 1 classes; with a single class there is no other
        new = (y + jax.random.randint(class_key, y.shape, 1, max(spec.num_classes, 2), y.dtype)) % spec.num_classes
    return jnp.where(draw_labels(which_key, data, rates), new, y)
