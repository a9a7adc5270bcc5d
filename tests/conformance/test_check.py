"""What `check_conformance` compares, leaves out and says."""

import jax.numpy as jnp
import pytest

from fedsim import Aggregate, Aggregator, aggregators, attacks
from fedsim.aggregators import from_weights
from fedsim.core.types import Variables
from fedsim.testing import check_conformance


def version(make, **renamed):
    """A rule that is built by a plug-in, so that its settings are unknown."""
    return make(**renamed)._replace(client_weights=lambda state: None)


@pytest.mark.parametrize(
    ("make", "name", "settings", "ids"),
    [
        (aggregators.clipping, "clipping", {}, [40, 83]),
        (aggregators.clipping, "clipping", {"threshold": 2.0}, [40]),
        (attacks.ipm, "ipm", {}, [42, 43]),
        (attacks.ipm(tau=2.0), "ipm", {"tau": 2.0}, [43]),
        (aggregators.norm_clipping(threshold=0.5), "norm_clipping", {}, [103]),  # knows its settings
        (version(aggregators.norm_clipping, threshold=0.5), "norm_clipping", {"threshold": 0.5}, [103]),
        (lambda num_byzantine: aggregators.krum(num_byzantine=num_byzantine), "krum", {}, [2, 32]),  # without a variant
        (aggregators.nnm, "nnm", {}, [39, 75]),  # refuses a variant
    ],
)
def test_cases_that_apply_are_compared(make, name, settings, ids):
    assert check_conformance(make, name, **settings) == ids


@pytest.mark.parametrize(
    ("make", "name", "error", "message"),
    [
        (
            aggregators.fedavg,
            "median",
            AssertionError,
            r"median: case 5 \(flwrlabs/flower@77068b8 .*::test_aggregate_fit; no settings\): expected "
            r"\[0.5, 0.5, 0.5, 0.5\], got \[0.5666667, .*\], with a tolerance of 1e-06",
        ),
        (
            lambda radius=2.0: aggregators.clipping(threshold=radius),
            "clipping",
            AssertionError,
            r"clipping: case 40 .*: ValueError: the factory got an unexpected keyword argument 'threshold'",
        ),
        (
            lambda num_byzantine: aggregators.fedavg(),
            "nnm",
            AssertionError,
            r"nnm: case 39 .*; num_byzantine = 1\): expected the shape \(3, 3\), got \(3,\)",
        ),
        (
            lambda tau: 3,
            "ipm",
            AssertionError,
            "ipm: case 42 .*must be an Aggregator, a PreAggregator or an Attack, got 3",
        ),
        (aggregators.krum, "krun", ValueError, "name: must be one of fedavg, krum, .*, got 'krun'"),
    ],
)
def test_messages_are_one_sentence(make, name, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        check_conformance(make, name)


def test_settings_are_those_of_a_case_or_of_the_built_in():
    message = r"^settings: must be those of cases of krum \(num_byzantine = 1; num_byz.* = \"n-f-1\"\), got radius = 1$"
    with pytest.raises(ValueError, match=message):
        check_conformance(aggregators.krum, "krum", radius=1)


def krum(*, fewer=2, power=2):
    """With n - f - `fewer` neighbors, by distances to the `power`."""

    def make(num_byzantine):
        def nearest(report):
            rows, valid = report.updates.params, report.valid
            distances = jnp.sum((rows[:, None] - rows[None]) ** 2, axis=2) ** (power / 2)
            distances = jnp.sort(jnp.where(valid[:, None] & valid[None], distances, jnp.inf))[:, 1:]
            is_neighbor = jnp.arange(len(rows) - 1) < valid.sum() - num_byzantine - fewer
            return 1.0 * (jnp.arange(len(rows)) == jnp.where(is_neighbor[None], distances, 0).sum(axis=1).argmin())

        return from_weights(nearest)

    return make


def centered_clipping(*, keeps_v=True, around_v=True, next_is_mean=False):
    def make(tau):
        def aggregate(state, report, key):
            rows, share, v = report.updates.params, report.valid / report.valid.sum(), state * keeps_v
            norms = jnp.linalg.norm(rows - around_v * v[None], axis=1)
            v = v + (share * jnp.minimum(1, tau / jnp.maximum(norms, 1e-9))) @ (rows - v[None])
            return Aggregate(Variables(v), share), share @ rows if next_is_mean else v

        return Aggregator(lambda variables, *_: jnp.zeros_like(variables.params), aggregate)

    return make


def trimmed_mean(*, nearest_to_median=False):
    def make(num_byzantine):
        def aggregate(state, report, key):
            rows, valid, n = report.updates.params, report.valid, report.valid.sum()
            values = jnp.sort(jnp.where(valid[:, None], rows, jnp.inf), axis=0)
            median = (values[(n - 1) // 2] + values[n // 2]) / 2
            first, order = num_byzantine, values
            if nearest_to_median:
                first, order = 0, jnp.take_along_axis(values, jnp.abs(values - median[None]).argsort(axis=0), axis=0)
            ranks, kept = jnp.arange(len(rows))[:, None], n - 2 * num_byzantine
            is_kept = (ranks >= first) & (ranks < first + kept)
            return Aggregate(Variables(jnp.where(is_kept, order, 0).sum(axis=0) / kept), valid / n), state

        return Aggregator(lambda *_: (), aggregate)

    return make


RULES = {krum: {"num_byzantine": 2}, centered_clipping: {"tau": 1.0}, trimmed_mean: {"num_byzantine": 2}}


@pytest.mark.parametrize("rule", RULES)
def test_correct_versions_equal_the_built_in(rule):
    """Of settings that no case has."""
    assert check_conformance(rule(), rule.__name__, **RULES[rule]) == []


@pytest.mark.parametrize(
    ("rule", "mistake"),
    [
        (krum, {"fewer": 1}),
        (krum, {"fewer": 3}),
        (krum, {"power": 1}),
        (centered_clipping, {"keeps_v": False}),
        (centered_clipping, {"around_v": False}),
        (centered_clipping, {"next_is_mean": True}),
        (trimmed_mean, {"nearest_to_median": True}),
    ],
)
def test_wrong_versions_differ_from_the_built_in(rule, mistake):
    """Published cases do not notice these mistakes."""
    message = rf"^{rule.__name__}: beside fedsim's with \w+ = \S+: seed \d+, round \d.*: expected \[.*\], got \[.*\], "
    with pytest.raises(AssertionError, match=message):
        check_conformance(rule(**mistake), rule.__name__, **RULES[rule])


def test_settings_of_cases_are_replaced_by_ones_that_matter():
    def make(tau, num_iters):
        return centered_clipping()(tau)  # with one iteration

    with pytest.raises(AssertionError, match=r"with num_iters = 2, tau = 1\.0: seed 0, round 1: "):
        check_conformance(make, "centered_clipping")
