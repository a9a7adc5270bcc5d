"""Compressed updates, as pre-aggregators: the largest elements, or few bits for each; and the bytes that it takes.

Top-k: Aji, Heafield: "Sparse Communication for Distributed Gradient Descent", EMNLP 2017,
https://arxiv.org/abs/1704.05021, without feedback of what is left out. Quantization: Alistarh, Grubic, Li, Tomioka,
Vojnovic: "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017,
https://arxiv.org/abs/1610.02132, with the largest element as the scale.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.core.contracts import PreAggregator
from fedsim.core.settings import POSITIVE, Bounds, Traced
from fedsim.core.trees import nonzero, ravel_updates, unravel_update
from fedsim.core.types import Array, CohortReport, Scalar

FLOAT_BITS = POSITION_BITS = 32


def top_k(
    *, share: Annotated[Scalar, Traced(ge=POSITIVE["ge"], le=1), "of the elements of an update that are sent"] = 0.1
) -> PreAggregator:
    """Each update of d elements keeps its k = max(1, round(`share` d)) largest by absolute value, and their equals.

    Records `bytes_sent`, see `send`.
    """

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        rows = ravel_updates(report.updates)
        size = rows.shape[1]
        k = jnp.clip(jnp.round(share * size).astype(int), 1, size)
        smallest = jnp.take(jnp.sort(jnp.abs(rows), axis=1), size - k, axis=1)
        return send(report, jnp.where(jnp.abs(rows) >= smallest[:, None], rows, 0.0), FLOAT_BITS)

    return pre_aggregate


def quantization(*, bits: Annotated[int, Bounds(ge=2, le=16), "of an element, with its sign"] = 8) -> PreAggregator:
    """Each element u becomes a multiple of m / s, next to it and at random, so that its mean is u.

    m is the largest absolute value of the update, and s = 2^(`bits` - 1) - 1. Records `bytes_sent`, see `send`.
    """
    num_levels = 2 ** (bits - 1) - 1

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        rows = ravel_updates(report.updates)
        steps = nonzero(jnp.max(jnp.abs(rows), axis=1, keepdims=True)) / num_levels
        draw = jax.vmap(lambda client_id: jax.random.uniform(jax.random.fold_in(key, client_id), rows.shape[1:]))
        below = jnp.floor(rows / steps)
        levels = below + (draw(report.client_ids) >= 1 - (rows / steps - below))
        return send(report, jnp.clip(levels, -num_levels, num_levels) * steps, bits)  # m / (m / s) may exceed s

    return pre_aggregate


def send(report: CohortReport, rows: Float[Array, "K d"], bits: int) -> CohortReport:
    """The report with the updates `rows`, and with `bytes_sent`, those of all valid clients.

    An update is all its elements of `bits`, or those that are not 0 with their positions, of 32 bits: what is less.
    """
    num_sent = jnp.sum(rows != 0, axis=1).astype(jnp.float32)
    size = jnp.minimum(float(rows.shape[1]) * bits, num_sent * (bits + POSITION_BITS)) / 8
    updates = jax.vmap(lambda row: unravel_update(row, report.updates))(rows)
    return report._replace(updates=updates, info={"bytes_sent": jnp.sum(jnp.where(report.valid, size, 0.0))})
