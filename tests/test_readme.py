"""The README: it fits on one screen, its Python runs unchanged, and its commands exist."""

import pytest

import fedsim
from fedsim.config.kinds import AGGREGATORS, KINDS
from fedsim.engine.families import group_runs
from fedsim.rating.card import built_in_cells
from tests.docs.pages import ROOT, blocks, text_of


@pytest.mark.docs
def test_the_python_code_runs(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    namespace: dict = {}
    (block,) = blocks("README.md", "python")
    exec(compile(block.text, "README.md", "exec"), namespace)
    assert len(namespace["final"]) == 2 * 3
    assert namespace["final"]["test_accuracy"].is_between(0.1, 1).all()


def test_the_readme_fits_on_one_screen():
    assert len(text_of("README.md").splitlines()) <= 150
    (block,) = blocks("README.md", "python")
    assert len(block.text.splitlines()) <= 10


def test_the_readme_counts_and_names_the_built_in_components():
    text, attacks = text_of("README.md"), [*KINDS["attack.kind"].built_in]
    kinds = ("server.aggregator", "server.pre_aggregators", "attack.kind", "corruption.kind", "data.partition")
    kinds += ("model.name", "client.algorithm", "server.optimizer")
    missing = [name for kind in kinds for name in KINDS[kind].built_in if f"`{name}`" not in text]
    assert missing == ["none", "none"]  # no attack, no corruption
    assert f"{len(AGGREGATORS) - 2} robust aggregation rules, {len(attacks) - 1} attacks" in text  # but ARFL, FedAvg
    rated = {cell.rule for cell in built_in_cells("digits") if "=" not in cell.rule}  # with default settings
    assert len(rated) == len(AGGREGATORS)
    assert f"All {len(rated)} rules" in text


def test_a_newcomers_two_commands():
    start, test = (block.text for block in blocks("README.md", "sh"))
    assert start.endswith("fedsim run configs/quickstart.toml\n")
    assert (ROOT / "configs" / "quickstart.toml").exists()
    assert test.startswith("python3 ")  # the form that .ci/run searches for
    assert test.endswith("pytest\n")


def test_the_quickstart_is_a_group_for_each_rule():
    runs = fedsim.load(ROOT / "configs" / "quickstart.toml").runs()
    assert [len(group) for group in group_runs(runs)] == [15] * 5
