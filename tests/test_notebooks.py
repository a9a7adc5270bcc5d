"""The notebooks, executed, and what they claim; and that each .ipynb is what jupytext makes of its .py."""

import runpy
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

import fedsim

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.py"))


@pytest.fixture(autouse=True)
def _notebook_settings():
    """No window, rank promotion as JAX has it by default, and the names of rules as they were."""
    plt.switch_backend("agg")
    known = dict(fedsim.aggregators.AGGREGATORS)
    with jax.numpy_rank_promotion("allow"):
        yield
    fedsim.aggregators.AGGREGATORS.clear()
    fedsim.aggregators.AGGREGATORS.update(known)
    plt.close("all")


def execute(name: str) -> dict:
    """The variables that the notebook `name` leaves."""
    return runpy.run_path(str(NOTEBOOKS / f"{name}.py"))


def test_arfl_in_ten_minutes():
    result = execute("arfl_in_ten_minutes")
    assert np.max(result["differences"]) < 1e-5  # from a general solver, and from fedsim

    toy, counts, corrupted, apart = (result[name] for name in ("toy_alpha", "counts", "corrupted", "apart"))
    np.testing.assert_allclose(toy.sum(axis=1), 1, rtol=1e-9)
    assert (toy[0] > 0).sum() == 1
    assert apart.any()
    assert (toy[apart][:, corrupted] == 0).all()
    np.testing.assert_allclose(toy[-1], counts / counts.sum(), atol=2e-3)

    assert result["final_accuracy"]["ARFL"] > result["final_accuracy"]["FedAvg"]
    assert result["final_on_corrupted"]["ARFL"] == 0
    assert result["final_on_corrupted"]["FedAvg"] > 0.1

    num_weights, on_corrupted = np.asarray(result["num_weights"]), np.asarray(result["on_corrupted"])
    assert num_weights[0] == 1
    assert ((num_weights == 7) & (on_corrupted == 0)).any()
    assert num_weights[-1] == 10
    assert on_corrupted[-1] > 0.1
    assert np.asarray(result["accuracy"]).argmax() not in (0, len(num_weights) - 1)


def test_sweep():
    result = execute("sweep")
    assert result["num_traces"] == 2  # one of the grid, as the notebook asserts, and one of the runs in turn
    accuracy, on_corrupted = result["mean_accuracy"], result["mean_on_corrupted"]  # [λ, rate], in percent
    assert accuracy.shape == (5, 5)
    assert (on_corrupted[1:3] == 0).all()
    assert (accuracy[1:3] > 88).all()
    assert (np.diff(on_corrupted[-1]) > 0).all()  # at large λ, corrupted clients have the weight of their number
    assert accuracy[-1, -1] < accuracy[2, -1]
    assert result["difference"] < 0.05
    assert result["mebibytes"]["in turn"] < result["mebibytes"]["in lockstep"]
    assert (len(result["experiment_runs"]), len(result["groups"])) == (50, 1)


def test_own_aggregator():
    result = execute("own_aggregator")
    assert "weight on invalid clients" in result["caught"]
    assert result["plan"].runs[0].data.name == "digits"
    assert len(result["plan"].groups) == len(result["rules"])
    accuracy, on_corrupted = result["accuracy"], result["on_corrupted"]
    scenarios = {where for _, where in accuracy}
    assert set(accuracy) == {(rule, where) for rule in result["rules"] for where in scenarios}
    assert {"fedavg", "arfl", "trimmed_loss", "median"} == set(result["rules"])
    worst = "shuffling 50%"
    assert on_corrupted["arfl", worst] < on_corrupted["fedavg", worst]
    assert on_corrupted["trimmed_loss", worst] < on_corrupted["fedavg", worst]
    assert accuracy["arfl", worst] > accuracy["fedavg", worst]

    values = np.random.default_rng(0).normal(size=(6, 3, 2)).astype(np.float32)  # five valid clients, then four
    for valid in (np.arange(6) != 2, np.arange(6) > 1):
        zeroed = np.where(valid[:, None, None], values, 0)
        report = fedsim.CohortReport(np.arange(6), np.arange(1, 7), np.ones(6), {"w": zeroed}, valid)
        aggregate, _ = result["median"]().aggregate((), jax.tree.map(jax.numpy.asarray, report), jax.random.key(0))
        np.testing.assert_allclose(aggregate.update["w"], np.median(values[valid], axis=0), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_pairs_are_in_step(name):
    jupytext = pytest.importorskip("jupytext")
    script, notebook = (NOTEBOOKS / f"{name}.{ending}" for ending in ("py", "ipynb"))
    expected, found = jupytext.read(script), jupytext.read(notebook)
    content = lambda cells: [(cell.cell_type, cell.source, cell.metadata) for cell in cells]
    assert content(found.cells) == content(expected.cells), f"run: jupytext --to ipynb notebooks/{name}.py"
    assert jupytext.writes(found, "py:percent") == script.read_text(encoding="utf-8")
    for cell in found.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None), "strip the outputs"
