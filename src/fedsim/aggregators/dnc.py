"""DnC: divide and conquer.

Shejwalkar, Houmansadr: "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning", NDSS 2021, https://doi.org/10.14722/ndss.2021.24498
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.geometry import random_columns, top_eigenpair
from fedsim.aggregators.weighting import MINORITY, NumByzantine, assumed_byzantine, equal_weights, from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.selection import select_lowest
from fedsim.core.settings import Bounds, Traced
from fedsim.core.trees import ravel_updates
from fedsim.core.types import Array, CohortReport, Scalar


def dnc(
    *,
    num_byzantine: Annotated[NumByzantine, MINORITY] = None,
    num_iters: Annotated[int, Bounds(ge=1), "filtering iterations, each on other random parameters"] = 1,
    num_dims: Annotated[int, Bounds(ge=1), "b, random parameters in an iteration"] = 10_000,
    filter_factor: Annotated[Scalar, Traced(ge=0), "c: each iteration drops the c f largest outliers"] = 1.0,
) -> Aggregator:
    """The mean of the updates that are no outliers along the direction of the largest variance.

    `num_iters` times: of b random parameters (or of all, if there are fewer), centered, v is the top right singular
    vector, and client k's score is <u_k - mean, v>^2. The floor(c f) clients with the largest scores are dropped. The
    mean is over the clients that are never dropped, equally; if none is left, the round is skipped.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and each iteration keeps at least
    one client. Equal scores: the lower client id is kept. v is not computed: up to a factor, the scores are the squares
    of the top eigenvector of the K x K inner products. Raises `ValueError` if 2 f >= K for the whole cohort.
    """

    def compute_weights(report: CohortReport, key: Array) -> Array:
        rows, valid = ravel_updates(report.updates), report.valid
        num_valid = jnp.sum(valid)
        f = assumed_byzantine(num_byzantine, report)
        num_dropped = jnp.minimum(jnp.floor(filter_factor * f).astype(jnp.int32), num_valid - 1)

        def keep(key: Array) -> Array:
            part = random_columns(rows, num_dims, key)
            mean = jnp.matmul(equal_weights(valid), part, precision="highest")
            centered = jnp.where(valid[:, None], part - mean[None], 0.0)
            _, vector = top_eigenpair(jnp.matmul(centered, centered.T, precision="highest"))
            return select_lowest(jnp.square(vector), report, num_valid - num_dropped)

        kept = jnp.stack([keep(iteration_key) for iteration_key in jax.random.split(key, num_iters)])
        return equal_weights(jnp.prod(kept, axis=0))

    return from_weights(compute_weights)
