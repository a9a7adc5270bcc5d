"""The conclusions about robustness: the pages show what the committed rows say, and numbers are by split."""

import re
from collections import Counter

import numpy as np

from fedsim import report
from fedsim.report.claims import format_mean
from tests.conftest import load_script
from tests.docs.pages import text_of
from tests.paper.test_results import MAKE

CLAIMS = load_script(MAKE.ROBUSTNESS / "claims.py")


def test_parts_that_were_not_run():
    """Without nearest-neighbor mixing, only the conclusions about it are missing; of another study all are."""
    every = CLAIMS.grid(report.load(MAKE.ROWS / "robustness-grid" / "grid"))
    missing = [claim.text for claim in every if claim.verdict == "not run"]
    assert missing == [claim.text for claim in every if "NNM" in claim.text]
    assert len(missing) == 4
    other = MAKE.load("robustness-lambda")
    for claims in (CLAIMS.grid, CLAIMS.combined, CLAIMS.cohorts, CLAIMS.heterogeneity, CLAIMS.adapters):
        assert {claim.verdict for claim in claims(other)} == {"not run"}


def test_numbers_of_the_pages_are_those_of_the_committed_rows():
    every = []
    for name in (name for name in MAKE.names() if name.startswith(("robustness-", "authors-"))):
        page = text_of("docs/fidelity.md" if name.startswith("authors-") else "docs/robustness.md")
        claims = MAKE.claims_of(name, MAKE.load(name))
        for claim in claims:
            missing = [number for number in re.split(", | to ", claim.measured) if number not in page]
            assert not missing, claim.text
        every += claims if name.startswith("robustness-") else []
    assert len({claim.text for claim in every}) == len(every)
    assert all(claim.numbers and np.isfinite(claim.numbers).all() for claim in every)
    text = " ".join(text_of("docs/robustness.md").split())
    verdicts, kinds = Counter(claim.verdict for claim in every), Counter(claim.kind for claim in every)
    assert f"{kinds['direction']} need an interval over the splits, and {verdicts['holds']} of them hold" in text
    assert f'{verdicts["open"]} are "open": the interval contains 0. {verdicts["fails"]} fail.' in text
    assert f'{kinds["mean"]} are about a mean only ("mean"), and {verdicts["holds (mean only)"]} hold.' in text
    assert f'{kinds["not above"]} say "no evidence"' in text


def shown(header):
    """The table of the page whose first column has this header: cells by the name in their row."""
    table = text_of("docs/robustness.md").split(f"\n| {header} |")[1].split("\n\n")[0]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {name: cells for name, *cells in rows}


def rounded(numbers):
    return format_mean(numbers, digits=1)


def test_worst_attacks_of_the_page():
    results = MAKE.load("robustness-grid")
    grid = CLAIMS.Study(results)
    alone = [setting for setting in results.settings if setting.attack != "none"]
    kinds = CLAIMS.attacks(*dict.fromkeys(setting.attack for setting in alone))
    for name, cells in shown("worst attack").items():
        rule = re.sub("[ -]", "_", name.split(" (")[0].lower())
        for share, cell in zip((0.2, 0.3, 0.4), cells, strict=True):
            values = {"corruption__fraction": share, "server__pre_aggregators": ()}
            assert cell == rounded(grid.numbers(grid.worst(rule, values, kinds))), (name, share)


def test_lambdas_of_the_page():
    lambdas = CLAIMS.Study(MAKE.load("robustness-lambda"))
    shares = [
        {"corruption__kind": kind, "corruption__fraction": share}
        for kind in ("shuffling", "flipping")
        for share in (0.2, 0.4, 0.6)
    ]
    cells = shown("lambda (in M)")
    for position, lam in enumerate((0.1, 0.3, 1.0, 3.0, 10.0, 1e4, "auto")):
        every = [
            lambdas.accuracy("arfl", {"dirichlet__alpha": alpha, "arfl__lam": lam, **share})
            for alpha in (0.1, 1.0, 100.0)
            for share in ({"corruption__fraction": 0.0}, *shares)
        ]
        assert cells["mean"][position] == rounded(np.mean(every, axis=0))
        assert cells["worst setting"][position] == rounded(min(every, key=np.mean))


def test_corrupted_data_and_false_updates_of_the_page():
    combined = CLAIMS.Study(MAKE.load("robustness-combined"))
    attacks = [
        {"attack__kind": kind, "attack__fraction": share}
        for kind in ("optimal_alie", "optimal_ipm")
        for share in (0.1, 0.2)
    ]
    columns = [(kind, share) for kind in ("shuffling", "flipping") for share in (0.3, 0.5)]
    for name, cells in shown("worst of four").items():
        rule = re.sub("[ -]", "_", re.split(r", | with | \(", name)[0].lower())
        from_root = name.endswith("server losses")
        weighted = from_root or "weights" in name
        values = {"server__weighting": "arfl" if weighted else None, "data__root_examples": 100 * from_root}
        rule = "fedavg" if rule == "arfl" and weighted else rule
        for (kind, share), cell in zip(columns, cells, strict=True):
            labels = {"corruption__kind": kind, "corruption__fraction": share}
            numbers = combined.numbers(combined.worst(rule, {**values, **labels}, attacks))
            low = int((numbers < 20).sum())
            assert cell == rounded(numbers) + (f" ({low})" if 0 < low < len(numbers) else ""), (name, kind, share)
