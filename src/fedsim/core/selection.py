"""Choosing clients by scores, with a derivative for attacks that ascend."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from fedsim.core.trees import nonzero
from fedsim.core.types import Array, CohortReport, Scalar

_temperature: ContextVar[Scalar | None] = ContextVar("temperature", default=None)


def ranks(scores: Float[Array, " K"], report: CohortReport) -> Int[Array, " K"]:
    """The ranks of the clients by `scores`, from 0; equal scores by client id, invalid clients last."""
    return jnp.argsort(jnp.lexsort((report.client_ids, scores, ~report.valid)))


@contextmanager
def smooth_selection(temperature: Scalar) -> Iterator[None]:
    """In rules that are traced inside, `select_lowest` has a derivative; infinity: none."""
    token = _temperature.set(temperature)
    try:
        yield
    finally:
        _temperature.reset(token)


def select_lowest(scores: Float[Array, " K"], report: CohortReport, count: Int[Array, ""]) -> Float[Array, " K"]:
    """1 for the `count` valid clients with the lowest `scores`, equal ones by client id, and 0 for the others.

    Its derivative is zero, but inside `smooth_selection` that of a logistic function of the distance from the threshold
    between both groups, in units of the temperature times the spread of the scores.
    """
    selected = (report.valid & (ranks(scores, report) < count)).astype(jnp.float32)
    if (temperature := _temperature.get()) is None:
        return selected
    counted = report.valid & jnp.isfinite(scores)
    fixed = jax.lax.stop_gradient(jnp.where(counted, scores, jnp.nan))
    ordered, last = jnp.sort(fixed), jnp.maximum(jnp.sum(counted) - 1, 0)  # NaN comes last
    threshold = jnp.nan_to_num((ordered[jnp.clip(count - 1, 0, last)] + ordered[jnp.clip(count, 0, last)]) / 2)
    margin = threshold - jnp.where(counted, scores, threshold)
    share = jax.nn.sigmoid(margin / (temperature * nonzero(jnp.nanstd(fixed))))
    return selected + share - jax.lax.stop_gradient(share)
