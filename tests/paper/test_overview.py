"""The overview page of all results."""

import pytest

from fedsim import paper
from fedsim.cli.main import main
from fedsim.paper.overview import DRAWS
from tests.paper.run_folders import lambda_runs, make_folder, rule, run


def repeat(runs, num_seeds):
    return [run_ | {"keys": run_["keys"] | {"seed": seed}} for run_ in runs for seed in range(num_seeds)]


def test_page_of_all_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "runs" / "a", "lambda-small", lambda_runs())
    make_folder(tmp_path / "runs" / "b", "lambda-digits", repeat(lambda_runs(), 3))
    make_folder(tmp_path / "runs" / "c", "quickstart", [run(rule("fedavg"), [10, 20])])
    make_folder(tmp_path / "runs" / "d", "bound", lambda_runs(), status="incomplete")
    read, names = paper.read, []
    monkeypatch.setattr(paper, "read", lambda folder: names.append(folder.path.name) or read(folder))
    assert main(["paper", "--page", "docs/results.md"]) == 0
    assert sorted(names) == ["a", "b"]  # each once
    files = capsys.readouterr().out.split()
    assert all((tmp_path / file).exists() for file in files)
    assert "docs/results/lambda-small-lambda.png" in files
    text = (tmp_path / "docs" / "results.md").read_text()
    row = "| `lambda` | Sec. 5.5, Fig. 5 | small | 7 of 7 claims hold (1 seed: preliminary) | +20.00 points | [below](#"
    assert row in text
    assert "(3 seeds) | +20.00 (all 3 are equal) points | [below](#lambda-budget-digits-sec-55-fig-5" in text
    claims = text.partition("## The paper's claims")[2].partition("## All pages")[0].splitlines()[4:-1]
    assert len(claims) == 2 * 7  # of both budgets
    assert claims[0].startswith("| [`lambda`](#lambda-budget-small-sec-55")
    assert claims[0].endswith(" | small | 1 | 1 | 1 of 1 seed | holds (preliminary) |")
    assert claims[-1].endswith(" | digits | 1 | 3 | 3 of 3 seeds | holds |")
    assert "\n## lambda (budget small), Sec. 5.5, Fig. 5" in text
    assert "](results/lambda-small-lambda.png)" in text
    assert "\n## lambda (budget digits), Sec. 5.5, Fig. 5" in text  # other data sets have a separate section

    (tmp_path / "docs" / "results" / "lambda-small.notes.md").write_text("Why it holds: [curves](curves.png).\n")
    make_folder(tmp_path / "other" / "e", "lambda", lambda_runs((60, 40, 50, 70)))
    assert main(["paper", "--runs", "other", "--page", "docs/results.md"]) == 0
    text = (tmp_path / "docs" / "results.md").read_text()
    assert "\n## lambda (budget paper), Sec. 5.5, Fig. 5" in text
    # Pages stay although their run folders are elsewhere.
    assert "[page](results/lambda-small.md), [notes](results/lambda-small.notes.md) |" in text
    assert "Why it holds" not in text
    (tmp_path / "docs" / "results" / "lambda-paper.md").unlink()
    assert main(["paper", "--runs", "runs", "--page", "docs/results.md"]) == 0
    assert "Why it holds: [curves](results/curves.png)." in (tmp_path / "docs" / "results.md").read_text()
    capsys.readouterr()
    assert main(["paper", "lambda", "--page", "docs/results.md"]) == 2
    assert "ends in .md" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("draws", "splits", "seeds"),
    [
        ("1 seed", None, "1"),
        ("up to 3 seeds of one split", None, "up to 3"),
        ("5 splits", "5", None),
        ("up to 5 splits x 3 seeds", "up to 5", "3"),
    ],
)
def test_splits_and_seeds_of_a_page(draws, splits, seeds):
    match = DRAWS.search(f"Measured: 100 rounds, {draws}; 2 x AMD EPYC, 5 min.")
    assert (match["splits"], match["seeds"]) == (splits, seeds)
