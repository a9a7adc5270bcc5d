"""The conclusions about robustness, on runs with random accuracies: each finds its numbers, and they are right."""

import re
from collections import Counter
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from scipy import stats

import fedsim
from fedsim import report
from fedsim.config.components import flatten
from fedsim.report.claims import call
from tests.conftest import load_script
from tests.docs.pages import ROOT, text_of
from tests.report.synthetic import make_folder

CONFIGS = Path(__file__).parents[1] / "configs" / "robustness"
SPLITS, SEEDS = (3, 8, 9), (5, 6)
PRESETS = {"grid": ["nnm"]}


def accuracy(run, t):
    """Any number that differs between runs, the same in each process."""
    return crc32(repr(run).encode()) / 2**32


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    def load(study):
        splits = {
            "data__seed": fedsim.sweep(SPLITS),
            "seed": fedsim.sweep(SEEDS[: 2 if study == "noisy-labels" else 1]),
        }
        folders = []
        for preset in (None, *PRESETS.get(study, [])):
            experiment = fedsim.load(CONFIGS / f"{study}.toml", preset=preset, **splits)
            runs = [flatten(run) | {"server.num_rounds": 0} for run in experiment.runs()]
            path = tmp_path_factory.mktemp(study)
            folders.append(make_folder(path, runs, accuracy, validation=accuracy, config=experiment.dump()))
        return report.load(*folders)

    return load


@pytest.fixture(scope="module")
def claims(load):
    """By study."""
    studies = sorted(path.stem for path in CONFIGS.glob("*.toml"))
    return {study: call(fedsim.load(CONFIGS / f"{study}.toml").claims, load(study)) for study in studies}


def test_every_conclusion_finds_its_runs(claims):
    every = [claim for of_study in claims.values() for claim in of_study]
    assert len(claims) == 9
    assert Counter(claim.kind for claim in every) == {"direction": 35, "mean": 30, "not above": 4}
    assert {numbers.shape for claim in every for numbers in claim.numbers} == {(len(SPLITS),)}
    assert len({claim.text for claim in every}) == len(every)


def test_numbers_are_means_over_seeds_paired_by_split(claims):
    splits = {"data__seed": fedsim.sweep(SPLITS), "seed": fedsim.sweep(SEEDS)}
    experiment = fedsim.load(CONFIGS / "noisy-labels.toml", **splits)
    runs = [flatten(run) | {"server.num_rounds": 0} for run in experiment.runs()]
    wanted = {"corruption.fraction": 0.8, "localized.tau": 1.0, "data.partition": "iid"}
    of = lambda rule, split: [
        100 * accuracy(run, 0)
        for run in runs
        if wanted.items() <= run.items() and (run["server.aggregator"], run["data.seed"]) == (rule, split)
    ]
    expected = np.asarray([np.mean(of("arfl", split)) - np.mean(of("rfa", split)) for split in SPLITS])
    claim = claims["noisy-labels"][0]
    np.testing.assert_allclose(claim.numbers[1], expected)
    half = stats.ttest_1samp(expected, 0.0).confidence_interval(0.95).high - expected.mean()
    assert claim.measured.endswith(f", {expected.mean():.1f} ± {half:.1f}")


def test_parts_that_were_not_run(load, claims):
    """Without nearest-neighbor mixing, only the conclusions about it are missing."""
    results = report.load(load("grid").folders[0])
    every = call(fedsim.load(CONFIGS / "grid.toml").claims, results)
    missing = [claim.text for claim in every if claim.verdict == "not run"]
    assert missing == [claim.text for claim in claims["grid"] if "NNM" in claim.text]
    assert len(missing) == 4


def test_the_page_counts_them_by_kind(claims):
    text = text_of("docs/robustness.md")
    assert "34 need an interval over the splits" in text
    assert "33 are about a mean only" in text
    assert '4 say "no evidence"' in text


MAKE = load_script(ROOT / "docs" / "results" / "make.py")


@pytest.mark.parametrize("name", [name for name in MAKE.names() if name.startswith(("robustness-", "authors-"))])
def test_numbers_of_the_page_are_those_of_the_committed_rows(name):
    page = text_of("docs/fidelity.md" if name.startswith("authors-") else "docs/robustness.md")
    for claim in MAKE.claims_of(name, MAKE.load(name)):
        missing = [number for number in re.split(", | to ", claim.measured) if number not in page]
        assert not missing, claim.text
