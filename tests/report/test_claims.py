"""Claims: verdicts compared with SciPy's interval, and functions of users that `report.claims` names."""

import re

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind_from_stats

import fedsim
from fedsim import Claim, report
from fedsim.cli.main import main
from fedsim.engine import make_plan
from fedsim.errors import ConfigError
from fedsim.report.claims import summarize
from fedsim.report.final import parse
from fedsim.runs.folder import RunFolder
from tests.report.synthetic import GRID, final, make_folder, run

SPLIT = [
    run(rule, 0.5, seed, **{"data.seed": split}) for rule in ("arfl", "rfa") for split in (3, 4, 5) for seed in (0, 1)
]
CLAIMS = """
import fedsim

def above(results):
    arfl, rfa = (results.find(server__aggregator=rule, corruption__fraction=0.5) for rule in ("arfl", "rfa"))
    return [fedsim.Claim("ARFL is above RFA", results.difference(arfl, rfa), published="+3", unit="points")]

def broken(results):
    return [{}["x"]]

def text(results):
    return "ARFL is best"
"""
CONFIG = '[report]\nclaims = "{}"'
FAILURES = {
    "claims.py:broken": "report.claims: claims.py:broken, line 9: KeyError: 'x'",
    "claims.py:text": "report.claims: claims.py:text: must return a list of fedsim.Claim, got 'ARFL is best'",
    "claims.py:abov": "report.claims: claims.py has no function abov; did you mean above?",
    "none.py:above": "report.claims: none.py: no such file",
}


def test_missing_functions_are_refused_before_the_runs(folder):
    for name, message in list(FAILURES.items())[2:]:
        with pytest.raises(ConfigError, match=re.escape(message)):
            make_plan(fedsim.load({"report": {"claims": name}}))


@pytest.fixture
def folder(tmp_path):
    """A working directory with a file of claims."""
    (tmp_path / "claims.py").write_text(CLAIMS)
    return tmp_path


@pytest.mark.parametrize(
    ("numbers", "kind", "verdict"),
    [
        ([3, 5, 4], "direction", "holds"),
        ([-3, -5, -4], "direction", "fails"),
        ([-1, 5, 4], "direction", "open"),
        ([2, 2, 2], "direction", "open"),  # equal numbers show no spread
        ([4, 5], "direction", "open"),  # too few for an interval
        ([np.nan, 3, 4, 5], "direction", "holds"),
        ([[3, 5, 4], [-1, 5, 4]], "direction", "open"),
        ([[3, 5, 4], [-3, -5, -4]], "direction", "fails"),
        ([30, -20, 14], "mean", "holds (mean only)"),
        ([-1], "mean", "fails (mean only)"),
        ([30, -20, 14], "not above", "no evidence"),
        ([3, 5, 4], "not above", "fails"),
        ([3, 5], "not above", "open"),
        ([True, True], "yes or no", "holds"),
        ([True, False], "yes or no", "open"),
        ([0.5, 0.0], "yes or no", "open"),  # of a split, one of two seeds
        ([False, False], "yes or no", "fails"),
        (None, "direction", "not run"),
        ([None, [3, 5, 4]], "direction", "not run"),
    ],
)
def test_verdicts(numbers, kind, verdict):
    assert Claim("", numbers, kind=kind).verdict == verdict


def test_margins():
    values = np.asarray([3.0, 5.0, 4.0, 8.0])
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    assert Claim("", values, unit="points").margin("split") == f"+5.00 ± {(high - low) / 2:.2f} points"
    assert Claim("", [2, 2, 2]).margin("split") == "+2.00 (all 3 are equal)"
    assert Claim("", [2, 5], unit="points").margin("seed") == "+3.50 (+2.00, +5.00) points"
    assert Claim("", 3e-4, unit="nats").margin("seed") == "+3.0e-04 nats"
    assert Claim("", [1, 0.5, 0], kind="yes or no").margin("split") == "1 of 3 splits, 1 in part"
    assert Claim("", [[float(n)] for n in range(5)]).margin("split") == "+0.00 to +4.00"
    assert Claim("", np.float32(1) * np.ones(()), kind="mean").verdict == "holds (mean only)"
    assert Claim("", [0.0, 0.0], kind="mean").verdict == "fails (mean only)"  # equal, not above
    claims = [Claim("", values), Claim("", [-1, 5, 4]), Claim("", -1, kind="mean"), Claim(""), Claim("", measured="3")]
    assert summarize(claims) == "1 of 2 hold by their interval (1 open), 0 of 1 hold by the mean only, 1 not run"


