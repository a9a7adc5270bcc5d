"""Reports of synthetic cohorts, typical and unusual ones, for rules, pre-aggregators and attacks."""

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.contracts import RootEvaluator
from fedsim.core.trees import squared_norms
from fedsim.core.types import Array, CohortReport, Variables

NUM_CLIENTS, COHORT_SIZE = 12, 7
EMPTY_CLIENT = NUM_CLIENTS - 1  # has no examples, as after `exclude`
INFINITE_LOSS_CLIENT = NUM_CLIENTS - 2  # of the initial model


def make_variables() -> Variables:
    """A model with two parameters and a statistic."""
    return Variables({"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}, {"mean": jnp.zeros(2)})


ROOT = RootEvaluator(
    jax.tree_util.Partial(lambda updates: squared_norms(jax.tree.map(lambda u: u - 1, updates)) / 2),
    jax.tree_util.Partial(lambda: jax.tree.map(lambda a: jnp.full_like(a, 0.25), make_variables())),
)
"""Root data whose mean loss is half the squared distance of a model from one that is 1 everywhere; a pytree."""


def draw_clients(rng: np.random.Generator) -> tuple[Array, Array]:
    """Numbers of examples [N] and losses [N] that all clients report before the first round."""
    num_examples = rng.integers(1, 200, NUM_CLIENTS)
    losses = rng.gamma(2.0, size=NUM_CLIENTS)
    num_examples[EMPTY_CLIENT], losses[EMPTY_CLIENT], losses[INFINITE_LOSS_CLIENT] = 0, np.nan, np.inf
    return jnp.asarray(num_examples, jnp.int32), jnp.asarray(losses, jnp.float32)


def draw_report(rng: np.random.Generator, num_examples: Array) -> CohortReport:
    """A cohort of K = `COHORT_SIZE` of the clients with `num_examples` [N] > 0, all valid, with normal updates."""
    counts = np.asarray(num_examples)
    ids = rng.permutation(np.flatnonzero(counts))[:COHORT_SIZE]
    updates = jax.tree.map(
        lambda a: jnp.asarray(0.5 + rng.normal(size=(COHORT_SIZE, *a.shape)), jnp.float32), make_variables()
    )  # with a nonzero mean, which distinguishes sums from means
    losses = jnp.asarray(0.1 + rng.gamma(2.0, size=COHORT_SIZE), jnp.float32)
    numbers = jnp.asarray(ids, jnp.int32), jnp.asarray(counts[ids])
    return CohortReport(*numbers, losses, updates, jnp.ones(COHORT_SIZE, bool))


def draw_reports(rng: np.random.Generator, num_examples: Array) -> dict[str, CohortReport]:
    """Typical and unusual reports by their description."""
    report = draw_report(rng, num_examples)
    with_empty = report._replace(
        client_ids=_with_rows(report.client_ids, 2, EMPTY_CLIENT), num_examples=_with_rows(report.num_examples, 2, 0)
    )
    scale = lambda factor: jax.tree.map(lambda u: factor * u, report.updates)
    return {
        "typical clients": report,
        "large updates": report._replace(updates=scale(1e4)),
        "a valid client with an infinite loss": report._replace(losses=_with_rows(report.losses, 4, np.inf)),
        "two invalid clients": invalidate(report, [0, 3], jnp.inf),
        "a client without examples": invalidate(with_empty, [1, 2, 6], jnp.nan),
        "an invalid client with a small loss": invalidate(report, [5], 0.01),
        "one valid client": invalidate(report, list(range(1, COHORT_SIZE)), jnp.inf),
        "no valid clients": invalidate(report, list(range(COHORT_SIZE)), jnp.nan),
        "zero updates": report._replace(updates=scale(0.0)),
        "typical clients again": draw_report(rng, num_examples),
    }


def invalidate(report: CohortReport, rows: list[int], loss: float) -> CohortReport:
    """The report with invalid clients in `rows`, as the server sees them."""
    return report._replace(
        losses=_with_rows(report.losses, rows, loss),
        updates=jax.tree.map(lambda u: _with_rows(u, rows, 0.0), report.updates),
        valid=_with_rows(report.valid, rows, False),
    )


def _with_rows(array: Array, rows: int | list[int], value: float) -> Array:
    """The array with `value` in `rows`, set on the host: operations of JAX one by one are slow."""
    changed = np.array(array)
    changed[rows] = value
    return jnp.asarray(changed)


def equalize_updates(report: CohortReport) -> CohortReport:
    """The report with the first client's update for all clients."""
    first = lambda u: jnp.asarray(np.broadcast_to(np.asarray(u)[:1], u.shape))
    return report._replace(updates=jax.tree.map(first, report.updates))


def make_report(rows: np.ndarray) -> CohortReport:
    """The report of clients with the updates `rows` [K, d] and equal numbers of examples."""
    ones, updates = jnp.ones(len(rows)), Variables(jnp.asarray(rows, jnp.float32))
    return CohortReport(jnp.arange(len(rows)), ones.astype(jnp.int32), ones, updates, ones > 0)
