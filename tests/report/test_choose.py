"""Selection of swept values on validation data, and of final evaluations, against brute force."""

import csv
import math
from itertools import product

import numpy as np
import polars as pl
import pytest

from fedsim import report
from fedsim.cli.main import _dispatch, main
from fedsim.errors import ConfigError
from fedsim.report.final import Final, parse
from fedsim.report.worst import worst_tables
from tests.report.pages import accuracy, validation
from tests.report.synthetic import make_folder, run

ATTACKS, SHARES, SEEDS, RATES, TAUS = ("ipm", "alie", "mimic"), (0.2, 0.4), (0, 1), (0.01, 0.1, 1.0), (1.0, 10.0)


def runs():
    scenarios = [(0.0, "none"), *product(SHARES, ATTACKS)]
    configurations = []
    for (share, attack), seed, rate in product(scenarios, SEEDS, RATES):
        keys = {"attack.kind": attack, "client.learning_rate": rate}
        configurations.append(run("median", share, seed, "none", **keys))
        configurations += [
            run("centered_clipping", share, seed, "none", **keys, **{"centered_clipping.tau": t}) for t in TAUS
        ]
    return configurations


RUNS = runs()
KEYS = ("client.learning_rate", "centered_clipping.tau")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("choose") / "a", RUNS, accuracy, validation=validation)


def mean_of(metric, rule, values, share, attack, t=20):
    def matches(run):
        scenario_attack = run["attack.kind"] if share else "none"
        scenario = run["server.aggregator"], run["corruption.fraction"], scenario_attack
        return scenario == (rule, share, attack) and all(run[key] == value for key, value in values.items())

    percentages = [100 * metric(run, t) for run in RUNS if matches(run)]
    assert len(percentages) == len(SEEDS)
    return np.mean(percentages)


def options(rule):
    taus = TAUS if rule == "centered_clipping" else (None,)
    pairs = product(RATES, taus)
    return [{KEYS[0]: rate} | ({} if tau is None else {KEYS[1]: tau}) for rate, tau in pairs]


@pytest.mark.parametrize("by", ["validation", "test"])
@pytest.mark.parametrize("per", ["worst", "scenario"])
def test_the_best_values_are_chosen(folder, by, per):
    results = report.choose(report.load(folder), KEYS, by, per)
    assert len(results.settings) == 2 * 7
    metric = validation if by == "validation" else accuracy
    optimism = []
    for rule, share in product(("median", "centered_clipping"), (0.0, *SHARES)):
        attacks = ATTACKS if share else ("none",)
        for group in [attacks] if per == "worst" else [(attack,) for attack in attacks]:
            worst = lambda values, metric, r=rule, s=share, g=group: min(
                mean_of(metric, r, values, s, attack) for attack in g
            )
            best = max(options(rule), key=lambda values: worst(values, metric))
            on_test = max(worst(values, accuracy) for values in options(rule))
            optimism.append(on_test - worst(best, accuracy))
            for attack in group:
                key = (rule, share, attack)
                (setting,) = (c for c in results.settings if (c.aggregator, c.fraction, c.attack) == key)
                assert dict(setting.chosen) == best
                assert setting.swept_values == ()
                assert results.number(setting)["mean"] == pytest.approx(mean_of(accuracy, rule, best, share, attack))
    assert sorted(c.optimism for c in results.selection.choices) == pytest.approx(sorted(optimism))
    assert min(c.optimism for c in results.selection.choices) >= 0
    assert (max(optimism) == 0) == (by == "test")


def test_tables_and_files_show_what_was_chosen(folder, tmp_path, capsys, no_figures):
    assert main(["report", str(folder.path), "--choose", *KEYS, "--out", str(tmp_path / "chosen")]) == 0
    assert "the worst attack at each share" in " ".join(capsys.readouterr().out.split())
    results = report.choose(report.load(folder), KEYS)
    (table,) = worst_tables(results)
    assert [row.name for row in table.rows] == ["Median", "Centered clipping"]
    sentence = "client.learning_rate, centered_clipping.tau: chosen on validation data"
    assert any(note.startswith(sentence) for note in table.notes)
    assert any(note.startswith("Median: client.learning_rate=") for note in table.notes)
    gains = [choice.optimism for choice in results.selection.choices]
    gain = f"Choosing on the test set would show up to {max(gains):.2f} percentage points more, {np.mean(gains):.2f} on"
    assert any(note.startswith(gain) for note in table.notes)
    summary = list(csv.DictReader((tmp_path / "chosen" / "summary.csv").open()))
    assert len(summary) == 14
    assert all("client.learning_rate=" in row["chosen"] and row["settings"] == "" for row in summary)


