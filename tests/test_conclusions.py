"""The script that tests the conclusions of docs/robustness.md on other splits, on tables of random accuracies."""

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import fedsim
from fedsim.config.components import flatten
from fedsim.runs.sweep import append_swept_columns
from fedsim.runs.tables import lam
from tests.conftest import load_script
from tests.docs.pages import text_of

PATH = Path(__file__).parents[1] / "configs" / "robustness" / "conclusions.py"
SPLITS, SEEDS = (3, 8, 9), (5, 6)


@pytest.fixture(scope="module")
def script():
    return load_script(PATH)


def make_rounds(experiment, seed=0):
    """Rows as `fedsim.run` returns them, with random accuracies."""
    runs, rng = experiment.runs(), np.random.default_rng(seed)
    table = pl.DataFrame(
        {
            "run": range(len(runs)),
            "aggregator": [run.server.aggregator for run in runs],
            "corruption": [run.corruption.kind for run in runs],
            "fraction": [run.corruption.fraction for run in runs],
            "lam": list(map(lam, runs)),
            "seed": [run.seed for run in runs],
            "round": [run.server.num_rounds for run in runs],
            "test_accuracy": rng.random(len(runs)),
            "validation_accuracy": rng.random(len(runs)),
        }
    )
    return append_swept_columns(table, list(map(flatten, runs)))


@pytest.fixture(scope="module")
def load(script):
    return lambda config, **overrides: fedsim.load(
        PATH.with_name(f"{config}.toml"), **script.on_splits(SPLITS, SEEDS), **overrides
    )


@pytest.fixture(scope="module")
def conclusions(script, load):
    run = lambda config, folder=None, **overrides: script.Study(make_rounds(load(config, **overrides)))
    return [(section, c) for section, of_section in script.sections(run) for c in of_section]


def test_every_conclusion_finds_its_runs(conclusions):
    assert len({section for section, _ in conclusions}) == 7
    assert len({c.text for _, c in conclusions}) == len(conclusions) > 35
    for _, conclusion in conclusions:
        assert conclusion.is_confirmed in (True, False)
        assert {numbers.shape for numbers in conclusion.numbers} == {(len(SPLITS),)}
        assert conclusion.measured.count("±") in (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("seeds", "pairs"),
    [(None, {(3, 3), (8, 8), (9, 9)}), ([5, 6], {(s, r) for s in SPLITS for r in (5, 6)})],
    ids=["own", "crossed"],
)
def test_each_split_has_a_seed_of_its_own_unless_seeds_are_given(script, seeds, pairs):
    experiment = fedsim.load(PATH.with_name("noisy-labels.toml"), **script.on_splits(SPLITS, seeds))
    assert {(run.data.seed, run.seed) for run in experiment.runs()} == pairs


def test_numbers_are_means_over_seeds_paired_by_split(conclusions, load):
    rows = make_rounds(load("noisy-labels")).to_dicts()

    def accuracies(rule, split):
        values = [0.8, 1.0, "iid", split, rule]
        keys = ["fraction", "localized.tau", "data.partition", "data.seed", "aggregator"]
        return [row["test_accuracy"] for row in rows if [row[key] for key in keys] == values]

    expected = [100 * (np.mean(accuracies("arfl", s)) - np.mean(accuracies("rfa", s))) for s in SPLITS]
    over_rfa = conclusions[0][1].numbers[1]
    assert len(accuracies("arfl", 3)) == len(SEEDS)
    np.testing.assert_allclose(over_rfa, expected)
    interval = stats.ttest_1samp(over_rfa, 0.0).confidence_interval(0.95)
    half = (interval.high - interval.low) / 2
    assert conclusions[0][1].measured.endswith(f", {np.mean(expected):.1f} ± {half:.1f}")


def test_verdicts_say_what_was_looked_at(script):
    """A mean above 0 whose interval is wide, as in 8.1 ± 29.3, confirms nothing about the interval."""
    wide, clear = np.array([30.0, -20.0, 14.0]), np.array([7.9, 8.0, 8.1])
    verdict = lambda test, *numbers: script.Conclusion("", test, numbers).verdict
    assert [verdict(script.above, numbers) for numbers in (wide, clear)] == ["not confirmed", "confirmed"]
    assert [verdict(script.not_above, numbers) for numbers in (wide, clear)] == ["not refuted", "refuted"]
    assert [verdict(script.at_least(8), numbers) for numbers in (wide, clear)] == ["confirmed on average"] * 2
    assert verdict(script.within(1), clear) == "not confirmed on average"


def test_the_page_has_a_row_for_each_conclusion_and_counts_their_kinds(script, conclusions):
    text = text_of("docs/robustness.md")
    tables = text.split("| conclusion | splits 35 to 39 | sure? |\n| --- | --- | --- |\n")[1:]
    rows = [row for table in tables for row in table.partition("\n\n")[0].splitlines()]
    verdicts = [row.rsplit("| ", 1)[1].rstrip(" |").partition(":")[0] for row in rows]
    of_interval = ("holds", "open")
    kinds = Counter("interval" if verdict in of_interval else verdict for verdict in verdicts)
    of_test = {script.above: "interval", script.below: "interval", script.not_above: "no evidence"}
    assert kinds == Counter(of_test.get(conclusion.test, "mean") for _, conclusion in conclusions)
    assert f"**{kinds['interval']} need an interval over the splits, and {verdicts.count('holds')} of them hold" in text
    assert f"**{kinds['mean']} are about a mean only" in text
    assert f"**{kinds['no evidence']} say" in text


@pytest.mark.parametrize("shift", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_verdicts_are_those_of_the_t_test(script, shift):
    numbers = np.random.default_rng(1).normal(shift, 1.0, 10)
    is_above = stats.ttest_1samp(numbers, 0.0, alternative="greater").pvalue < 0.025
    is_below = stats.ttest_1samp(numbers, 0.0, alternative="less").pvalue < 0.025
    assert (script.above(numbers), script.below(numbers)) == (is_above, is_below)
    assert script.not_above(numbers) == (not is_above)
    assert script.at_least(shift - 1)(numbers)
    assert not script.at_most(shift - 1)(numbers)


@pytest.mark.parametrize("value", [5.0, -5.0])
def test_equal_numbers_have_no_interval_and_are_neither_above_nor_below(script, value):
    numbers = np.full(5, value)
    assert not script.above(numbers)
    assert not script.below(numbers)
    assert script.not_above(numbers) == (value <= 0)
    assert script.Conclusion("", script.above, [numbers]).measured == f"{value:.1f}"


def test_settings_that_match_other_runs_as_well_are_an_error(script, load):
    study = script.Study(make_rounds(load("noisy-labels")))
    with pytest.raises(LookupError, match="expected 6 runs, got 12"):
        study.accuracy("arfl", {"fraction": 0.8, "localized.tau": 1.0})
