"""Pre-aggregators and adaptive clipping, against the formulas of their papers in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.aggregators import adaptive_clipping, apply, arc, bucketing, clipping, nnm, quantization, top_k, zeroing
from tests.aggregators.test_robust import KEY, clip, flat, report_of, updates_of

VALID = np.arange(11) != 4


def rows_of(report) -> np.ndarray:
    params = report.updates.params
    return np.concatenate([np.asarray(params["a"]), np.asarray(params["b"])[:, 0]], axis=1)


def pre_aggregate(pre_aggregator, report, key=KEY):
    return jax.jit(pre_aggregator)(report, key)


def pre_aggregate_with(make, f, report):
    """With a traced f, which is clamped to the number of clients in each round."""
    return jax.jit(lambda f, report: make(num_byzantine=f)(report, KEY))(f, report)


@pytest.mark.parametrize(("f", "used"), [(0, 0), (3, 3), (50, 4), (None, 3)])
def test_nnm_matches_its_formula(f, used):
    x = updates_of(0)
    mixed = pre_aggregate_with(nnm, f, report_of(x, VALID))
    who = np.flatnonzero(VALID)
    for i in who:
        nearest = sorted(who, key=lambda j, i=i: ((x[i] - x[j]) ** 2).sum())[: 10 - used]
        np.testing.assert_allclose(rows_of(mixed)[i], x[nearest].mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(mixed.mixing[i], np.isin(np.arange(11), nearest) / len(nearest), atol=1e-6)
    assert not rows_of(mixed)[4].any()


@pytest.mark.parametrize("size", [1, 2, 3, 11])
def test_buckets_are_means_and_partition_the_clients(size):
    x, report = updates_of(0), report_of(updates_of(0), VALID)
    mixed = pre_aggregate(bucketing(size=size), report)
    members = np.asarray(mixed.mixing) > 0
    num_rows = -(-11 // size)
    assert len(mixed.valid) == num_rows
    np.testing.assert_array_equal(members.sum(axis=0), VALID)
    filled = [size] * (10 // size) + [10 % size] * (10 % size > 0)
    np.testing.assert_array_equal(members.sum(axis=1), filled + [0] * (num_rows - len(filled)))
    np.testing.assert_array_equal(mixed.valid, members.any(axis=1))
    for row, who in zip(rows_of(mixed), members, strict=True):
        np.testing.assert_allclose(row, x[who].mean(axis=0) if who.any() else 0, atol=1e-6)
    np.testing.assert_array_equal(mixed.num_examples, members @ np.arange(1, 12))
    assert len(set(np.asarray(mixed.client_ids).tolist())) == num_rows


def test_buckets_depend_on_the_key_and_not_on_the_order():
    report, order = report_of(updates_of(0), VALID), np.random.default_rng(0).permutation(11)
    rows = rows_of(pre_aggregate(bucketing(), report))
    other_order = rows_of(pre_aggregate(bucketing(), jax.tree.map(lambda a: jnp.asarray(a)[order], report)))
    np.testing.assert_allclose(rows, other_order, atol=1e-6)
    assert not np.allclose(rows, rows_of(pre_aggregate(bucketing(), report, jax.random.key(1))))


def test_clipping_matches_its_formula():
    x = updates_of(0)
    clipped = pre_aggregate(clipping(threshold=2.0), report_of(x, VALID))
    np.testing.assert_allclose(rows_of(clipped), clip(x, 2.0) * VALID[:, None], atol=1e-6)
    assert clipped.mixing is None


@pytest.mark.parametrize(("f", "num_clipped"), [(0, 0), (1, 1), (2, 3), (3, 4), (50, 4)])
def test_arc_clips_the_largest_norms(f, num_clipped):
    """10 valid clients: floor(2 f (10 - f) / 10) are clipped, with f at most 4."""
    x = updates_of(0)
    radius = np.sort(np.linalg.norm(x[VALID], axis=1))[::-1][num_clipped]
    clipped = pre_aggregate_with(arc, f, report_of(x, VALID))
    np.testing.assert_allclose(rows_of(clipped), clip(x, radius) * VALID[:, None], atol=1e-6)


@pytest.mark.parametrize("norm", [2, "inf"])
def test_zeroing_keeps_the_client_and_its_weight(norm):
    x = updates_of(0)
    is_kept = np.linalg.norm(x, axis=1, ord=np.inf if norm == "inf" else 2) <= 2.0
    assert 0 < is_kept[VALID].sum() < 10
    zeroed = pre_aggregate(zeroing(threshold=2.0, norm=norm), report_of(x, VALID))
    np.testing.assert_allclose(rows_of(zeroed), x * (is_kept & VALID)[:, None], atol=1e-6)
    np.testing.assert_array_equal(zeroed.valid, VALID)
    with pytest.raises(ValueError, match=r'^norm: must be "inf" or 2, got 1$'):
        zeroing(norm=1)


@pytest.mark.parametrize(("share", "k"), [(1e-6, 1), (0.4, 2), (1.0, 6)])
def test_top_k_keeps_the_largest(share, k):
    x = updates_of(0)
    kept = jax.jit(lambda share, report: top_k(share=share)(report, KEY))(share, report_of(x, VALID))
    expected = np.where(np.argsort(np.argsort(-np.abs(x), axis=1), axis=1) < k, x, 0)
    np.testing.assert_allclose(rows_of(kept), expected * VALID[:, None], rtol=1e-6)
    assert kept.info["bytes_sent"] == 10 * min(8 * k, 4 * 6)  # of ten clients: values and positions, or all values


def test_scalars_of_all_pre_aggregators_are_recorded():
    record = lambda **info: lambda report, key: report._replace(info=info)
    rule = fedsim.chain(record(one=1.0, both=1.0), record(both=2.0), fedsim.aggregators.median())
    assert apply(rule, [[1.0], [2.0]]).info == {"one": 1.0, "both": 2.0}


@pytest.mark.parametrize("bits", [2, 5, 16])
def test_quantization_is_unbiased_and_on_its_grid(bits):
    x, report = updates_of(0), report_of(updates_of(0), VALID)
    keys = jax.random.split(KEY, 4000)
    many = jax.jit(jax.vmap(lambda key: quantization(bits=bits)(report, key)))(keys)
    rows = np.concatenate([many.updates.params["a"], many.updates.params["b"][:, :, 0]], axis=2)[:, VALID]
    x = x[VALID]
    step = np.abs(x).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    rounding = 2**bits * 1e-7  # of float32, in steps
    np.testing.assert_allclose(rows / step, np.round(rows / step), atol=max(1e-4, rounding))
    assert np.all(np.abs(rows - x) < step * (1 + max(1e-5, rounding)))
    assert np.all(np.abs(rows) <= np.abs(x).max(axis=1, keepdims=True) * (1 + 1e-6))
    share = x / step - np.floor(x / step)  # the probability of the upper neighbor
    error = step * np.sqrt(share * (1 - share) / len(keys))
    assert np.all(np.abs(rows.mean(axis=0, dtype=np.float64) - x) <= 5 * error + 1e-5)
    sizes = np.minimum(6 * bits, (rows != 0).sum(axis=2) * (bits + 32)).sum(axis=1) / 8
    np.testing.assert_allclose(many.info["bytes_sent"], sizes, rtol=1e-6)


@pytest.mark.parametrize(("zeroes", "weighting"), [(False, "equal"), (True, "examples"), (True, "equal")])
def test_adaptive_clipping_matches_its_recursion_over_rounds(zeroes, weighting):
    """Z grows until an outlier in each round is not zeroed any more."""
    rule = adaptive_clipping(quantile=0.8, threshold=1.0, learning_rate=0.2, zeroing=zeroes, weighting=weighting)
    aggregate_of, state, c, z = jax.jit(rule.aggregate), rule.init((), None, None), 1.0, 10.0
    number_zeroed = []
    for seed in range(6):
        valid = np.arange(11) != seed
        x = updates_of(seed)
        x[8] = 30.0
        m = np.where(valid, np.arange(1, 12) if weighting == "examples" else 1.0, 0)
        largest = np.abs(x).max(axis=1)
        is_zeroed = zeroes & (largest > 2 * z + 1)
        number_zeroed.append(is_zeroed.sum())
        z *= np.exp(-np.log(10) * (np.mean(largest[valid] <= z) - 0.98))
        sent = np.where(is_zeroed[:, None], 0, x)
        norms = np.linalg.norm(sent, axis=1)
        factors = np.minimum(1, c / np.maximum(norms, 1e-9))
        aggregate, state = aggregate_of(state, report_of(x, valid), KEY)
        assert aggregate.info["threshold"] == pytest.approx(c, rel=1e-5)
        np.testing.assert_allclose(flat(aggregate.update), m * factors @ sent / m.sum(), atol=1e-5)
        weights = m * factors * ~is_zeroed
        np.testing.assert_allclose(aggregate.weights, weights / weights.sum(), atol=1e-5)
        c *= np.exp(-0.2 * (np.mean(norms[valid] <= c) - 0.8))
        assert state.clip == pytest.approx(c, rel=1e-5)
        assert not zeroes or state.zero == pytest.approx(z, rel=1e-5)
    assert sum(number_zeroed) == (3 if zeroes else 0)
    all_zeroed, _ = aggregate_of(rule.init((), None, None), report_of(np.full_like(x, 30.0), valid), KEY)
    assert np.any(flat(all_zeroed.update)) != zeroes
    np.testing.assert_allclose(all_zeroed.weights, m / m.sum(), atol=1e-6)
    no_valid_clients, after = aggregate_of(state, report_of(x, np.zeros(11, bool)), KEY)
    assert not np.any(flat(no_valid_clients.update))
    assert after.clip == state.clip


def test_clients_are_quantized_independently():
    rows = quantization(bits=2)(report_of(np.tile(updates_of(0, 1, 200), (2, 1))), KEY).updates
    first, second = (flat(jax.tree.map(lambda u, i=i: u[i], rows)) for i in range(2))
    assert 20 < np.sum(first != second) < 180
