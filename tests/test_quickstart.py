"""The quickstart: its groups, and its result for two seeds."""

from pathlib import Path

import pytest

import fedsim
from fedsim.engine.families import group_runs

CONFIG = Path(__file__).parents[1] / "configs" / "quickstart.toml"


def test_groups_by_rule():
    runs = fedsim.load(CONFIG).runs()
    assert len(runs) == 75
    assert [len(group) for group in group_runs(runs)] == [15] * 5


@pytest.mark.slow
def test_arfl_beats_fedavg_with_half_of_the_clients_corrupted(tmp_path):
    experiment = fedsim.load(
        CONFIG,
        server__aggregator=fedsim.sweep(["fedavg", "arfl"]),
        seed=fedsim.sweep([0, 1]),
        corruption__kind="shuffling",
        corruption__fraction=0.5,
        arfl__lam=1.0,
    )
    rounds = fedsim.run(experiment, out=tmp_path / "out", progress=False).rounds.to_pandas()
    last = rounds[rounds["round"] == rounds["round"].max()]
    accuracy = last.pivot(index="seed", columns="aggregator", values="test_accuracy")
    assert (accuracy["arfl"] - accuracy["fedavg"]).mean() > 0.05
    assert accuracy["arfl"].min() > 0.85
