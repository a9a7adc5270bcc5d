"""The mean around the median.

Xie, Koyejo, Gupta: "Generalized Byzantine-tolerant SGD", 2018, https://arxiv.org/abs/1802.10116
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.aggregators.coordinatewise import mean_around_median
from fedsim.aggregators.weighting import MINORITY, assumed_minority, stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Traced
from fedsim.core.types import Aggregate, Array, CohortReport


def meamed(
    *,
    num_byzantine: Annotated[
        Array | int | None, Traced(ge=0), MINORITY, "f, values excluded at each parameter; default: (K - 3) // 2"
    ] = None,
) -> Aggregator:
    """The mean, at each parameter, of the K - f values nearest to the median (the paper's mean around median).

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and f = 0 gives the mean. Of two
    values with the same distance, the lower one is kept. Clients count equally; the weights are a diagnostic
    (`fedsim.aggregators.coordinatewise`). Raises `ValueError` if 2 f >= K for the whole cohort.
    """

    def aggregate(report: CohortReport) -> Aggregate:
        num_kept = jnp.sum(report.valid) - assumed_minority(num_byzantine, report)
        return Aggregate(*mean_around_median(report, report.valid, num_kept))

    return stateless(aggregate)
