"""Two levels of chance: splits, and seeds within a split; what was chosen is shown on runs that were not looked at."""

import itertools
import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

from fedsim import report
from fedsim.errors import ConfigError
from fedsim.report.accuracy import draws_text
from fedsim.report.compare import compare
from fedsim.report.confirm import parse
from fedsim.report.statistics import half_width, holm
from tests.report.synthetic import make_folder, run

SPLITS, SEEDS = (3, 5, 8), (0, 1)


def accuracy(config, t):
    """Differs by rule, split and seed; the spread over splits is larger than that over seeds."""
    rule = {"arfl": 0.8, "fedavg": 0.7, "median": 0.75}[config["server.aggregator"]]
    attack = {"none": 0.0, "ipm": 0.1, "alie": 0.12, "min_max": 0.05}[config["attack.kind"]]
    split, seed = config["data.seed"], config["seed"]
    harm = attack * (1 + 0.5 * np.sin(7 * split + len(config["attack.kind"])))
    return (rule - harm + 0.03 * np.cos(split * len(config["server.aggregator"])) + 0.01 * seed) * t / 20


def runs_of(rules=("arfl", "fedavg"), attacks=("none",), splits=SPLITS, seeds=SEEDS, **keys):
    fraction = lambda attack: 0.0 if attack == "none" else 0.3
    return [
        run(rule, fraction(attack), seed, "none", **{"attack.kind": attack, "data.seed": split} | keys)
        for rule in rules
        for attack in attacks
        for split in splits
        for seed in seeds
    ]


