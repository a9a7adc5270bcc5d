"""The contract of an aggregator, as a check that any rule can be put through."""

from collections.abc import Iterator

import chex
import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.types import Aggregator, Array, CohortReport, PyTree

NUM_CLIENTS, COHORT_SIZE = 12, 7


def check_aggregator(aggregator: Aggregator, seed: int = 0) -> None:
    """Raises `AssertionError` where `aggregator` breaks the contract that `fedsim.aggregators` states.

    Puts it through random cohorts, also with invalid clients, losses that are infinite or missing, updates of very
    different size, and nobody valid at all.
    """
    rng = np.random.default_rng(seed)
    params = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}
    counts = jnp.asarray(rng.integers(1, 200, NUM_CLIENTS), jnp.int32)
    losses = jnp.asarray(rng.gamma(2.0, size=NUM_CLIENTS), jnp.float32)
    state = aggregator.init(params, counts, losses)
    alpha = aggregator.client_weights(state)
    if alpha is not None:
        _check_weights(alpha, jnp.ones(NUM_CLIENTS, bool))
    for report in _reports(rng, counts):
        _check_report(aggregator, state, report)
    _check_identical_clients(aggregator, state, next(_reports(rng, counts)))


def _reports(rng: np.random.Generator, counts: Array) -> Iterator[CohortReport]:
    """An ordinary report and awkward ones."""
    client_ids = jnp.asarray(rng.permutation(NUM_CLIENTS)[:COHORT_SIZE], jnp.int32)
    normal = lambda *shape: jnp.asarray(rng.normal(size=(COHORT_SIZE, *shape)), jnp.float32)
    everybody = jnp.ones(COHORT_SIZE, bool)
    losses = jnp.abs(normal()) + 0.1
    report = CohortReport(client_ids, counts[client_ids], losses, {"w": normal(3, 2), "b": normal(2)}, everybody)
    yield report
    yield report._replace(updates=jax.tree.map(lambda u: 1e4 * u, report.updates))
    yield _with_invalid(report, jnp.asarray([0, 3]), jnp.inf)
    yield _with_invalid(report, jnp.asarray([1, 2, 6]), jnp.nan)
    yield _with_invalid(report, jnp.asarray([5]), 0.01)
    yield _with_invalid(report, jnp.arange(1, COHORT_SIZE), jnp.inf)  # one is left
    yield _with_invalid(report, jnp.arange(COHORT_SIZE), jnp.nan)  # nobody is


def _with_invalid(report: CohortReport, who: Array, loss: float) -> CohortReport:
    return report._replace(
        losses=report.losses.at[who].set(loss),
        updates=jax.tree.map(lambda u: u.at[who].set(0.0), report.updates),
        valid=report.valid.at[who].set(False),
    )


def _check_report(aggregator: Aggregator, state: PyTree, report: CohortReport) -> None:
    key = jax.random.key(0)
    aggregate, next_state = aggregator.aggregate(state, report, key)
    _check_weights(aggregate.weights, report.valid)
    chex.assert_tree_all_finite(aggregate.update)
    chex.assert_trees_all_equal_shapes_and_dtypes(aggregate.update, jax.tree.map(lambda u: u[0], report.updates))
    chex.assert_trees_all_equal_shapes_and_dtypes(next_state, state)  # so that a loop can carry it
    if not bool(jnp.any(report.valid)):
        chex.assert_trees_all_equal(aggregate.update, jax.tree.map(jnp.zeros_like, aggregate.update))

    jitted, _ = jax.jit(aggregator.aggregate)(state, report, key)
    chex.assert_trees_all_close(jitted, aggregate, rtol=1e-4, atol=1e-5)

    order = np.random.default_rng(0).permutation(COHORT_SIZE)
    permuted, _ = aggregator.aggregate(state, jax.tree.map(lambda a: a[order], report), key)
    chex.assert_trees_all_close(permuted.weights, aggregate.weights[order], rtol=1e-4, atol=1e-5)

    doubled = jax.tree.map(lambda a: jnp.stack([a, a]), (state, report))
    mapped, _ = jax.vmap(aggregator.aggregate, in_axes=(0, 0, None))(*doubled, key)
    for i in range(2):
        chex.assert_trees_all_close(jax.tree.map(lambda a, i=i: a[i], mapped), aggregate, rtol=1e-4, atol=1e-5)


def _check_weights(weights: Array, valid: Array) -> None:
    chex.assert_equal_shape([weights, valid])
    chex.assert_tree_all_finite(weights)
    assert bool(jnp.all(weights >= 0)), f"negative weights: {weights}"
    assert bool(jnp.all(jnp.where(valid, 0, weights) == 0)), f"weight on invalid clients: {weights}"
    total = float(jnp.sum(weights))
    assert abs(total - 1) < 1e-5 or total == 0, f"weights sum to {total}, neither 1 nor 0"


def _check_identical_clients(aggregator: Aggregator, state: PyTree, report: CohortReport) -> None:
    """Clients that all send the same update get that update."""
    same = report._replace(updates=jax.tree.map(lambda u: jnp.broadcast_to(u[:1], u.shape), report.updates))
    aggregate, _ = aggregator.aggregate(state, same, jax.random.key(0))
    chex.assert_trees_all_close(aggregate.update, jax.tree.map(lambda u: u[0], same.updates), rtol=1e-4, atol=1e-5)
