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
    experiment = fedsim.load(CONFIGS / f"{table}.toml", seed=SEEDS, **keys)
    runs = [flatten(run) for run in experiment.runs()]
    rounds = [
        {"run": number, "round": t, "test_accuracy": accuracy(run, t), "test_loss": 1.0, "corrupted_weight": 0.0}
        for number, run in enumerate(runs)
        for t in range(0, run["server.num_rounds"] + 1, run["server.num_rounds"] // 5)
    ]
    folder = write_folder(path, runs, {"rounds": rounds}, config=experiment.dump())
    return call(experiment.claims, report.load(folder)), runs


@pytest.mark.parametrize("table", [name for name in TABLES if (CONFIGS / f"{name}.toml").exists()])
def test_each_cell_has_its_runs_and_other_values_have_no_published_number(tmp_path, table):
    claims, _ = claims_of(tmp_path / "own", table)
    assert {claim.text for claim in claims} == {*TABLES[table]["cells"]}
    assert {claim.verdict for claim in claims} <= {"agrees", "near", "differs"}
    others, _ = claims_of(tmp_path / "other", table, data__num_train=20_000)
    assert all(", data.num_train = 20000" in claim.text for claim in others)
    assert {claim.verdict for claim in others} == {"-"}


def test_numbers_of_a_readme(tmp_path):
    claims, runs = claims_of(tmp_path, "readme", model__name=f"{CONFIGS}/models.py:readme_mlp", data__partition="iid")
    expected = [100 * np.mean([accuracy(run, t) for run in runs]) for t in (10, 50)]
    assert [claim.published for claim in claims] == ["94.57", "97.21"]
    np.testing.assert_allclose([np.mean(claim.numbers[0]) for claim in claims], expected)