@pytest.mark.parametrize(
    ("number", "num_lost", "is_marked"),
    [(math.nan, 1, False), (math.nan, 5, True), (0.1, 1, True)],  # a classifier that has diverged guesses
)
def test_a_value_with_a_diverged_run_is_not_chosen_though_its_mean_is_the_best(number, num_lost, is_marked, tmp_path):
    runs = [run("median", seed=seed, **{KEYS[0]: rate}) for seed in range(5) for rate in RATES]
    lost = lambda run: run["seed"] < num_lost and run[KEYS[0]] == 1.0
    has_diverged = lambda run: lost(run) and is_marked
    value = lambda run, t: number if lost(run) else 0.5 + run[KEYS[0]] / 3
    results = report.load(make_folder(tmp_path / "a", runs, value, has_diverged, validation=value))
    (setting,) = report.choose(results, KEYS[:1]).settings
    assert setting.chosen == ((KEYS[0], 0.1),)


def test_the_unit_of_a_choice_is_the_split(tmp_path):
    """Split 0 has three seeds and split 1 has one: 0.1 is better over runs, and 1.0 over splits."""
    draws = [(0, 0), (0, 1), (0, 2), (1, 0)]
    runs = [run("median", seed=seed, **{"data.seed": s, KEYS[0]: rate}) for s, seed in draws for rate in (0.1, 1.0)]
    value = lambda run, t: {(0, 0.1): 0.6, (1, 0.1): 0.2, (0, 1.0): 0.5, (1, 1.0): 0.4}[run["data.seed"], run[KEYS[0]]]
    results = report.load(make_folder(tmp_path / "a", runs, value, validation=value))
    over_runs = {rate: np.mean([value(run, 20) for run in runs if run[KEYS[0]] == rate]) for rate in (0.1, 1.0)}
    assert over_runs[0.1] > over_runs[1.0]
    (setting,) = report.choose(results, KEYS[:1]).settings
    assert setting.chosen == ((KEYS[0], 1.0),)


def test_a_clean_scenario_is_chosen_by_itself(tmp_path):
    """Malicious clients that are a set of their own leave the share of corrupted ones at 0; theirs is what counts."""
    accuracies = {("none", 0.1): 0.90, ("none", 1.0): 0.95, ("ipm", 0.1): 0.80, ("ipm", 1.0): 0.30}
    keys = {"none": {}, "ipm": {"attack.kind": "ipm", "attack.fraction": 0.2}}
    runs = [run("median", 0.0, 0, "none", **keys[attack], **{KEYS[0]: rate}) for attack, rate in accuracies]
    value = lambda run, t: accuracies[run["attack.kind"], run[KEYS[0]]]
    chosen = report.choose(report.load(make_folder(tmp_path / "a", runs, value, validation=value)), KEYS[:1])
    assert [(choice.where, dict(choice.values)[KEYS[0]]) for choice in chosen.selection.choices] == [
        ("Clean", 1.0),
        ("20 %", 0.1),
    ]


def test_a_lambda_that_follows_the_attack_is_one_choice(tmp_path):
    """The worst attack is 0.5 at the best for a rate of 0.1, and 0.4 for 1.0, whatever the lambda is."""
    accuracies = {("ipm", 0.1): 0.5, ("ipm", 1.0): 0.8, ("alie", 0.1): 0.7, ("alie", 1.0): 0.4}
    lams = {"ipm": 1.0, "alie": 10.0}
    runs = [
        run("arfl", 0.3, 0, "none", **{"attack.kind": attack, "arfl.lam": lams[attack], KEYS[0]: rate})
        for attack, rate in accuracies
    ]
    value = lambda run, t: accuracies[run["attack.kind"], run[KEYS[0]]]
    chosen = report.choose(report.load(make_folder(tmp_path / "a", runs, value, validation=value)), KEYS[:1])
    assert [setting.chosen for setting in chosen.settings] == [((KEYS[0], 0.1),)] * 2
    assert len(chosen.selection.choices) == 1


