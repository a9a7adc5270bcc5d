"""Statistics of a synthetic run folder whose numbers are known, and curves over its rounds."""

import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fedsim import report
from fedsim.report.compare import byzantine_excess, detection
from fedsim.report.final import Final
from fedsim.report.html.contents import contents
from fedsim.report.metric import DETECTION, EXCESS
from fedsim.runs import privacy
from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import CLIENTS
from tests.report.synthetic import run, write_folder

RUNS = [run("arfl", 0.5, seed, **{"server.num_rounds": 50}) for seed in (3, 4)]
ROUND_NUMBERS = [0, 10, 20, 30, 40, 50]
ACCURACY = np.asarray([[0.1, 0.5, 0.71, 0.73, 0.7, 0.8], [0.2, 0.54, 0.5, 0.6, 0.5, 0.6]])


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """Two seeds of a setting; four clients of 10, 10, 20 and 20 examples, the last of each size corrupted."""
    rounds = [
        {
            "run": number,
            "round": t,
            "test_accuracy": ACCURACY[number, i],
            "test_loss": 1.0,
            "corrupted_weight": None if t == 0 else 0.25,
            "accuracy_p10": i / 10,
            "accuracy_p50": 0.5,
            "accuracy_p90": number / 2,
            "byzantine_excess": None if t == 0 else float(i == number == 1),
        }
        for number in range(2)
        for i, t in enumerate(ROUND_NUMBERS)
    ]
    # In the second half corrupted clients get less than by their counts, but for client 3 of the second run.
    late = {0: [0.3, 0.1, 0.5, 0.1], 1: [0.3, 0.0, 0.2, 0.5]}
    clients = [
        {
            "run": number,
            "round": t,
            "client_id": client,
            "num_examples": (10, 10, 20, 20)[client],
            "loss": 1.0,
            "weight": weight,
            "corrupted": client in (1, 3),
        }
        for number in range(2)
        for t in (10, 50)
        for client, weight in enumerate(late[number] if t == 50 else [0.0, 0.5, 0.0, 0.5])
    ]
    return write_folder(tmp_path / "made", RUNS, {"rounds": rounds, "clients": clients})


def test_summary(folder):
    (row,) = report.summary(report.load(folder))
    assert row["num_runs"] == 2
    assert row["final_accuracy_mean"] == pytest.approx(0.7)
    assert row["final_accuracy_std"] == pytest.approx(np.sqrt(0.02))  # ddof 1
    # Run 0: all pairs the right way. Run 1, relative to counts: benign 1.8 and 0.6, corrupted 0 and 1.5: 3 of 4 pairs.
    assert row["weight_auc_mean"] == pytest.approx((1 + 0.75) / 2)
    # Excluded: client 1 of the second run, of two corrupted; none in the first, whose precision is left out.
    assert row["exclusion_precision_mean"] == 1
    assert row["exclusion_recall_mean"] == pytest.approx((0 + 1 / 2) / 2)
    assert row["exclusion_false_positive_rate_mean"] == 0
    assert "epsilon" not in row
    assert [row[f"accuracy_p{p}_mean"] for p in (10, 50, 90)] == pytest.approx([0.5, 0.5, 0.25])
    assert row["byzantine_excess_mean"] == pytest.approx((0 + 10 / 50) / 2)  # of all rounds
    (row,) = report.summary(report.load(folder, final=Final("mean", 2)))
    assert [row[f"accuracy_p{p}_mean"] for p in (10, 50, 90)] == pytest.approx([0.45, 0.5, 0.25])
    assert row["byzantine_excess_mean"] == pytest.approx(0.1)
    results = report.load(folder)
    assert results.numbers(results.settings[0], EXCESS) == pytest.approx([0, 20])
    assert results.numbers(results.settings[0], DETECTION[0]) == pytest.approx([100, 75])
    (table,) = report.accuracy_tables(results)
    assert "ARFL: f was exceeded in up to 10 % of the rounds." in table.notes


