"""By examples or equally: a client with m examples counts as much as m clients with one each."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.aggregators import centered_clipping, cfl, fedavg, multi_krum, norm_clipping, rfa
from tests.aggregators.test_robust import KEY, flat, report_of, updates_of

COUNTS = np.asarray([3, 1, 2, 1, 4])
RULES = {
    "fedavg": lambda weighting: fedavg(weighting=weighting),
    "rfa": lambda weighting: rfa(eps=0.1, weighting=weighting),
    "cfl": lambda weighting: cfl(threshold=1.0, weighting=weighting),
    "multi_krum": lambda weighting: multi_krum(num_byzantine=1, num_selected=2, weighting=weighting),
    "norm_clipping": lambda weighting: norm_clipping(threshold=1.5, weighting=weighting),
    "centered_clipping": lambda weighting: centered_clipping(tau=1.5, num_iters=2, weighting=weighting),
}


@cache
def rule(name, weighting):
    return RULES[name](weighting)


def aggregate(rule, report):
    state = rule.init(jax.tree.map(lambda leaf: leaf[0], report.updates), report.num_examples, report.losses)
    aggregate, _ = jax.jit(rule.aggregate)(state, report, KEY)
    return flat(aggregate.update), np.asarray(aggregate.weights)


@pytest.mark.parametrize("name", ["fedavg", "rfa", "norm_clipping", "centered_clipping"])
def test_weighting_by_examples_equals_repeating_clients(name):
    x = updates_of(0, len(COUNTS))
    num_examples = jnp.asarray(COUNTS)
    update, weights = aggregate(rule(name, "examples"), report_of(x)._replace(num_examples=num_examples))
    copies, of_copies = aggregate(rule(name, "equal"), report_of(np.repeat(x, COUNTS, axis=0)))
    np.testing.assert_allclose(update, copies, atol=1e-6)
    ends = np.cumsum(COUNTS)
    joined = [of_copies[end - count : end].sum() for end, count in zip(ends, COUNTS, strict=True)]
    np.testing.assert_allclose(weights, joined, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_equal_weighting_ignores_numbers_of_examples(name):
    report = report_of(updates_of(1, 5), [True, True, False, False, True])._replace(num_examples=jnp.asarray(COUNTS))
    update, weights = aggregate(rule(name, "equal"), report)
    alike, of_alike = aggregate(rule(name, "examples"), report._replace(num_examples=jnp.full(5, 7)))
    np.testing.assert_allclose(update, alike, atol=1e-6)
    np.testing.assert_allclose(weights, of_alike, atol=1e-6)
    assert np.abs(update - aggregate(rule(name, "examples"), report)[0]).max() > 1e-3
    assert not weights[2:4].any()


@pytest.mark.parametrize(
    "compute",
    [
        lambda report: report.valid / 5,
        lambda report, key: report.valid / 5 + 0 * jax.random.uniform(key),
        lambda state, report: (report.valid / 5, state),
        lambda state, report, key: (report.valid / 5 + 0 * jax.random.uniform(key), state),
        lambda s, r, k: (r.valid / 5, s),
        lambda report, share=0.2: share * report.valid,
        lambda report, key=None: report.valid / 5 + 0 * jax.random.uniform(key),
        lambda *arguments: (arguments[1].valid / 5, arguments[0]),
    ],
)
def test_functions_of_weights_take_what_they_name(compute):
    _, weights = aggregate(fedsim.aggregators.from_weights(compute), report_of(updates_of(2, 5)))
    np.testing.assert_allclose(weights, 0.2)


@pytest.mark.parametrize("compute", [lambda s, r: r, lambda r, k: r, lambda report, *, key: report, lambda: 0])
def test_other_functions_of_weights_are_refused(compute):
    with pytest.raises(ValueError, match=r"^compute_weights: must take \(report\), .*, got \("):
        fedsim.aggregators.from_weights(compute)
