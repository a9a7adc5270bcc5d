"""The coordinate-wise trimmed mean.

Yin, Chen, Ramchandran, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
https://arxiv.org/abs/1803.01498
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.aggregators.coordinatewise import Ranks, from_ranks
from fedsim.aggregators.weighting import MINORITY, assumed_minority, example_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Traced
from fedsim.core.types import Array, CohortReport


def trimmed_mean(
    *,
    num_byzantine: Annotated[
        Array | int | None, Traced(ge=0), MINORITY, "f, values trimmed at each end; default: (K - 3) // 2"
    ] = None,
) -> Aggregator:
    """The mean, at each parameter, of the clients' values without the f lowest and the f highest.

    f = `num_byzantine`, the paper's beta K, where K is the number of valid clients; f is clipped to 2 f < K. f = 0
    gives the mean, the largest f the median. Clients count equally; the weights are a diagnostic
    (`fedsim.aggregators.coordinatewise`). With weights from another rule (`server.weighting`), the f largest of them
    are trimmed at each end, so that any f clients have at most what is trimmed; if that is half, this is the weighted
    median. Raises `ValueError` if 2 f >= K for the whole cohort.

    >>> import fedsim
    >>> rule = fedsim.aggregators.trimmed_mean(num_byzantine=1)
    >>> fedsim.aggregators.apply(rule, [[1.0], [2.0], [4.0], [99.0]]).update
    Array([3.], dtype=float32)
    """

    def compute_ranks(report: CohortReport) -> Ranks:
        f = assumed_minority(num_byzantine, report)
        return f, jnp.sum(report.valid) - f - 1

    def compute_trimmed(report: CohortReport) -> Array:
        weights = jnp.sort(example_weights(report.valid, report), descending=True)
        return jnp.sum(jnp.where(jnp.arange(weights.size) < assumed_minority(num_byzantine, report), weights, 0.0))

    return from_ranks(compute_ranks, compute_trimmed)
