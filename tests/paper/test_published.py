"""Published tables on runs with random accuracies: each cell is found, and compared with the right numbers."""

import json
from zlib import crc32

import numpy as np
import pytest

import fedsim
from fedsim import report
from fedsim.config.components import flatten
from fedsim.report.claims import call
from tests.docs.pages import ROOT
from tests.report.synthetic import write_folder

CONFIGS = ROOT / "configs" / "published"
TABLES = json.loads((CONFIGS / "tables.json").read_text())
SEEDS = fedsim.sweep([5, 6])


def accuracy(run, t):
    """Any number that differs between runs and rounds, the same in each process."""
    return crc32(repr((run, t)).encode()) / 2**32


def claims_of(path, table, **keys):
    """The claims of all runs of a configuration, evaluated six times, and the runs."""
    experiment = fedsim.load(CONFIGS / f"{table}.toml", **{"seed": SEEDS} | keys)
    runs = [flatten(run) for run in experiment.runs()]
    values = lambda run, t: {"test_accuracy": accuracy(run, t), "test_loss": accuracy(run, -t), "corrupted_weight": 0.0}
    rounds = [
        {"run": number, "round": t} | values(run, t)
        for number, run in enumerate(runs)
        for t in range(0, run["server.num_rounds"] + 1, run["server.num_rounds"] // 5)
    ]
    sizes = [run["data.num_clients"] for run in runs]
    folder = write_folder(path, runs, {"rounds": rounds}, num_clients=sizes, config=experiment.dump())
    return call(experiment.claims, report.load(folder)), runs


def is_there(table):
    return (CONFIGS / f"{table}.toml").exists()


@pytest.mark.parametrize("table", [table for table in TABLES if is_there(table) and table != "flanders"])
def test_each_cell_has_its_runs_and_other_values_have_no_published_number(tmp_path, table):
    claims, _ = claims_of(tmp_path / "own", table)
    without = " sybil" if table == "foolsgold" else "nothing"  # the attack rate is not in these rows
    assert {claim.text for claim in claims} == {
        name for name in TABLES[table]["cells"] if not (without in name and name.endswith("rate"))
    }
    assert {claim.verdict for claim in claims} <= {"agrees", "near", "differs"}
    others, _ = claims_of(tmp_path / "other", table, data__num_train=20_000)
    assert all(", data.num_train = 20000" in claim.text for claim in others)
    assert {claim.verdict for claim in others} == {"-"}


def test_numbers_of_a_readme(tmp_path):
    claims, runs = claims_of(tmp_path, "readme", model__name=f"{CONFIGS}/models.py:readme_mlp", data__partition="iid")
    expected = [100 * np.mean([accuracy(run, t) for run in runs]) for t in (10, 50)]
    assert [claim.published for claim in claims] == ["94.57", "97.21"]
    np.testing.assert_allclose([np.mean(claim.numbers[0]) for claim in claims], expected)


def test_signs_of_tables_without_numbers(tmp_path):
    """FLANDERS: by the best accuracy; label poisoning: where nodes have one class."""
    claims, runs = claims_of(tmp_path / "flanders", "flanders", seed=fedsim.sweep([5, 6, 7]))
    assert len(claims) == 4 * 4 + 1  # the rules under attack, and Multi-Krum without any
    of = lambda rule: [run for run in runs if (run["server.aggregator"], run["attack.kind"]) == (rule, "fang")]
    best = lambda rule: [100 * max(accuracy(run, t) for t in range(10, 51, 10)) for run in of(rule)]
    (claim,) = (claim for claim in claims if claim.text == "Bulyan is above FedAvg, OPT")
    np.testing.assert_allclose(claim.numbers[0], np.subtract(best("bulyan"), best("fedavg")))
    assert claim.published == "+17 points"
    claims, _ = claims_of(tmp_path / "poisoning", "label-poisoning")
    assert [claim.verdict for claim in claims].count("-") == 4  # IID and Dirichlet, for comparison
    assert sum("the mean is above" in claim.text for claim in claims) == 2 * 4
