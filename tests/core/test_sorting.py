"""Sorting networks over clients against NumPy's sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.core import sorting
from fedsim.core.sorting import (
    ASCENDING,
    NEAREST,
    CenteredColumns,
    comparators,
    keys_at_ranks,
    rank_mean,
    weights_below,
)


def rows_of(k, size=5, seed=0):
    values = np.random.default_rng(seed).integers(-3, 4, (k, size)).astype(np.float32)  # with many that are equal
    values[::3, 0] = np.inf
    return values


@pytest.mark.parametrize("k", [*range(1, 34), 64])
def test_comparators_sort(k):
    """Zeros and ones suffice: what sorts all of them sorts anything."""
    rng = np.random.default_rng(k)
    rows = list(
        (np.arange(2**k)[None] >> np.arange(k)[:, None] & 1) if k <= 12 else rng.random((k, 4000)) < rng.random(4000)
    )
    for i, j in comparators(k):
        assert i < j
        rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
    assert (np.diff(np.asarray(rows, int), axis=0) >= 0).all()


def all_columns(values):
    """`values` [K, d] of all clients, relative to zero."""
    return CenteredColumns(values, jnp.ones(values.shape[0], bool), jnp.zeros(values.shape[1]))


def sort_rows(values):
    """Each rank by itself, as the mean with all weight on it."""
    return jax.vmap(rank_mean, (None, 0))(all_columns(values), jnp.eye(len(values)))


@pytest.mark.parametrize("k", [1, 2, 7, 20, 129])
def test_rows_are_sorted(k):
    values = rows_of(k)
    np.testing.assert_array_equal(jax.jit(sort_rows)(values), np.sort(values, axis=0))


@pytest.mark.parametrize("size", [8, 9, 20])
def test_chunks_cover_all_columns(size, monkeypatch):
    monkeypatch.setitem(sorting.CHUNK, "cpu", 8)
    values = np.stack([rows_of(7, size, seed) for seed in range(3)])
    np.testing.assert_array_equal(jax.jit(jax.vmap(sort_rows))(values), np.sort(values, axis=1))


@pytest.mark.parametrize("k", [1, 5, 12, 40])
def test_means_over_ranks_ignore_infinite_rows(k):
    values = np.stack([rows_of(k, 4, seed) for seed in range(2)])
    values[:, -1] = np.inf
    shares = np.where(np.isin(np.arange(k), [0, k // 4]), 0.5, 0.0).astype(np.float32)
    expected = sum(0.5 * np.sort(values, axis=1)[:, r] for r in {0, k // 4}) if k > 1 else values[:, 0] * 0.5
    actual = jax.jit(jax.vmap(lambda v, s: rank_mean(all_columns(v), s), (0, None)))(jnp.asarray(values), shares)
    finite = np.isfinite(expected)
    np.testing.assert_allclose(np.asarray(actual)[finite], expected[finite], rtol=1e-6)


@pytest.mark.parametrize("most_fused", [0, 32])
def test_nearest_order_sorts_by_magnitude_then_value(most_fused, monkeypatch):
    monkeypatch.setitem(sorting.MAX_FUSED_ROWS, "cpu", most_fused)
    monkeypatch.setattr(sorting, "MAX_FUSED_ROWS_DEFAULT", most_fused)
    values = rows_of(9)
    expected = np.stack([sorted(column, key=lambda v: (abs(v), v)) for column in values.T], axis=1)[[3, 5]]
    values_at_ranks = jax.jit(lambda v: keys_at_ranks(all_columns(v), (jnp.int32(3), jnp.int32(5)), NEAREST))(values)
    np.testing.assert_array_equal(NEAREST.to_values(jnp.stack(values_at_ranks)), expected)
    shares = np.isin(np.arange(9), [3, 5]) / np.float32(2)
    mean = jax.jit(lambda v: rank_mean(all_columns(v), shares, NEAREST))(values)
    np.testing.assert_allclose(mean, expected.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("order", [ASCENDING, NEAREST])
def test_keys_keep_the_order_of_values_and_are_invertible(order):
    values = np.asarray([-np.inf, -3e38, -2.5, -1e-40, 0.0, 1e-40, 2.5, 3e38, np.inf], np.float32)
    keys = np.asarray(order.to_keys(jnp.asarray(values)))
    np.testing.assert_array_equal(order.to_values(jnp.asarray(keys)), values)
    by = [(v,) if order is ASCENDING else (abs(v), v) for v in values.tolist()]
    assert np.argsort(keys).tolist() == sorted(range(9), key=by.__getitem__)


@pytest.mark.parametrize("k", [1, sorting.MAX_UNROLLED_ROWS, sorting.MAX_UNROLLED_ROWS + 1])
def test_weights_of_lower_rows(k):
    """Both forms, against a stable sort of each column."""
    values, weights = rows_of(k), np.random.default_rng(1).random(k).astype(np.float32)
    order = np.argsort(values, axis=0, kind="stable")
    below = np.cumsum(weights[order].astype(float), axis=0) - weights[order]
    expected = np.take_along_axis(below, np.argsort(order, axis=0), axis=0)
    np.testing.assert_allclose(weights_below(jnp.asarray(values), jnp.asarray(weights)), expected, rtol=1e-5, atol=1e-6)
