"""`as_xarray`: the cube contains every row."""

import sys

import numpy as np
import pytest

from fedsim import report
from fedsim.errors import FedsimError
from tests.report.synthetic import LAMS, SWEPT, make_folder, run, synthetic_accuracy


def test_xarray_holds_every_row(tmp_path):
    pytest.importorskip("xarray")
    clean = [run(rule, seed=seed, **{"arfl.lam": 1e4}) for rule in ("fedavg", "arfl") for seed in (0, 1)]
    short = [run("fedavg", 0.5, 2, **{"client.learning_rate": 0.5, "server.num_rounds": 10})]
    krum = [run("multi_krum", 0.5, **{"multi_krum.num_selected": number}) for number in (2, 3)]
    folder = make_folder(tmp_path / "a", [*SWEPT, *clean, *krum])
    other = make_folder(tmp_path / "b", short, diverged=lambda run: True)
    data = report.as_xarray(folder.path, other)
    assert list(data.test_accuracy.dims) == [
        "aggregator",
        "corruption",
        "fraction",
        "lam",
        "client_learning_rate",
        "server_num_rounds",
        "multi_krum_num_selected",
        "seed",
        "round",
    ]
    filled = 0
    for one_folder in (folder, other):
        runs = one_folder.read_manifest()["runs"]
        for row in one_folder.read("rounds").to_pylist():
            config = runs[row["run"]]
            place = {name: row[name] for name in ("aggregator", "corruption", "fraction", "seed", "round")}
            place |= {"client_learning_rate": config["client.learning_rate"]}
            place |= {"server_num_rounds": config["server.num_rounds"]}
            lams = [1e4] if row["corruption"] == "none" else LAMS
            is_krum = row["aggregator"] == "multi_krum"
            for lam in lams if row["lam"] is None else [row["lam"]]:
                for number in [config["multi_krum.num_selected"]] if is_krum else [2, 3]:
                    point = data.sel(place | {"lam": lam, "multi_krum_num_selected": number})
                    filled += 1
                    for name in data.data_vars:
                        expected = np.nan if row[name] is None else float(row[name])
                        np.testing.assert_equal(float(point[name]), expected)
    assert int(data.test_accuracy.notnull().sum()) == filled  # all other entries are missing
    assert data.attrs == {"name": "fedsim", "versions": "fedsim 0, jax 1", "device": "kind cpu"}


def test_xarray_without_lambda_and_without_xarray(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "a", [run("fedavg"), run("fedavg", **{"data.name": "cifar10"})])
    pytest.importorskip("xarray")
    data = report.as_xarray(folder)
    assert data.data.values.tolist() == ["digits", "cifar10"]
    assert float(data.test_accuracy.isel(data=0, round=-1).squeeze()) == pytest.approx(
        synthetic_accuracy(run("fedavg"), 20)
    )
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(FedsimError, match=r"pip install 'fedsim-jax\[notebook\]'"):
        report.as_xarray(folder)


def test_names_of_plugins_in_the_cube(tmp_path):
    pytest.importorskip("xarray")
    plugins = {"server.aggregator": "rules.py:tau_mean", "tau_mean.tau": 0.5, "model.name": "nets.py:wide"}
    data = report.as_xarray(make_folder(tmp_path / "a", [run("fedavg"), run("fedavg") | plugins]))
    assert data.aggregator.values.tolist() == ["fedavg", "tau_mean"]
    assert data.model_name.values.tolist() == ["mlp", "wide"]
    values_of_plugin = data.sel(aggregator="tau_mean", model_name="wide", round=20).test_accuracy
    assert float(values_of_plugin.squeeze()) == pytest.approx(synthetic_accuracy(run("fedavg") | plugins, 20))