def test_rounds_beyond_f_of_a_stopped_run():
    """After it was stopped, its rows are repeated without them."""
    rows = {"run": 0, "round": [0, 2, 4, 60], "byzantine_excess": [None, 0.0, 1.0, None]}
    assert byzantine_excess(pl.DataFrame(rows)).rows() == [(0, 0.5)]
    assert byzantine_excess(pl.DataFrame(rows | {"byzantine_excess": [None] * 4})).rows() == [(0, None)]


def test_detection_on_the_page(folder, monkeypatch):
    """Numbers over rounds as a whole; no precision if no client was excluded."""
    document = contents(report.load(folder))
    (entry,) = document["settings"]
    shown = {name: entry["final"][name]["text"] for name in ("weight_auc", "exclusion_precision", "exclusion_recall")}
    assert shown == {
        "weight_auc": "87.50 ± 17.68",
        "exclusion_precision": "100.00",
        "exclusion_recall": "25.00 ± 35.36",
    }
    hows = {metric["key"]: metric["how"].rpartition(", ")[2] for metric in document["metrics"]}
    assert set(hows) - set(entry["curves"]) == {metric.name for metric in DETECTION}
    assert (hows["accuracy"], hows["weight_auc"]) == ("after 50 rounds", "over the second half of the rounds")
    assert entry["final"]["byzantine_excess"]["text"] == "10.00 ± 14.14"
    assert hows["byzantine_excess"] == "over all rounds"
    monkeypatch.setattr(report.Results, "clients", report.load(folder).clients.with_columns(weight=0.25))
    (row,) = report.summary(report.load(folder))
    assert (row["exclusion_precision_mean"], row["exclusion_recall_mean"]) == (None, 0)
    (entry,) = contents(report.load(folder))["settings"]
    assert (entry["final"]["exclusion_recall"]["mean"], "exclusion_precision" in entry["final"]) == (0, False)


def test_epsilons_of_a_setting(tmp_path, monkeypatch):
    """The largest of its runs, after the last round."""
    runs = [run("norm_clipping", seed=seed, **{"norm_clipping.delta": 1e-5}) for seed in (0, 1)] + [run("rfa")]
    rounds = [
        {"run": number, "round": t, "test_accuracy": 0.5, "test_loss": 1.0} for number in range(3) for t in (0, 20)
    ]
    values = lambda number: {"sampling_rate": 0.1, "noise_multiplier": 3.0 + number, "delta": 1e-5}
    info = [
        {"run": number, "round": t, "name": name, "value": value}
        for number in (0, 1)
        for t in range(1, 21)
        for name, value in values(number).items()
    ]
    results = report.load(write_folder(tmp_path / "a", runs, {"rounds": rounds, "info": info}))
    private, other = report.summary(results)
    assert private["epsilon"] == privacy.epsilons([0.1] * 20, [3.0] * 20, 1e-5)[-1]
    assert private["epsilon_poisson"] == privacy.poisson_epsilons([0.1] * 20, [6.0] * 20, 1e-5)[-1]
    assert (other["epsilon"], other["epsilon_poisson"]) == (None, None)
    (table,) = report.accuracy_tables(results)
    (note,) = (note for note in table.notes if "privacy" in note)
    assert note in contents(results)["notes"]
    assert note.startswith("Norm clipping: client-level differential privacy at delta = 1e-05")
    assert f"epsilon = {private['epsilon']:.4g} for replace-one adjacency" in note
    assert f"epsilon = {private['epsilon_poisson']:.4g} for add-or-remove-one adjacency" in note
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    privacy._divergence.cache_clear()
    assert "epsilon" not in report.summary(results)[0]
    (table,) = report.accuracy_tables(results)
    assert any("pip install 'fedsim-jax[privacy]'" in note for note in table.notes)


