"""The catalog of results, pages of incomplete runs, and the command line."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsim import paper
from fedsim.cli.main import main
from fedsim.config import toml
from fedsim.paper.analyses import ANALYSES
from fedsim.paper.catalog import BUDGETS, RESULTS, parse_name, rank
from tests.paper.run_folders import lambda_runs, make_folder, rule, run, verdicts

CONFIGS = Path(__file__).parents[2] / "configs" / "paper"


def test_each_result_has_a_configuration_and_an_analysis():
    assert set(RESULTS) == set(ANALYSES) == {path.stem for path in CONFIGS.glob("*.toml")}
    for result in RESULTS.values():
        path = CONFIGS / f"{result.id}.toml"
        for budget in ("paper", *tomllib.loads(path.read_text())["preset"]):
            experiment = toml.read(path, preset=budget)
            assert parse_name(experiment.name) == (result, budget)
            assert rank(budget) < len(BUDGETS)
            assert experiment.runs()


def test_names():
    assert parse_name("table2-cifar10") == (RESULTS["table2-cifar10"], "paper")
    assert parse_name("fraction-femnist") == (RESULTS["fraction-femnist"], "paper")
    assert parse_name("fraction-femnist-small") == (RESULTS["fraction-femnist"], "small")
    assert parse_name("quickstart") is None
    assert parse_name("small") is None


@pytest.mark.parametrize("id_", RESULTS)
def test_page_of_incomplete_run_shows_claims_that_were_not_run(tmp_path, id_):
    folder = make_folder(tmp_path / id_, f"{id_}-small", [run(rule("cfl", "exclude", 0.5), [10, 20])])
    page = paper.make_page(folder)
    assert page.budget == "small"
    assert page.claims
    assert set(verdicts(page.claims)) == {"not run"}
    assert paper.write_page(folder) is not None
    assert "not run" in (folder.path / "paper.md").read_text()


@pytest.mark.parametrize("id_", RESULTS)
def test_page_of_diverged_runs(tmp_path, id_):
    keys = {"data.name": id_.removeprefix("table2-")} if id_.startswith("table2") else {}
    runs = [run(rule("arfl", "shuffling", 0.5, **keys) | {"arfl.lam": lam}, [10, np.nan]) for lam in (1.0, 2.0)]
    assert paper.write_page(make_folder(tmp_path / id_, id_, runs)) is not None


@pytest.mark.parametrize("id_", RESULTS)
def test_page_without_rounds(tmp_path, id_):
    keys = {"data.name": id_.removeprefix("table2-")} if id_.startswith("table2") else {}
    folder = make_folder(tmp_path / id_, id_, [run(rule("arfl", "shuffling", 0.5, **keys), [10])])
    assert paper.write_page(folder) is not None
    assert paper.make_figures(paper.make_page(folder)) is not None


def test_page_of_a_run_that_was_stopped(tmp_path):
    """Its manifest has no durations yet."""
    page = paper.make_page(make_folder(tmp_path / "a", "lambda", lambda_runs()))
    assert page.machine == "2 x cpu, jax 0.10.2, 2 min"
    manifest = {key: value for key, value in page.results.manifests[0].items() if not key.startswith("seconds")}
    stopped = replace(page.results, manifests=(manifest | {"status": "incomplete"},))
    assert page._replace(results=stopped).machine == "2 x cpu, jax 0.10.2, not complete"


def test_page_of_other_folder(tmp_path):
    folder = make_folder(tmp_path / "mine", "quickstart", lambda_runs())
    assert paper.write_page(folder) is None
    assert not (folder.path / "paper.md").exists()


def test_page(tmp_path):
    folder = make_folder(tmp_path / "lambda", "lambda-small", lambda_runs())
    paper.write_page(folder)
    text = (folder.path / "paper.md").read_text()
    assert text.startswith("# lambda (budget small), Sec. 5.5, Fig. 5: weights and accuracy over lambda\n")
    assert "Command: `fedsim run configs/paper/lambda.toml --preset small`. Measured: 1 rounds, 1 seed" in text
    assert "; 2 x cpu, jax 0.10.2, 2 min. Complete configuration" in text
    settings = ("At the smallest λ a single client has all the weight", "Sec. 5.5: one client", "1 at λ = 0.1 M")
    assert f"| {' | '.join(settings)} | 1 of 1 seed | holds (preliminary) |" in text
    assert (folder.path / "figures" / "paper-lambda.png").exists()


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "runs" / "complete", "lambda", lambda_runs())
    make_folder(tmp_path / "runs" / "incomplete", "bound-small", lambda_runs(), status="incomplete")
    (tmp_path / "runs" / "empty").mkdir()
    assert main(["paper"]) == 0
    shown = capsys.readouterr().out
    assert all(result.id in shown for result in RESULTS.values())
    assert re.search(r"runs/incomplete .* small .* 0 of 2 groups", shown)
    assert re.search(r"runs/complete .* paper .* complete .* 7 of 7 claims", shown)
    assert main(["paper", "lambda", "--runs", "runs/complete"]) == 0
    shown = capsys.readouterr().out
    assert "fedsim run configs/paper/lambda.toml --preset small" in shown  # configs/ is not here
    assert "λ ≤ 2.5 M" in shown
    assert "incomplete" not in shown
    assert main(["report", "runs/complete", "--format", "latex"]) == 0  # writes the page in any format
    assert (tmp_path / "runs" / "complete" / "paper.md").exists()
    assert main(["paper", "lamda"]) == 2
    assert "lamda; did you mean lambda?" in capsys.readouterr().err
    assert main(["paper", "--runs", "nowhere"]) == 2
