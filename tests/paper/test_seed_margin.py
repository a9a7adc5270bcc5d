"""Margins of claims compared with SciPy's interval, and verdicts."""

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from fedsim.paper.claims import Claim, first_margin, summarize
from fedsim.paper.seed_margin import Margin


def claim(values, unit="points") -> Claim:
    return Claim("", "", "measured", Margin.from_values(values, unit))


def test_interval():
    values = np.asarray([3.0, 5.0, 4.0, 8.0])
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    margin = Margin.from_values(values, "points")
    assert margin.half_width == pytest.approx((high - low) / 2)
    assert margin.text == f"+5.00 ± {t.ppf(0.975, 3) * values.std(ddof=1) / 2:.2f} points"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([3, 5, 4], "holds"),
        ([-3, -5, -4], "fails"),
        ([-1, 5, 4], "open"),
        ([0, 0, 0], "holds"),  # exactly as claimed
        ([4], "holds (preliminary)"),
        ([-4, -6], "fails (preliminary)"),
        ([-4, 6], "open (preliminary)"),
        ([np.inf, np.inf, 2], "holds"),  # the compared runs have diverged
        ([np.nan, 3, 4, 5], "holds"),  # three seeds
        ([True, True, True], "holds"),
        ([True, False, True], "open"),
        ([False, False, False], "fails"),
        (True, "holds (preliminary)"),
    ],
)
def test_verdicts(values, verdict):
    assert claim(values).verdict == verdict


def test_summary_and_first_margin():
    claims = [claim([True] * 5), claim([3, 5, 4]), claim([-1, 5, 4]), claim([-2, -2]), Claim("", "", "not run", None)]
    assert summarize(claims) == "2 of 4 claims hold, 1 open (2 to 5 seeds), 1 not run"
    assert summarize(claims[3:4]) == "0 of 1 claims hold (2 seeds: preliminary)"
    assert first_margin(claims) == claims[1].margin.text
    assert first_margin(claims[:1]) == ""
    assert Margin.from_values([2, 5], "points").text == "+3.50 (+2.00, +5.00) points"
    assert Margin.from_values([True, False, True]).text == "2 of 3 seeds"
    assert Margin.from_values(3e-4, "nats").text == "+3.0e-04 nats"