def test_what_was_chosen_is_told_by_lambda(tmp_path):
    best = {1.0: 0.1, 10.0: 1.0}
    runs = [run("arfl", seed=0, **{"arfl.lam": lam, KEYS[0]: rate}) for lam in best for rate in (0.1, 1.0)]
    value = lambda run, t: 0.8 if best[run["arfl.lam"]] == run[KEYS[0]] else 0.6
    results = report.load(make_folder(tmp_path / "a", runs, value, validation=value))
    (table,) = report.accuracy_tables(report.choose(results, KEYS[:1]))
    told = [note for note in table.notes if note.startswith("ARFL")]
    assert told == [f"ARFL, λ = {lam:g} M: client.learning_rate={rate}." for lam, rate in best.items()]


def test_notes_below_differences_and_losses(tmp_path):
    runs = [run(rule, 0.3, seed, **{KEYS[0]: rate}) for rule in ("arfl", "rfa") for rate in RATES for seed in SEEDS]
    loss = lambda run, t: 1 + validation(run, t)
    results = report.load(make_folder(tmp_path / "a", runs, lambda run, t: math.nan, loss=loss, validation=loss))
    chosen = report.choose(results, KEYS[:1], "test")
    (table,), (paired,) = report.accuracy_tables(chosen), report.paired_tables(chosen)
    assert chosen.selection.sentence in table.notes
    assert paired.notes == ("No interval and no test, fewer than 3 seeds: all numbers.", *table.notes)
    results = report.choose(results, KEYS[:1])  # the validation loss of these runs is 1 - loss: it chooses the worst
    gain = max(choice.optimism for choice in results.selection.choices)
    note = report.accuracy_tables(results)[0].notes[-1]
    assert note.startswith(f"Choosing on the test set would show a test loss that is lower by up to {gain:.4f}, ")


DATA = {  # keys of the data or a threat, with the two values that each is swept over
    "dirichlet.alpha": (0.1, 1.0),
    "data.partition": ("iid", "dirichlet"),
    "data.num_clients": (10, 20),
    "symmetric.rate": (0.2, 0.4),
    "corruption.rounding": ("nearest", "down"),
    "gaussian.std": (1.0, 2.0),
    "attack.fraction": (0.1, 0.2),
    "data.seed": (0, 1),
}
OTHER_KEYS = {
    "dirichlet.alpha": {"data.partition": "dirichlet"},
    "symmetric.rate": {"kind": "symmetric"},
    "gaussian.std": {"attack.kind": "gaussian"},
    "attack.fraction": {"attack.kind": "ipm"},
}


@pytest.mark.parametrize("key", DATA)
def test_keys_of_the_scenario_are_columns_and_no_choice(key, tmp_path):
    """Rules are rows, values of the data or the threat are columns, in which rules are paired."""
    places = list(product(("arfl", "fedavg"), RATES, DATA[key], (0, 1, 2)))
    runs = [
        run(rule, 0.3, seed, **{**OTHER_KEYS.get(key, {}), "client.learning_rate": rate, key: value})
        for rule, rate, value, seed in places
    ]
    results = report.load(make_folder(tmp_path / "a", runs, validation=validation))
    with pytest.raises(ConfigError, match=f"--choose: .*not of the scenario, got {key}; choose among client.learning"):
        report.choose(results, [KEYS[0], key])
    (table,) = report.accuracy_tables(report.choose(results, KEYS[:1]))
    assert [row.name for row in table.rows] == ["FedAvg", "ARFL"]
    is_draw = key == "data.seed"
    assert len(table.columns) == (1 if is_draw else 2)
    if key not in ("attack.fraction", "data.seed"):
        assert [f"{key}={value}" in column.label for column, value in zip(table.columns, DATA[key], strict=True)]
    pairs = report.differences(results)
    assert len(pairs) == len(RATES) * len(table.columns)
    assert all(d.setting.scenario == d.baseline.scenario for d in pairs)


