"""The introductory example: angles of lines, and a real run."""

import numpy as np
import pytest

import fedsim
from fedsim import paper
from fedsim.config import toml
from fedsim.engine import make_plan, run_plan
from fedsim.paper import introductory_example
from tests.paper.run_folders import verdicts
from tests.paper.test_pages import CONFIGS


@pytest.mark.parametrize(("normal", "angle"), [((1, 1), 0), ((-3, -3), 180), ((1, 0), 45)])
def test_angles(normal, angle):
    assert introductory_example.SeparatingLine(np.asarray(normal, float), 0.0).angle == pytest.approx(angle, abs=1e-5)


def test_introductory_example(tmp_path):
    """FedAvg alone, fewer rounds and scenarios, with the data that were trained on and without."""
    keys = {"server.aggregator": "fedavg", "server.num_rounds": 20, "server.eval_every": 20}
    keys["corruption.kind"] = fedsim.sweep(["none", "flipping"])
    experiment = toml.read(CONFIGS / "intro.toml", keys)
    folder = run_plan(make_plan(experiment), tmp_path / "intro")
    page = paper.make_page(folder)
    assert verdicts(page.claims) == ["holds", "not run", "not run", "holds", "not run"]
    flipped = introductory_example.read_examples(page.results, "flipping")
    assert len(set(flipped.y[:60])) == 1  # client 0, as trained on
    assert set(flipped.y[60:]) == {0, 1}
    assert flipped.corrupted.tolist() == [True, False, False]
    assert set(introductory_example.read_examples(page.results, "none").y[:60]) == {0, 1}
    (figure,) = introductory_example.figures(page.results).values()
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == ["Clean", "Labels of client 0 all one class"]
    for path in (folder.path / "data").iterdir():
        path.unlink()
    assert introductory_example.figures(page.results) == {}
    assert paper.make_page(folder).claims == page.claims
