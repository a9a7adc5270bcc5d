"""The coordinate-wise median.

Yin, Chen, Ramchandran, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
https://arxiv.org/abs/1803.01498
"""

import jax.numpy as jnp

from fedsim.aggregators.coordinatewise import from_ranks, median_ranks
from fedsim.core.contracts import Aggregator


def median() -> Aggregator:
    """The median of the clients' values at each parameter; for an even number of clients, the mean of the middle two.

    Clients count equally; the weights are a diagnostic (`fedsim.aggregators.coordinatewise`).

    >>> import fedsim
    >>> fedsim.aggregators.apply(fedsim.aggregators.median(), [[1.0, 2.0], [2.0, 9.0], [99.0, 1.0]]).update
    Array([2., 2.], dtype=float32)
    """
    return from_ranks(lambda report: median_ranks(jnp.sum(report.valid)), lambda report: jnp.float32(0.5))