@pytest.mark.parametrize(
    ("numbers", "reference", "margin", "verdict"),
    [
        ([93.0, 93.4], (93.0, 0.2, 3), "+0.20 points, +0.9 sd", "agrees"),
        ([90.0, 90.2], (93.0, 1.0, 3), "-2.90 points, -3.5 sd", "near"),
        ([91.1, 91.1], (93.0, 0.0, 3), "-1.90 points", "near"),  # no deviation, but within 2 points
        ([93.0, 93.0], (93.0, 0.0), "+0.00 points", "agrees"),
        ([93.0, 93.0], (np.float32(93.0), np.int64(0), np.int64(3)), "+0.00 points", "agrees"),
        ([90.0, 90.2], (93.0, 0.1, 3), "-2.90 points, -25.1 sd", "differs"),
        ([93.0, 93.4], (93.3, None), "-0.10 points, -0.4 sd", "agrees"),  # a single published run
        ([92.0], (93.0, 0.6, 3), "-1.00 points, -1.7 sd", "agrees"),
        ([93.0], (93.0, None), "+0.00 points", "near"),  # two single runs
        ([90.0], (93.0, None), "-3.00 points", "differs"),
        ([93.0, 93.4], None, "", "-"),
        ([97.51, 97.53], (98, None, 3, 0.5), "-0.48 points, -33.9 sd", "agrees"),  # rounded to a point
        ([97.51, 97.53], (98, None, 3), "-0.48 points, -33.9 sd", "near"),
        ([99.556, 99.556], (99.56, 0, 5, 0.005), "-0.00 points", "agrees"),
        ([99.55, 99.55], (99.56, 0, 5, 0.005), "-0.01 points", "near"),
        ([93.0, np.nan, 93.0], (93.0, 0.2), "diverged", "differs"),
        ([np.inf], (93.0, None), "diverged", "differs"),
        ([np.nan], None, "", "-"),
        (None, (93.0, 0.2), "", "not run"),
        ([], (93.0, 0.2), "", "not run"),
    ],
)
def test_published_numbers(numbers, reference, margin, verdict):
    claim = Claim("", numbers, unit="points", kind="published", reference=reference)
    assert (claim.margin("seed"), claim.verdict) == (margin, verdict)
    assert claim.holds is {"agrees": True, "near": True, "differs": False}.get(verdict)


def test_diverged_runs_are_counted():
    measured = lambda *numbers: Claim("", numbers, kind="published", reference=(93.0, 0.2)).measured
    assert measured(93.0, np.nan, 94.0) == "93.50 ± 0.71, 1 of 3 runs diverged"
    assert measured(np.nan, np.inf) == "2 of 2 runs diverged"


def test_the_pooled_deviation_is_that_of_the_two_sample_t_test():
    ours, (mean, std, num_runs) = np.asarray([63.1, 66.8, 65.0, 61.2]), (64.27, 3.7, 3)
    claim = Claim("Median", ours, unit="points", kind="published", reference=(mean, std, num_runs))
    t = ttest_ind_from_stats(ours.mean(), ours.std(ddof=1), len(ours), mean, std, num_runs).statistic
    pooled = (ours.mean() - mean) / (t * np.sqrt(1 / len(ours) + 1 / num_runs))
    difference = ours.mean() - mean
    assert claim.comparison.difference == f"{difference:+.2f} points, {difference / pooled:+.1f} sd"
    for number, verdict in ((2 - 1e-6, "agrees"), (2 + 1e-6, "near"), (4 - 1e-6, "near"), (4 + 1e-6, "differs")):
        reference = ours.mean() - number * pooled, std, num_runs
        assert Claim("", ours, unit="nats", kind="published", reference=reference).verdict == verdict
    assert (claim.published, claim.measured) == ("64.27 ± 3.70", f"{ours.mean():.2f} ± {ours.std(ddof=1):.2f}")
    assert Claim("", [30.0], unit="nats", kind="published", reference=(29.0, 0.1)).verdict == "differs"  # not points
    assert summarize([claim, Claim("", [1], kind="published")]) == "1 of 1 published numbers agree or are near"


@pytest.mark.parametrize(
    "reference",
    [(1,), (1, -1), (np.nan, 1), (1, np.inf), (True, 1), (1, False), (1, 1, 0), (1, 1, True), (1, 1, 2, -1), "12", 5],
)
def test_what_is_no_published_number(reference):
    with pytest.raises(fedsim.errors.ConfigError, match=r"reference: must be \(mean, standard deviation"):
        Claim("", [1], kind="published", reference=reference)
    for arguments in ({"numbers": [1]}, {"numbers": [[1], [2]], "kind": "published"}):
        with pytest.raises(fedsim.errors.ConfigError, match="reference: must come with one list of numbers and kind"):
            Claim("", reference=(1, 1), **arguments)


