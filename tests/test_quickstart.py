"""The first thing a newcomer runs: its shape in full, its result on two seeds."""

from pathlib import Path

import pytest

import fedsim
from fedsim.engine.plan import group_runs

CONFIG = Path(__file__).parents[1] / "configs" / "quickstart.toml"


def test_one_program_a_rule():
    runs = fedsim.load(CONFIG).runs()
    assert len(runs) == 75
    assert [len(group) for group in group_runs(runs)] == [15] * 5


@pytest.mark.slow
def test_arfl_is_ahead_of_fedavg_by_five_points_at_half_corrupted(tmp_path):
    experiment = fedsim.load(
        CONFIG,
        server__aggregator=["fedavg", "arfl"],
        seed=[0, 1],
        corruption__kind="shuffling",
        corruption__fraction=0.5,
        arfl__lam=1.0,
    )
    rounds = fedsim.run(experiment, out=tmp_path / "out", progress=False).rounds.to_pandas()
    last = rounds[rounds["round"] == rounds["round"].max()]
    accuracy = last.pivot(index="seed", columns="aggregator", values="test_accuracy")
    assert (accuracy["arfl"] - accuracy["fedavg"]).mean() > 0.05
    assert accuracy["arfl"].min() > 0.85