def test_epsilons_are_those_of_the_rounds_that_are_shown(tmp_path):
    """Of an interrupted sweep over splits: one of them has rows up to round 10."""
    runs = [run("norm_clipping", **{"norm_clipping.delta": 1e-5, "data.seed": split}) for split in (0, 1)]
    lasts, values = (20, 10), {"sampling_rate": 0.1, "noise_multiplier": 3.0, "delta": 1e-5}
    rounds = [
        {"run": number, "round": t, "test_accuracy": 0.5, "test_loss": 1.0}
        for number, last in enumerate(lasts)
        for t in range(0, last + 1, 10)
    ]
    info = [
        {"run": number, "round": t, "name": name, "value": value}
        for number, last in enumerate(lasts)
        for t in range(1, last + 1)
        for name, value in values.items()
    ]
    folder = write_folder(tmp_path / "a", runs, {"rounds": rounds, "info": info}, is_complete=False)
    (row,) = report.summary(report.load(folder))
    assert row["epsilon"] == privacy.epsilons([0.1] * 10, [3.0] * 10, 1e-5)[-1]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=40))
def test_the_area_under_the_curve_is_that_of_scikit_learn(pairs):
    corrupted, weights = np.asarray([pair[0] for pair in pairs]), np.asarray([pair[1] for pair in pairs]) / 6
    assume(weights.any())
    columns = {"run": 3, "round": 1, "num_examples": 7, "weight": weights, "corrupted": corrupted, "malicious": False}
    expected = None if len(set(corrupted)) == 1 else pytest.approx(roc_auc_score(~corrupted, weights), abs=1e-12)
    assert detection(pl.DataFrame(columns))["weight_auc"].to_list() == [expected]


CLIENT = {
    "round": st.integers(1, 4),
    "num_examples": st.integers(0, 2),
    "weight": st.sampled_from([None, 0.0, 0.0, 0.4]),
    "corrupted": st.booleans(),
    "malicious": st.sampled_from([None, False, True]),
}


@given(st.lists(st.fixed_dictionaries(CLIENT), min_size=1, max_size=30))
def test_excluded_clients_are_counted_as_by_a_loop(clients):
    """In the second half of the rounds without skipped ones; a share of nothing, or precision for nothing, is null."""
    clients = [client for client in clients if client["weight"] is not None and client["num_examples"]]
    last = max((client["round"] for client in clients), default=0)
    used = {client["round"] for client in clients if client["round"] > last / 2 and client["weight"] > 0}
    counts = {(is_byzantine, is_excluded): 0 for is_byzantine in (False, True) for is_excluded in (False, True)}
    for client in clients:
        if client["round"] in used:
            counts[client["corrupted"] or client["malicious"] is True, client["weight"] == 0] += 1
    expected = [
        counts[at] / total if (total := counts[at] + counts[other]) else None
        for at, other in (
            ((True, True), (False, True)),  # precision
            ((True, True), (True, False)),  # recall
            ((False, True), (False, False)),  # false positive rate
        )
    ]
    if not counts[True, True] + counts[True, False]:
        expected[0] = None
    table = pl.DataFrame([{"run": 5} | client for client in clients], CLIENTS, strict=False)
    names = ("exclusion_precision", "exclusion_recall", "exclusion_false_positive_rate")
    rows = detection(table).select("run", *names).rows()
    assert rows == ([(5, *expected)] if used else [])


def test_curves_are_means_and_bands_extremes(folder):
    drawn = report.figures(report.load(folder))
    assert set(drawn) == {"accuracy", "loss", "corrupted_weight"}  # no alpha was recorded
    (panel,) = drawn["accuracy"].axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), 100 * ACCURACY.mean(0))
    band = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((10, 80))
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("Round", "Test accuracy (%)")
    assert panel.get_title() == "Shuffling 50 %"


def test_the_largest_share_of_rounds_beyond_f_is_noted(tmp_path):
    """Over the scenarios of a row."""
    runs, shares = [run("arfl", fraction) for fraction in (0.3, 0.5)], (0.2, 0.1)
    rounds = [
        {"run": n, "round": t, "test_accuracy": 0.5, "test_loss": 1.0, "byzantine_excess": shares[n] if t else None}
        for n in range(2)
        for t in (0, 20)
    ]
    (table,) = report.accuracy_tables(report.load(write_folder(tmp_path / "a", runs, {"rounds": rounds})))
    assert "ARFL: f was exceeded in up to 20 % of the rounds." in table.notes