def test_each_rule_has_a_figure_over_a_key_of_the_data(tmp_path):
    """And the worst attack is that of each value of the key."""
    alphas = (0.1, 1.0, 10.0)
    value = lambda run, t: 0.5 + run["dirichlet.alpha"] / 100 - 0.1 * (run["attack.kind"] == "alie")
    keys = lambda alpha, attack: {"data.partition": "dirichlet", "dirichlet.alpha": alpha, "attack.kind": attack}
    grid = product(("arfl", "fedavg"), alphas, ATTACKS)
    runs = [run(rule, 0.2, 0, "none", **keys(alpha, attack)) for rule, alpha, attack in grid]
    results = report.load(make_folder(tmp_path / "a", runs, value))
    panels = report.figures(results)["accuracy_over_dirichlet-alpha"].axes
    assert [panel.get_title() for panel in panels] == ["IPM 20 %", "ALIE 20 %", "Mimic 20 %"]
    assert panels[1].lines[0].get_ydata() == pytest.approx([40.1, 41, 50])
    worst = worst_tables(results)
    assert [table.title.rpartition(", ")[2] for table in worst] == [f"dirichlet.alpha={alpha}" for alpha in alphas]
    means = [[number.mean for row in table.rows for number in row.entries] for table in worst]
    assert means == [pytest.approx([mean] * 2) for mean in (40.1, 41, 50)]


def test_invalid_choices(folder, tmp_path):
    results = report.load(folder)
    for key in ("client.epochs", "arfl.lam", "seed", "attack.kind", "corruption.fraction"):
        with pytest.raises(ConfigError, match=rf"--choose: .* got {key}; choose among client.learning_rate"):
            report.choose(results, [key])
    plain = report.load(make_folder(tmp_path / "a", RUNS[:18]))
    with pytest.raises(ConfigError, match=r"--choose: .* run them with data.validation_fraction"):
        report.choose(plain, KEYS[:1])
    assert len(report.choose(plain, KEYS[:1], "test").settings) < len(plain.settings)
    median = [run for run in RUNS if run["server.aggregator"] == "median" and run["corruption.fraction"] == 0.2]
    incomplete = [run for run in median if RATES.index(run[KEYS[0]]) != ATTACKS.index(run["attack.kind"])]
    partial = report.load(make_folder(tmp_path / "b", incomplete, accuracy, validation=validation))
    with pytest.raises(
        ConfigError, match=r"no value of client.learning_rate was run in all 3 scenarios of Median at 20"
    ):
        report.choose(partial, KEYS[:1])
    assert len(report.choose(partial, KEYS[:1], per="scenario").settings) == 3
    with pytest.raises(ConfigError, match="--choose KEY"):
        _dispatch(["report", str(folder.path), "--by", "test"])


def test_runs_that_diverge_within_a_mean_of_evaluations_are_counted(tmp_path):
    at_10 = pl.col("round") == 10
    lose = lambda rows: rows.with_columns(pl.when(~at_10).then("test_loss").alias("test_loss"), diverged=at_10)
    results = report.load(make_folder(tmp_path / "a", [run("rfa")], change=lose), final=Final("mean", 2))
    assert results.number(results.settings[0])["num_diverged"] == 1


@pytest.mark.parametrize("text", ["last", "mean:2", "best"])
def test_final(folder, text):
    results = report.load(folder, final=text)
    times = {"last": "after 20 rounds", "mean:2": "over the last 2 evaluations of 20 rounds"}
    times |= {"best": "at the round that is best on validation data, of 20 rounds"}
    (table,) = report.accuracy_tables(results)
    assert table.title == f"Test accuracy (%) {times[text]}"
    summary = report.summary(results)
    for setting, row in zip(results.settings, summary, strict=True):
        expected = []
        for settings in (RUNS[number] for number in setting.runs):
            by_round = {t: accuracy(settings, t) for t in (0, 10, 20)}
            best = max(by_round, key=lambda t, settings=settings: validation(settings, t))
            expected.append(
                {"last": by_round[20], "mean:2": (by_round[10] + by_round[20]) / 2, "best": by_round[best]}[text]
            )
        assert row["final_accuracy_mean"] == pytest.approx(np.mean(expected))
        assert row["final"] == text


def test_invalid_final(folder, tmp_path):
    assert parse("mean:3") == Final("mean", 3)
    for wrong in ("mean", "mean:0", "mean:x", "first", "best:2"):
        with pytest.raises(ConfigError, match=f"--final: .* got {wrong}"):
            parse(wrong)
    with pytest.raises(ConfigError, match=r"--final: .* mean:2, .* got mean:3"):
        report.load(folder, final=Final("mean", 3))
    initial = make_folder(tmp_path / "initial", RUNS[:1], change=lambda rounds: rounds.filter(round=0))
    with pytest.raises(ConfigError, match=r"--final: must be last, as no round is evaluated, got mean:1"):
        report.load(initial, final=Final("mean", 1))
    with pytest.raises(ConfigError, match="--final: best"):
        report.load(make_folder(tmp_path / "a", RUNS[:1]), final=Final("best"))
