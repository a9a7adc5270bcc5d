"""Chains: rules that aggregate with the weights of another rule or after pre-aggregators, against float64 NumPy."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from fedsim import Aggregate, Aggregator, aggregators
from fedsim.aggregators import apply
from fedsim.testing import check_aggregator
from fedsim.testing.reports import make_report

K, D = 7, 11


def given_weights(weights):
    """A rule that gives the clients these weights."""
    return aggregators.from_weights(lambda report: jnp.where(report.valid, weights, 0.0))


def draw(seed, k=K):
    """Updates [K, D], and weights [K] of which one is 0."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(k)).astype(np.float32)
    weights[rng.integers(k)] = 0
    return rng.normal(size=(k, D)).astype(np.float32), weights / weights.sum()


def trimmed_mean_of_column(values, weights, trimmed):
    """The mean of the quantile function from `trimmed` to 1 - `trimmed`; at 1/2 the middle of both medians."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order].astype(float), weights[order] / weights.sum(dtype=float)
    edges = np.concatenate([[0], np.cumsum(weights)])
    if trimmed >= 0.499:
        middle = (edges[:-1] < 0.5 + 1e-6) & (edges[1:] > 0.5 - 1e-6) & (weights > 0)
        return values[middle].mean()
    kept = [max(0.0, min(high, 1 - trimmed) - max(low, trimmed)) for low, high in pairwise(edges)]
    return np.dot(kept, values) / (1 - 2 * trimmed)


@pytest.fixture(scope="module")
def trim():
    def run(updates, weights, f):
        return apply(aggregators.trimmed_mean(num_byzantine=f), updates, weighting=given_weights(weights))

    return jax.jit(run)


@given(seed=st.integers(0, 2**32 - 1), f=st.integers(0, 3))
@settings(max_examples=40)
def test_trimmed_mean_trims_the_f_largest_weights_at_each_end(trim, seed, f):
    updates, weights = draw(seed)
    result = trim(updates, weights, f)
    num_valid = int((weights > 0).sum())
    share = np.sort(weights / weights.sum())[::-1][: min(f, (num_valid - 1) // 2)].sum(dtype=float)
    expected = [trimmed_mean_of_column(updates[:, d], weights, min(share, 0.5)) for d in range(D)]
    np.testing.assert_allclose(result.update, expected, atol=2e-5)
    assert float(result.weights.sum()) == pytest.approx(1, abs=1e-5)
    assert result.weights[np.argmin(weights)] == 0


@given(seed=st.integers(0, 2**32 - 1), f=st.integers(0, 3))
@settings(max_examples=20)
def test_any_f_clients_cannot_leave_the_range_of_the_others(trim, seed, f):
    updates, weights = draw(seed)
    updates = updates.copy()
    f = min(f, (int((weights > 0).sum()) - 1) // 2)
    while weights[np.argsort(weights)[::-1][:f]].sum() >= 0.5:  # they would be the majority
        f -= 1
    heaviest = np.argsort(weights)[::-1][:f]
    updates[heaviest] = 1e9 * np.sign(updates[heaviest])
    benign = np.delete(updates, heaviest, axis=0)[np.delete(weights, heaviest) > 0]
    update = np.asarray(trim(updates, weights, f).update)
    assert (update >= benign.min(axis=0) - 1e-3).all()
    assert (update <= benign.max(axis=0) + 1e-3).all()


@pytest.mark.parametrize("k", [6, 7])
@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
def test_equal_weights_give_the_rule_itself(name, k):
    updates, _ = draw(3, k)
    rule = {"median": aggregators.median(), "trimmed_mean": aggregators.trimmed_mean(num_byzantine=2)}[name]
    weighted = apply(rule, updates, weighting=given_weights(np.full(k, 1 / k, np.float32)))
    np.testing.assert_allclose(weighted.update, apply(rule, updates).update, atol=1e-6)


def test_weighted_median():
    updates = np.asarray([[1.0], [2.0], [3.0], [10.0]])
    median = lambda *weights: float(
        apply(aggregators.median(), updates, weighting=given_weights(np.asarray(weights, np.float32))).update[0]
    )
    assert median(0.1, 0.2, 0.1, 0.6) == 10
    assert median(0.4, 0.2, 0.2, 0.2) == 2
    assert median(0.25, 0.25, 0.25, 0.25) == 2.5
    assert median(0.5, 0.0, 0.3, 0.2) == 2  # between 1 and 3: the client without weight does not count
    updates = np.asarray([[-1.0], [9.0], [3.0]])
    assert median(0.5, 0.0, 0.5) == 1  # nor does the zero that its update is then


def test_weights_take_the_place_of_examples():
    updates, weights = draw(5)
    num_examples = np.round(1e6 * weights).astype(int)
    for rule in (aggregators.fedavg(), aggregators.rfa(), aggregators.multi_krum(num_byzantine=1)):
        weighted = apply(rule, updates, weighting=given_weights(weights), num_examples=np.arange(1, K + 1))
        by_examples = apply(rule, updates, num_examples=num_examples, valid=num_examples > 0)
        np.testing.assert_allclose(weighted.weights, by_examples.weights, atol=2e-6)
        np.testing.assert_allclose(weighted.update, by_examples.update, atol=2e-5)


def test_fedavg_with_the_weights_of_arfl_is_arfl():
    updates, losses = draw(8)[0], np.asarray([0.5, 0.6, 0.7, 0.9, 3.0, 0.4, 2.0])
    arfl = aggregators.arfl(lam=0.3)
    alone = apply(arfl, updates, losses=losses)
    weighted = apply(aggregators.fedavg(), updates, weighting=arfl, losses=losses)
    assert (np.asarray(alone.weights) == 0).any()
    np.testing.assert_allclose(weighted.weights, alone.weights, atol=1e-6)
    np.testing.assert_allclose(weighted.update, alone.update, atol=1e-6)


@pytest.mark.parametrize("name", ["trimmed_mean", "median", "rfa", "multi_krum", "krum", "signguard", "meamed"])
def test_clients_without_weight_are_left_out_and_no_weight_skips_the_round(name):
    updates, weights = draw(11)
    aggregate = jax.jit(lambda u, w: apply(getattr(aggregators, name)(), u, weighting=given_weights(w)))
    outlier = int(np.argmin(weights))
    changed = updates.copy()
    changed[outlier] = 1e5
    before, after = (aggregate(u, weights) for u in (updates, changed))
    np.testing.assert_array_equal(before.update, after.update)
    assert after.weights[outlier] == 0
    assert not aggregate(updates, np.zeros(K, np.float32)).weights.any()


def test_buckets_have_the_sum_of_the_weights():
    updates, weights = draw(13)
    report = make_report(updates)._replace(weights=jnp.asarray(weights), valid=jnp.asarray(weights > 0))
    mixed = jax.jit(aggregators.bucketing(size=3))(report, jax.random.key(0))
    np.testing.assert_allclose(mixed.weights, (np.asarray(mixed.mixing) > 0) @ weights, rtol=1e-6)


def test_a_chain_applies_its_stages_in_order():
    """Doubling and then adding 1 is not the same as the other way round; a mean of two rows has half of each."""
    change = lambda f: lambda report, key: report._replace(updates=jax.tree.map(f, report.updates))
    doubled, raised = jax.jit(change(lambda u: 2 * u)), change(lambda u: u + 1)

    def mix(matrix, report, key):
        updates = jax.tree.map(lambda u: matrix @ u, report.updates)
        rows = jax.tree.map(lambda a: a[: len(matrix)], report._replace(updates=(), weights=None))
        return rows._replace(updates=updates, mixing=matrix)

    halves = partial(mix, jnp.asarray([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    half = partial(mix, jnp.asarray([[0.5, 0.5]]))

    updates, given = [[1.0], [3.0], [8.0]], given_weights(jnp.asarray([0.5, 0.3, 0.2]))
    update = lambda *stages: apply(fedsim.chain(*stages), updates, num_examples=[2, 3, 5]).update.item()
    assert update(doubled, raised, aggregators.median()) == 7
    assert update(raised, doubled, aggregators.median()) == 8
    assert update(given, aggregators.fedavg()) == pytest.approx(0.5 * 1 + 0.3 * 3 + 0.2 * 8)
    sums = lambda report: jax.tree.map(lambda u: jnp.sum(u, axis=0), report.updates)
    total = Aggregator(lambda *_: (), lambda state, report, key: (Aggregate(sums(report), report.weights), state))
    assert update(given_weights(jnp.asarray([0.5, 0.5, 0.0])), total) == 4  # without the client that has no weight
    loss = lambda report: {"loss": jnp.nansum(report.losses), "missing": jnp.isnan(report.losses).sum()}
    seen = lambda state, report, key: (Aggregate(sums(report), report.weights, loss(report)), state)
    left = fedsim.chain(given_weights(jnp.asarray([0.5, 0.5, 0.0])), total._replace(aggregate=seen))
    assert apply(left, updates, losses=[1.0, 2.0, 4.0]).info == {"loss": 3, "missing": 1}
    for stages in [(halves, doubled), (doubled, halves), (halves, doubled, half)]:
        result = apply(fedsim.chain(*stages, aggregators.fedavg(weighting="equal")), updates)
        assert result.update.item() == pytest.approx(((2 + 6) / 2 + 16) / 2)
        np.testing.assert_allclose(result.weights, [0.25, 0.25, 0.5])


def test_a_chain_is_a_rule():
    """It measures on root data what its stages leave of a report; state and alpha are those of its rules."""
    check_aggregator(
        fedsim.chain(aggregators.nnm(num_byzantine=1), aggregators.zeno(num_byzantine=1)), skip=("jit", "gradient")
    )
    chain = fedsim.chain(aggregators.arfl(), aggregators.zeno())
    state = chain.init((), jnp.arange(1, 4), jnp.asarray([0.1, 0.2, 5.0]))
    np.testing.assert_array_equal(chain.client_weights(state), state[0].alpha)


def test_each_stage_and_array_has_random_numbers_of_its_own():
    def draws(name):
        def aggregate(state, report, key):
            mean = jax.tree.map(lambda u: jnp.mean(u, axis=0), report.updates)
            drawn = jnp.concatenate([jax.random.uniform(k)[None] for k in (key, *jax.random.split(key, 4))])
            return Aggregate(mean, jnp.full(2, 0.5), {f"{name}{i}": value for i, value in enumerate(drawn)}), state

        return Aggregator(lambda *_: (), aggregate)

    updates = {name: jnp.ones((2, 3)) for name in "abc"}
    rule = fedsim.chain(draws("first"), draws("second"), fedsim.layerwise(draws("last")))
    numbers = [value.item() for value in apply(rule, updates).info.values()]
    assert len(set(numbers)) == len(numbers) == 5 * (2 + 3)


@pytest.mark.parametrize("stages", [(), (aggregators.nnm(),)])
def test_a_chain_without_a_last_rule_is_refused(stages):
    with pytest.raises(ValueError, match=r"^stages: the last one must be a rule"):
        fedsim.chain(*stages)


def test_what_makes_a_stage_is_no_stage():
    for stages in ((aggregators.nnm, aggregators.median()), (aggregators.median(), aggregators.median)):
        with pytest.raises(
            ValueError, match=r"^stages: must be .*, got \w+; stages take .*, functions that make them must be called$"
        ):
            fedsim.chain(*stages)
    with pytest.raises(ValueError, match=r"^stages: must be .*, got list; pass stages as arguments"):
        fedsim.chain([aggregators.nnm()], aggregators.median())
    apply(aggregators.median(), [[1.0], [2.0]], pre_aggregators=[jax.jit(aggregators.clipping())])