def values(rule, attack="none", splits=SPLITS):
    """Final accuracies [splits, seeds] in percent."""
    grid = runs_of((rule,), (attack,), splits)
    return 100 * np.asarray([accuracy(config, 20) for config in grid]).reshape(len(splits), len(SEEDS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("splits"), runs_of(), accuracy)


def test_deviations_are_over_splits(folder):
    results = report.load(folder)
    assert len(results.settings) == 2
    (table,) = report.accuracy_tables(results)
    for row in table.rows:
        means = values(row.aggregator).mean(axis=1)
        (number,) = row.entries
        assert number.mean == pytest.approx(means.mean())
        assert number.spread == pytest.approx(means.std(ddof=1))
        assert number.num_runs == 6
    assert "over 3 splits x 2 seeds" in table.subtitle
    (row, _) = report.summary(results)
    assert (row["num_splits"], row["num_runs"]) == (3, 6)
    assert row["final_accuracy_std"] == pytest.approx(values("arfl").mean(axis=1).std(ddof=1) / 100)


def test_intervals_of_differences_are_over_splits(folder):
    (difference,) = report.differences(report.load(folder))
    by_split = (values("fedavg") - values("arfl")).mean(axis=1)
    test = scipy.stats.ttest_1samp(by_split, 0)
    np.testing.assert_allclose(difference.values, by_split)
    low, high = test.confidence_interval(0.95)
    assert difference.half_width == pytest.approx((high - low) / 2)
    assert difference.p_value == pytest.approx(test.pvalue)
    assert len(difference.draws) == 6


def test_runs_that_are_missing_leave_the_means_of_their_splits(tmp_path):
    config = runs_of()
    del config[1]  # ARFL, the first split, the second seed
    results = report.load(make_folder(tmp_path / "a", config, accuracy))
    (table,) = report.accuracy_tables(results)
    means = [values("arfl")[0, 0], *values("arfl")[1:].mean(axis=1)]
    arfl = next(row for row in table.rows if row.aggregator == "arfl")
    assert arfl.entries[0].mean == pytest.approx(np.mean(means))
    is_best = lambda of: any(number.bold for row in of.rows for number in row.entries)
    assert (arfl.entries[0].marks, is_best(table)) == ("¶", False)  # it would be the best
    assert "¶ fewer runs than another row has: ARFL, Clean: 5 of 6." in table.notes
    assert "over up to 3 splits x 2 seeds" in table.subtitle
    (difference,) = report.differences(results)  # of the runs that both have
    pairs = values("fedavg") - values("arfl")
    assert difference.mean == pytest.approx(np.mean([pairs[0, 0], *pairs[1:].mean(axis=1)]))


def test_numbers_after_fewer_rounds_than_others_are_marked(tmp_path):
    """Those of an incomplete folder; none if all rows lack as many."""
    config = [run(rule, seed=seed) for rule in ("arfl", "fedavg") for seed in (0, 1)]
    late = pl.col("round") == 20
    folders = [
        make_folder(tmp_path / str(number), config, is_complete=False, change=lambda rounds, at=at: rounds.filter(~at))
        for number, at in enumerate((late & (pl.col("run") < 2), late))
    ]
    (table,), (of_all,) = (report.accuracy_tables(report.load(folder)) for folder in folders)
    assert {row.aggregator: row.entries[0].marks for row in table.rows} == {"arfl": "‖", "fedavg": ""}
    assert "‖ rounds are missing, more than in another row: ARFL, Clean: 10." in table.notes
    assert not any(number.bold for _, _, number in table.numbers)
    assert not any(number.marks for _, _, number in of_all.numbers)
    arfl, fedavg = (results := report.load(folders[0])).settings
    assert np.isnan(results.numbers(arfl)).all()  # claims about it are "not run"
    assert np.isfinite(results.numbers(fedavg)).all()
    assert results.difference(fedavg, arfl) is None


@pytest.mark.parametrize(
    ("draws", "text"),
    [
        ([[(0, 0)]], "1 seed of one split"),
        ([[(0, 0), (1, 0)], [(0, 0), (1, 0)]], "2 splits"),
        ([[(0, 0), (0, 1), (1, 0), (1, 1)]], "2 splits x 2 seeds"),
        ([[(0, 0), (0, 1)], [(0, 0)]], "up to 2 seeds of one split"),
        ([[(0, 0), (1, 0)], [(0, 0)]], "up to 2 splits"),
        ([[(0, 0), (0, 1)], [(1, 0), (1, 1)]], "2 seeds of one split each"),
    ],
)
def test_captions(draws, text):
    assert draws_text(draws) == text


def test_means_of_splits_skip_missing_numbers():
    number = lambda values, splits: compare(
        pl.DataFrame({"setting": 0, "data.seed": splits, "run": range(len(values)), "value": values})
    ).row(0, named=True)
    assert number([1.0, None, 5.0, None], [0, 0, 1, 2]) == {
        "setting": 0, "mean": 3, "std": pytest.approx(math.sqrt(8)), "low": 1, "high": 5
    }  # fmt: skip
    assert number([1.0, math.inf, 4.0], [3, 3, 3])["mean"] == 2.5  # one split: its seeds


@pytest.mark.parametrize(("number", "level"), [(3, 0.0), (5, 0.052), (7, 0.11), (10, 0.053)])
def test_errors_of_the_interval_of_one_test_example_are_those_of_the_protocols_page(number, level):
    """All outcomes of a pair of equally good rules that differ by one test example at most."""
    errors = []
    for up, down in itertools.product(range(number + 1), repeat=2):
        values = np.repeat([1.0, -1.0, 0.0], [up, down, max(number - up - down, 0)])
        if len(values) == number and (half := half_width(values)) is not None and abs(values.mean()) > half:
            ways = math.comb(number, up) * math.comb(number - up, down)
            errors.append(lambda p, ways=ways, ends=up + down: ways * p**ends * (1 - 2 * p) ** (number - ends))
    most = max(sum(error(p) for error in errors) for p in np.linspace(0, 0.5, 101))
    assert level - 0.002 < most <= level


def test_holm_is_the_step_down_procedure():
    p = np.asarray([0.01, 0.04, 0.03, 0.005])
    for level in np.linspace(0.001, 0.2, 60):
        rejected = set()
        for position, index in enumerate(np.argsort(p)):  # Holm's own words: stop at the first that is not rejected
            if p[index] > level / (len(p) - position):
                break
            rejected.add(index)
        assert set(np.flatnonzero(holm(p) <= level + 1e-12)) == rejected
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    np.testing.assert_array_equal(holm([0.03, None, 0.01]), [0.03, np.nan, 0.02])  # what is not tested does not count


def test_the_worst_attack_is_chosen_on_other_splits(tmp_path):
    attacks = ("ipm", "alie", "min_max")
    folder = make_folder(tmp_path / "a", runs_of(("fedavg",), attacks, range(6)), accuracy)
    explored, shown = (0, 1, 2), (3, 4, 5)
    results = report.confirm(report.load(folder), *parse("data.seed=3..5"))
    (table,) = report.worst_tables(results)
    worst = min(attacks, key=lambda attack: values("fedavg", attack, explored).mean())
    assert worst != min(attacks, key=lambda attack: values("fedavg", attack, shown).mean())  # else this shows nothing
    assert table.rows[0].entries[-1].mean == pytest.approx(values("fedavg", worst, shown).mean())
    assert "chosen on the other runs, shown for data.seed 3 to 5" in table.subtitle
    (plain,) = report.worst_tables(report.load(folder))
    assert "exploratory" in plain.subtitle


def test_values_are_chosen_on_other_splits(tmp_path):
    lams = (0.1, 1.0, 10.0)
    config = [
        c for lam in lams for c in runs_of(("arfl",), splits=range(6), **{"arfl.lam": lam, "corruption.fraction": 0.3})
    ]
    noisy = lambda c, t: accuracy(c, t) + 0.05 * np.sin(5 * c["data.seed"] + 3 * c["arfl.lam"]) * t / 20
    folder = make_folder(tmp_path / "a", config, noisy, validation=noisy)
    mean = lambda lam, splits: np.mean(
        [100 * noisy(c, 20) for c in config if c["arfl.lam"] == lam and c["data.seed"] in splits]
    )
    results = report.choose(report.confirm(report.load(folder), "data.seed", (3, 4, 5)), ["arfl.lam"])
    chosen = max(lams, key=lambda lam: mean(lam, (0, 1, 2)))
    assert chosen != max(lams, key=lambda lam: mean(lam, (3, 4, 5)))
    (table,) = report.accuracy_tables(results)
    assert table.rows[0].entries[0].mean == pytest.approx(mean(chosen, (3, 4, 5)))
    assert "Values were chosen on the other runs, shown for data.seed 3 to 5." in table.notes


def test_a_setting_without_other_runs_is_left_out_of_a_confirmation(tmp_path):
    attacks = ("ipm", "alie", "min_max")
    config = [*runs_of(("fedavg",), attacks, range(4)), *runs_of(("median",), ("alie",), (2, 3))]
    config += runs_of(("arfl",), ("alie",), (0, 1))
    results = report.load(make_folder(tmp_path / "a", config, accuracy))
    results = report.confirm(results, *parse("data.seed=2..99999999999"))
    assert {setting.aggregator for setting in results.settings} == {"fedavg"}
    (table,) = report.accuracy_tables(results)
    assert table.notes == (
        "Runs with data.seed 2, 3 are shown.",
        "Left out, as there are no other runs to choose on: Median, ALIE 30 %.",
        "Left out, as there are none of these runs: ARFL, ALIE 30 %.",
    )
    assert results.confirmed == "data.seed 2, 3"  # of 2 to 9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data.seed", "--confirm: must be data.seed=FIRST..LAST"),
        ("lam=1..2", "--confirm: must be data.seed=FIRST..LAST"),
        ("data.seed=10..12", "none of these"),
        ("data.seed=3..1", r"from the lower to the higher number, got data\.seed=3\.\.1"),
        ("data.seed=0..9", r"no others to choose on; run other values of data\.seed"),
    ],
)
def test_wrong_confirmations(text, message, folder):
    with pytest.raises(ConfigError, match=message):
        report.confirm(report.load(folder), *parse(text))


