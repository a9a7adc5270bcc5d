"""Label noise: symmetric, with a rate that differs between clients, and between neighboring classes.

Symmetric: Van Rooyen, Menon, Williamson: "Learning with Symmetric Label Noise: The Importance of Being Unhinged",
NeurIPS 2015, https://arxiv.org/abs/1505.07634. Its rates and pair flipping: Han, Yao, Yu, Niu, Xu, Hu, Tsang, Sugiyama:
"Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels", NeurIPS 2018,
https://arxiv.org/abs/1804.06872. Localized: Xu, Chen, Quek, Chong: "FedCorr: Multi-Stage Federated Learning for Label
Noise Correction", CVPR 2022, https://arxiv.org/abs/2204.04677
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.core.corrupt import Corruption, draw_labels, require_classes
from fedsim.core.settings import Bounds
from fedsim.core.types import Array, ClientData, DataSpec

NewLabel = Annotated[
    Literal["other", "any"], "a changed label: one of the C - 1 other classes, or any of all C, the same one included"
]


def symmetric(
    *,
    rate: Annotated[float, Bounds(ge=0, le=1), "probability that a corrupted client's label is changed"] = 0.5,
    new_label: NewLabel = "other",
) -> Corruption:
    """Each label of a corrupted client becomes, with probability `rate`, another class, drawn uniformly.

    P(c -> c) = 1 - rate and P(c -> d) = rate / (C - 1). With "any", P(c -> d) = rate / C, and (1 - 1 / C) rate of the
    labels are wrong. Labels are drawn independently: the fraction is `rate` in expectation, not in each client.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        rates = jnp.where(corrupted, rate, 0.0)
        return data._replace(y=_resample_labels(key, data, rates, spec, new_label))

    return Corruption(apply, frozenset({"y"}), require_classes)


def localized(
    *,
    tau: Annotated[float, Bounds(ge=0, le=1), "smallest rate: a corrupted client's is uniform from here to 1"] = 0.5,
    new_label: NewLabel = "any",
) -> Corruption:
    """Symmetric label noise whose rate each corrupted client draws from U(tau, 1).

    FedCorr's (rho, tau): rho is `corruption.fraction`, exactly that fraction of the clients here, each client with
    probability rho there. Labels are drawn independently, from all classes ("any").

    At tau = 1 all labels of a corrupted client are uniform. `shuffling` is similar, but keeps the client's class
    distribution: with C equally frequent classes as many labels are wrong, a fraction of 1 - 1 / C; with class
    frequencies p_c fewer are, 1 - sum_c p_c^2, and none if a client has a single class.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        rate_key, label_key = jax.random.split(key)
        rates = jnp.where(corrupted, jax.random.uniform(rate_key, corrupted.shape, minval=tau), 0.0)
        return data._replace(y=_resample_labels(label_key, data, rates, spec, new_label))

    return Corruption(apply, frozenset({"y"}), require_classes)


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


def _resample_labels(key: Array, data: ClientData, rates: Float[Array, " N"], spec: DataSpec, new_label: str) -> Array:
    """The labels, like `data.y`, each resampled with the probability of its client in `rates`."""
    which_key, class_key = jax.random.split(key)
    y = data.y
    if new_label == "any":
        new = jax.random.randint(class_key, y.shape, 0, spec.num_classes, y.dtype)
    else:  # an offset of 1 to C - 1 classes; with a single class there is no other
        new = (y + jax.random.randint(class_key, y.shape, 1, max(spec.num_classes, 2), y.dtype)) % spec.num_classes
    return jnp.where(draw_labels(which_key, data, rates), new, y)
