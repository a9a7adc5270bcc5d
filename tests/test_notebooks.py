"""The notebooks run, their claims hold, and they were saved after all cells were executed in order."""

import json
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def code_cells(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def execute():
    """Executes the code of a notebook in an empty folder; returns its variables."""

    def variables_of(name):
        code, variables = "\n".join("".join(cell["source"]) for cell in code_cells(name)), {}
        exec(compile(code, name, "exec"), variables)
        return variables

    plt.switch_backend("agg")
    with jax.numpy_rank_promotion("allow"):  # the default
        yield variables_of
    plt.close("all")


@pytest.mark.docs
def test_arfl_in_ten_minutes(execute):
    variables = execute("arfl_in_ten_minutes")
    assert np.max(variables["differences"]) < 1e-5  # to a general solver and to fedsim

    toy, num_examples, corrupted, apart = (
        variables[name] for name in ("toy_alpha", "num_examples", "corrupted", "apart")
    )
    np.testing.assert_allclose(toy.sum(axis=1), 1, rtol=1e-9)
    assert (toy[0] > 0).sum() == 1
    assert apart.any()
    assert (toy[apart][:, corrupted] == 0).all()
    np.testing.assert_allclose(toy[-1], num_examples / num_examples.sum(), atol=2e-3)

    runs = variables["experiment"].runs()
    assert len(runs) == 12
    fedavg, arfl = variables["runs"].values()
    assert (runs[fedavg].server.aggregator, runs[arfl].server.aggregator) == ("fedavg", "arfl")
    assert dict(runs[arfl].settings)["arfl.lam"] == pytest.approx(1)

    accuracy = variables["accuracy"][30].to_numpy()
    num_weights, on_corrupted = variables["num_weights"].to_numpy(), variables["on_corrupted"].to_numpy()
    assert accuracy[arfl] > accuracy[fedavg]
    assert on_corrupted[arfl] == 0
    assert on_corrupted[fedavg] > 0.1
    assert num_weights[1] == 1
    assert ((num_weights == 7) & (on_corrupted == 0)).any()
    assert num_weights[-1] == 10
    assert on_corrupted[-1] > 0.1
    assert accuracy[1:].argmax() not in (0, len(accuracy) - 2)


@pytest.mark.docs
def test_sweep(execute):
    variables = execute("sweep")
    assert (len(variables["experiment"].runs()), len(variables["groups"])) == (50, 1)
    accuracy, on_corrupted = (variables["grid"][name].to_numpy() for name in ("test_accuracy", "corrupted_weight"))
    assert accuracy.shape == (5, 5)  # lambda, rate; in percent
    assert (on_corrupted[1:3] == 0).all()
    assert (accuracy[1:3] > 88).all()
    assert (np.diff(on_corrupted[-1]) > 0).all()  # at large λ, corrupted clients have the weight of their number
    assert accuracy[-1, -1] < accuracy[2, -1]

    assert variables["num_traces"] == 2
    assert variables["difference"] < 0.05
    assert variables["mebibytes"]["in turn"] < variables["mebibytes"]["in lockstep"]


@pytest.mark.docs
def test_robustness(execute):
    variables = execute("robustness")
    assert (len(variables["plan"].runs), variables["num_programs"]) == (90, 1)
    rules, attacks = variables["rules"], variables["attacks"]
    summary = variables["summary"].fillna({"attack": "none"})
    accuracy = summary.pivot(index="aggregator", columns="attack", values="final_accuracy_mean")
    assert accuracy.loc["multi_krum", "sign_flip"] > 0.85
    assert accuracy.loc["fedavg", "sign_flip"] < 0.15
    assert (accuracy.loc["multi_krum", ["ipm", "min_max"]] < accuracy.loc["fedavg", ["ipm", "min_max"]] - 0.05).all()
    assert accuracy.loc["multi_krum", attacks].agg(["idxmax", "idxmin"]).to_list() == ["sign_flip", "min_max"]
    assert (accuracy["alie"] > accuracy["none"] - 0.05).all()
    worst = accuracy[attacks].min(axis=1)
    assert worst.idxmax() == "signguard"
    assert worst["arfl"] < 0.6
    np.testing.assert_allclose(variables["worst"].set_index("aggregator")["final_accuracy_mean"][rules], worst[rules])

    assert variables["accuracy"]("min_max").shape == (7, 3)  # evaluated rounds, seeds
    assert variables["num_selected"] == {"sign_flip": pytest.approx(0, abs=0.2), "min_max": pytest.approx(6, abs=0.2)}
    weight, share = variables["on_malicious"]["min_max"]
    assert weight > share + 0.1
    assert variables["weights"].loc["rfa", "alie"] > 50


@pytest.mark.parametrize("name", NAMES)
def test_cells_were_executed_in_order_without_an_error(name):
    code = code_cells(name)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    types = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert types <= {"stream", "display_data", "execute_result"}
