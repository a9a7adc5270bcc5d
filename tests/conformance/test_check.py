"""What `check_conformance` compares, leaves out and says."""

import pytest

from fedsim import aggregators, attacks
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


def forgets(tau):
    """Centered clipping that does not remember its last result."""
    rule = aggregators.centered_clipping(tau=tau)
    return rule._replace(aggregate=lambda state, report, key: (rule.aggregate(state, report, key)[0], state))


@pytest.mark.parametrize(
    ("make", "name", "settings"),
    [
        (lambda num_byzantine: version(aggregators.krum, num_byzantine=num_byzantine), "krum", {"num_byzantine": 2}),
        (lambda tau: version(aggregators.centered_clipping, tau=tau), "centered_clipping", {"tau": 1.0}),
    ],
    ids=["krum", "centered_clipping"],
)
def test_correct_versions_equal_the_built_in(make, name, settings):
    """Of settings that no case has."""
    assert check_conformance(make, name, **settings) == []


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda num_byzantine: aggregators.krum(num_byzantine=num_byzantine, neighbors="n-f-1"), "krum"),
        (lambda num_byzantine: aggregators.krum(num_byzantine=num_byzantine, power="fourth"), "krum"),
        (lambda tau: aggregators.norm_clipping(threshold=tau), "centered_clipping"),  # around zero
        (forgets, "centered_clipping"),
        (lambda num_byzantine: aggregators.meamed(num_byzantine=2 * num_byzantine), "trimmed_mean"),
    ],
    ids=["neighbors", "power", "around zero", "forgets", "nearest to the median"],
)
def test_wrong_versions_differ_from_the_built_in(make, name):
    """Published cases do not notice these mistakes."""
    settings = {"tau": 1.0} if name == "centered_clipping" else {"num_byzantine": 2}
    message = rf"^{name}: beside fedsim's with \w+ = \S+: seed \d+, round \d.*: expected \[.*\], got \[.*\], "
    with pytest.raises(AssertionError, match=message):
        check_conformance(make, name, **settings)


def test_settings_of_cases_are_replaced_by_ones_that_matter():
    def make(tau, num_iters):
        return aggregators.centered_clipping(tau=tau)  # with one iteration

    with pytest.raises(AssertionError, match=r"with num_iters = 2, tau = 1\.0: seed 0, round 1: "):
        check_conformance(make, "centered_clipping")
