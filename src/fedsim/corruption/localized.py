"""Label noise whose rate differs between clients, as in FedCorr.

Xu, Chen, Quek, Chong: "FedCorr: Multi-Stage Federated Learning for Label Noise Correction", CVPR 2022,
https://arxiv.org/abs/2204.04677
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, require_classes
from fedsim.core.settings import Bounds
from fedsim.core.types import Array, ClientData, DataSpec
from fedsim.corruption.symmetric import MEANING, NewLabel, resample_labels


def localized(
    *,
    tau: Annotated[float, Bounds(ge=0, le=1), "smallest rate: a corrupted client's is uniform from here to 1"] = 0.5,
    new_label: Annotated[NewLabel, MEANING] = "any",
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
        return data._replace(y=resample_labels(label_key, data, rates, spec, new_label))

    return Corruption(apply, frozenset({"y"}), require_classes)
