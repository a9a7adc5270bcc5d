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
        (
            version(aggregators.krum),
            "krum",
            ValueError,
            r"settings: must be those of cases of krum \(num_byzantine = 1; num_byz.* = \"n-f-1\"\), got no settings",
        ),
    ],
)
def test_messages_are_one_sentence(make, name, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        check_conformance(make, name)