def test_numbers_are_over_splits_or_seeds(tmp_path):
    results = report.load(make_folder(tmp_path / "seeds", GRID))
    arfl, rfa = (results.find(server__aggregator=rule, corruption__fraction=0.5) for rule in ("arfl", "rfa"))
    np.testing.assert_allclose(results.numbers(arfl), final("arfl", 0.5))
    np.testing.assert_allclose(results.difference(arfl, rfa), final("arfl", 0.5) - final("rfa", 0.5))
    assert results.find(server__aggregator="median") is None
    assert results.find(aggregator="arfl", fraction=0.5, seed=2) == arfl
    assert results.find(aggregator="rfa", fraction=0.5, arfl__lam=None) == rfa
    with pytest.raises(ConfigError, match="no key is called share"):
        results.find(share=0.5)
    with pytest.raises(ConfigError, match=r"find: no key is called server\.aggregatr; did you mean server\.agg"):
        results.find(server__aggregatr="arfl")
    with pytest.raises(ConfigError, match=r"no key is called arfl\.lamm; did you mean arfl\.lam\?"):
        results.find(arfl__lamm=1.0)
    assert results.find(my_rule__share=0.5) is None  # of a plug-in that was not run
    with pytest.raises(fedsim.errors.ConfigError, match=r"3 settings have server\.aggregator = arfl"):
        results.find(server__aggregator="arfl")
    of_split = lambda run, t: (
        (run["data.seed"] + run["seed"] / 10 + (run["server.aggregator"] == "arfl") * t / 100) / 100
    )
    results = report.load(make_folder(tmp_path / "splits", SPLIT, of_split))
    arfl, rfa = (results.find(server__aggregator=rule) for rule in ("arfl", "rfa"))
    np.testing.assert_allclose(results.numbers(rfa), [3.05, 4.05, 5.05])
    np.testing.assert_allclose(results.difference(arfl, rfa), [0.2, 0.2, 0.2])
    np.testing.assert_allclose(results.per_unit(rfa, [True, False, True, True, False, False]), [0.5, 1, 0])


def test_a_plugin_has_two_names_and_a_regression_losses(tmp_path):
    runs = [run("fedavg", 0.5, seed) | {"server.aggregator": "mine.py:mine"} for seed in (0, 1)]
    results = report.load(make_folder(tmp_path / "run", runs, lambda run, t: None, loss=lambda run, t: run["seed"] + 1))
    (mine,) = results.settings
    assert results.find(aggregator="mine.py:mine") == results.find(aggregator="mine") == mine
    np.testing.assert_allclose(results.numbers(mine, final="mean:2"), [1, 2])
    np.testing.assert_allclose(results.difference(mine, mine), [0, 0])


def test_splits_of_another_data_set_change_no_unit(tmp_path):
    runs = [run(rule, 0.5, seed) for rule in ("arfl", "rfa") for seed in (0, 1, 2)]
    other = [run(rule, 0.5, **{"data.name": "cifar10", "data.seed": s}) for rule in ("arfl", "rfa") for s in (5, 6)]
    results = report.load(make_folder(tmp_path / "run", runs + other))
    find = lambda rule, data="digits": results.find(server__aggregator=rule, data__name=data)
    expected = final("arfl", 0.5, (0, 1, 2))
    np.testing.assert_allclose(results.numbers(find("arfl")), expected)
    np.testing.assert_allclose(results.per_unit(find("arfl"), [1, 2, 3]), [1, 2, 3])
    np.testing.assert_allclose(results.difference(find("arfl"), find("rfa")), expected - final("rfa", 0.5, (0, 1, 2)))
    assert results.numbers(find("arfl", "cifar10")).shape == (2,)


def test_numbers_are_in_the_order_of_seeds_whichever_folder_has_them(tmp_path):
    folders = [[("arfl", 2), ("rfa", 0)], [("arfl", 0), ("rfa", 2), ("arfl", 1), ("rfa", 1)]]
    paths = [
        make_folder(tmp_path / f"{place}", [run(rule, 0.5, seed) for rule, seed in runs])
        for place, runs in enumerate(folders)
    ]
    results = report.load(*paths)
    for rule in ("arfl", "rfa"):
        setting = results.find(server__aggregator=rule)
        np.testing.assert_allclose(results.numbers(setting), final(rule, 0.5, (0, 1, 2)))
        np.testing.assert_array_equal(results.per_unit(setting, [seed for _, seed in setting.draws]), [0, 1, 2])