def test_a_setting_with_diverged_runs_never_wins(tmp_path):
    config = runs_of(("arfl", "fedavg", "median"), ("ipm", "alie", "min_max"))
    lost = lambda c: (
        c["server.aggregator"] == "arfl" and c["attack.kind"] == "ipm" and (c["data.seed"], c["seed"]) == (3, 0)
    )
    results = report.load(make_folder(tmp_path / "a", config, accuracy, diverged=lost))
    (table,) = report.accuracy_tables(results)
    arfl = next(row for row in table.rows if row.aggregator == "arfl")
    best = [row.aggregator for row in table.rows if row.entries[0].bold]
    assert arfl.entries[0].num_diverged == 1
    assert best == ["median"]  # although ARFL's mean is higher
    assert arfl.entries[0].mean > next(row for row in table.rows if row.aggregator == "median").entries[0].mean
    (worst,) = report.worst_tables(results)
    entry = next(row for row in worst.rows if row.aggregator == "arfl").entries[-1]
    assert entry.num_diverged == 1  # the attack that made a run diverge, although another one has a lower mean


def test_malicious_clients_of_their_own_are_a_scenario(tmp_path):
    keys = {"attack.kind": "ipm", "data.seed": 3}
    config = [run("fedavg", 0.0, seed, "none", **{"data.seed": 3}) for seed in SEEDS]
    config += [
        run("fedavg", f, seed, "shuffling", **keys | {"attack.fraction": share})
        for f in (0.0, 0.3)
        for share in (0.1, 0.2)
        for seed in SEEDS
    ]
    config += [run("fedavg", 0.3, seed, "shuffling", **keys) for seed in SEEDS]
    folder = make_folder(tmp_path / "a", config, accuracy)
    (table,) = report.accuracy_tables(report.load(folder))
    columns = ["Clean", "IPM by 10 %", "IPM by 20 %", "Shuffling + IPM by 10 % 30 %", "Shuffling + IPM by 20 % 30 %"]
    assert [column.label for column in table.columns] == [*columns, "Shuffling + IPM 30 %"]
    assert all(number.num_runs == 2 for number in table.rows[0].entries)
    assert [row["attack_fraction"] for row in report.summary(report.load(folder))] == [None, 0.1, 0.2, 0.1, 0.2, None]
