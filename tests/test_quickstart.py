"""The first thing a newcomer runs: its shape in full, its result on two seeds."""

from pathlib import Path

import numpy as np

from fedsim.config.toml import load
from fedsim.engine.experiment import Progress, run
from fedsim.engine.plan import make_plan
from fedsim.report import cells

CONFIG = Path(__file__).parents[1] / "configs" / "quickstart.toml"


def test_one_program_a_rule():
    plan = make_plan(load(CONFIG))
    assert len(plan.runs) == 75
    assert [len(group.runs) for group in plan.groups] == [15] * 5


def test_arfl_is_ahead_of_fedavg_by_five_points_at_half_corrupted(tmp_path):
    overrides = {
        "sweep.server.aggregator": ["fedavg", "arfl"],
        "sweep.seed": ["0", "1"],
        "corruption.kind": "shuffling",
    }
    plan = make_plan(load(CONFIG, overrides | {"corruption.fraction": "0.5", "arfl.lam": "1.0"}))
    accuracy = {cell.aggregator: cell.accuracy for cell in cells.read(run(plan, tmp_path / "out", Progress())).cells}
    assert np.mean(accuracy["arfl"][:, -1] - accuracy["fedavg"][:, -1]) > 0.05
    assert accuracy["arfl"][:, -1].min() > 0.85