def test_numbers_of_settings_with_other_splits_can_be_subtracted(tmp_path):
    of = {"arfl": (3, 4, 5), "rfa": (4, 5, 6)}
    runs = [run(rule, 0.5, **{"data.seed": split}) for rule, splits in of.items() for split in splits]
    results = report.load(make_folder(tmp_path / "run", runs, lambda run, t: run["data.seed"] / 10))
    arfl, rfa = (results.numbers(results.find(server__aggregator=rule)) for rule in of)
    np.testing.assert_allclose(arfl, [30, 40, 50, np.nan])
    np.testing.assert_allclose(arfl - rfa, [np.nan, 0, 0, np.nan])


def test_the_report_shows_the_claims_that_a_configuration_names(folder, capsys, no_figures):
    make_folder(folder / "run", GRID, config=CONFIG.format("claims.py:above"))
    assert main(["report", "run"]) == 0
    text = (folder / "run" / "claims.md").read_text()
    values = final("arfl", 0.5) - final("rfa", 0.5)
    half = values.mean() - ttest_1samp(values, 0).confidence_interval(0.95).low
    margin = f"{values.mean():+.2f} ± {half:.2f} points"
    assert f"| ARFL is above RFA | +3 |  | {margin} | {'holds' if values.mean() > half else 'open'} |" in text
    assert "Claims: " in capsys.readouterr().out
    make_folder(folder / "other", SPLIT)  # names no claims, so these are not about its runs
    claims, problems = report.claims.check(report.load("run", "other"))
    assert (claims[0].margin("seed"), problems) == (margin, [])
    assert report.claims_tables(report.load("run", final=parse("mean:2"))) == ([], [])  # not the default


def test_a_function_that_fails_is_one_line_beside_the_report(folder, capsys, no_figures):
    for name, line in FAILURES.items():
        make_folder(folder / "run", GRID, config=CONFIG.format(name))
        assert main(["report", "run"]) == 0
        printed = capsys.readouterr()
        assert "Test accuracy" in printed.out
        assert printed.err == f"fedsim: note: {line}\n"
        assert not (folder / "run" / "claims.md").exists()


def test_texts_may_be_numbers_and_kinds_are_checked():
    claim = Claim("x", [3, 5, 4], published=22.66, measured=None)
    assert (claim.published, claim.measured) == ("22.66", "")
    with pytest.raises(fedsim.errors.ConfigError, match="kind: must be one of direction, mean, "):
        Claim("x", kind="above")


def test_what_is_no_figure_is_a_problem_of_its_function(folder):
    (folder / "claims.py").write_text(CLAIMS + "\ndef figures(results):\n    return [3]\n")
    results = report.load(make_folder(folder / "run", GRID, config=CONFIG.format("claims.py:above")))
    assert report.claims.figures(results) == {}
    text = "report.claims: claims.py:above: figures must return figures of matplotlib by name, got [3]"
    assert report.claims_tables(results)[1] == [text]


def test_claims_are_no_part_of_a_run(folder):
    """Name, digest and runs are the same; a folder is resumed whatever it named, and names the new one."""
    keys = {"model__name": "logistic", "server__num_rounds": 0, "server__aggregator": fedsim.sweep(["arfl", "rfa"])}
    without, named = fedsim.load({}, **keys), fedsim.load({"report": {"claims": "claims.py:above"}}, **keys)
    assert (without.digest(), without.runs()) == (named.digest(), named.runs())
    assert fedsim.load({"report": {"claims": "claims.py:above"}}, **keys, report__claims="default").claims is None
    assert fedsim.config.toml.parse(named.dump()).claims == "claims.py:above"
    fedsim.run(without, out="run", progress=False)
    (folder / "claims.py").write_text(CLAIMS.replace("+3", "+4"))
    fedsim.run(named, out="run", progress=False)
    broken = fedsim.load({}, **keys, report__claims="claims.py:broken")
    with pytest.warns(UserWarning, match="claims.py:broken, line 9: KeyError"):
        fedsim.run(broken, out="run", progress=False)
    fedsim.run(named, out="run", progress=False)
    (config,) = RunFolder(folder / "run").read_configs().values()
    assert config["report"]["claims"] == "claims.py:above"
    with pytest.raises(fedsim.errors.ConfigError, match=r'report.claims: must be "file.py:function", got "3"'):
        fedsim.load({"report": {"claims": 3}})
    with pytest.raises(fedsim.errors.ConfigError, match=r'report.claims: must be "file.py:function", got "above"'):
        fedsim.load({}, report__claims="above")
    with pytest.raises(fedsim.errors.ConfigError, match="must have one value"):
        fedsim.load({}, report__claims=fedsim.sweep(["a.py:b", "a.py:c"]))
