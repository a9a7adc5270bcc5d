"""Runs the code of the README and the documentation page by page, and compares their statements with the code."""

import re
import shutil
import sys
from pathlib import Path

import pytest

import fedsim
from fedsim.cli import main as cli
from fedsim.cli.overrides import SLURM, split_overrides
from fedsim.config import toml
from fedsim.config.kinds import AGGREGATORS, KINDS
from fedsim.engine.families import group_runs
from fedsim.rating.card import built_in_cells
from fedsim.runs.schemas import SCHEMAS
from tests.docs.pages import PAGES, ROOT, Block, blocks, commands, inline_commands, text_of

RUN_NOTES = {"not run", "read, not run", "tested with"}
NOTES = {*RUN_NOTES, "first", "has"}
INSTALLS = "python3 -m venv"  # how blocks begin that are not run
WITH_CODE = [page for page in PAGES if blocks(page, "python", "sh")]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run folder with two rules, two lambdas, two seeds, clean and corrupted."""
    out = tmp_path_factory.mktemp("docs") / "runs"
    experiment = fedsim.load(
        ROOT / "configs" / "quickstart.toml",
        server__aggregator=fedsim.sweep(["fedavg", "arfl"]),
        arfl__lam=fedsim.sweep([0.1, 10.0]),
        corruption__fraction=fedsim.sweep([0.0, 0.3]),
        corruption__kind="shuffling",
        seed=fedsim.sweep([0, 1]),
        server__num_rounds=4,
    )
    return fedsim.run(experiment, out=out, progress=False).path


@pytest.fixture
def page_folder(tmp_path, monkeypatch):
    """The current folder, with the repository's configurations. Figures are slow and tested elsewhere."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fedsim.report.figures", lambda results: {})
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:  # modules that the page defines
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.docs
@pytest.mark.parametrize("page", WITH_CODE)
def test_code(page, page_folder, run_folder):
    namespace: dict = {"__name__": "page"}
    for block in blocks(page):
        for command in block.notes.get("first", ()):
            execute(command.split())
        for folder in block.notes.get("has", ()):
            shutil.copytree(run_folder, folder)
        if block.file:
            Path(block.file).write_text(block.text)
        elif block.language == "python" and "not run" not in block.notes:
            exec(compile(block.text, page, "exec"), namespace)
        elif block.language == "sh":
            run_shell(block)
    if page == "docs/how-to/simulation.md":
        small, _, middle, _, large = (weights[-5:].mean() for weights in namespace["on_corrupted"])
        assert (small, middle) == (0, 0)  # small lambda: no weight on corrupted clients
        assert large > 0.2  # large lambda: FedAvg
        assert float(namespace["accuracy"]) > 0.9
    if page == "README.md":
        assert len(namespace["final"]) == 2 * 3
        assert namespace["final"]["test_accuracy"].is_between(0.1, 1).all()


def is_marked(block: Block) -> bool:
    """Whether a comment says how a block with `fedsim run` is tested, so that no test takes minutes by accident."""
    is_safe = block.language != "sh" or "fedsim run" not in block.text or block.text.startswith(INSTALLS)
    return is_safe or bool(block.notes.keys() & RUN_NOTES)


def run_shell(block: Block) -> None:
    if "not run" in block.notes or block.text.startswith(INSTALLS) or not is_marked(block):
        return
    extra = [word for options in block.notes.get("tested with", ()) for word in options.split()]
    for command in commands(block):
        if "read, not run" in block.notes:
            check(command)
        else:
            execute(command + (extra if command[1] == "run" else []))


def execute(command: list[str]) -> None:
    """Runs a fedsim command."""
    assert command[0] == "fedsim", command
    assert cli.main(command[1:]) == 0


def check(command: list[str]) -> None:
    """Checks a command's options and configuration without running it."""
    rest, overrides = split_overrides(command[1:])
    options = cli._parser().parse_args(rest)
    if command[1] == "run":
        keys = {key: value for key, value in overrides.items() if not key.startswith(SLURM)}
        assert toml.read(options.config, keys, options.preset).runs()


@pytest.mark.parametrize("page", PAGES)
def test_pages_say_what_else_to_install(page):
    """What README installs runs what the pages show, or else they say what is missing before they use it."""
    text = text_of(page)
    for name, use in {"pandas": r"import pandas\b|\.to_pandas\b", "scikit-learn": r"(import|from) sklearn\b"}.items():
        uses = [block for block in blocks(page, "python") if re.search(use, block.text)]
        if uses:
            assert re.search(rf"pip install [^`]*\b{name}\b", text[: text.index(uses[0].text)]), f"{page} uses {name}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command in inline_commands(page):
        check(command)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_are_not_run_have_a_reason(page):
    for block in blocks(page):
        assert is_marked(block), f"{page}: a comment must say how this is tested (tests/docs/pages.py):\n{block.text}"
        assert set(block.notes) <= NOTES
        assert all(reason.strip() for reasons in block.notes.values() for reason in reasons)


@pytest.mark.parametrize("table", SCHEMAS)
def test_run_folder_columns(table):
    part = text_of("docs/reference/run-folders.md").split(f"## {table}\n")[1].split("\n## ")[0]
    documented = []
    for names, kind in re.findall(r"^\| (`.*?`) \| (\w+) \|", part, re.MULTILINE):
        documented += [(name, kind) for name in re.findall(r"`(\w+)`", names)]
    in_files = {**SCHEMAS[table], "run": "String"}  # ids
    assert documented == [(name, str(dtype)) for name, dtype in in_files.items()]


def test_every_corruption_is_documented():
    table = text_of("docs/reference/corruptions.md").split("\n\n")[2]
    documented = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert documented == set(KINDS["corruption.kind"].built_in)


def test_the_readme_fits_on_one_screen():
    assert len(text_of("README.md").splitlines()) <= 150
    (block,) = blocks("README.md", "python")
    assert len(block.text.splitlines()) <= 10


def test_the_readme_counts_and_names_the_built_in_components():
    text, attacks = text_of("README.md"), [*KINDS["attack.kind"].built_in]
    table = text.split("## Features\n")[1].split("\n## ")[0]
    known = {name for kind in KINDS.values() for name in kind.built_in}
    assert set(re.findall(r"`(\w+)`", table)) <= known
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
    assert test.startswith("python3 ")  # the form that .ci/run searches for
    assert test.endswith("pytest\n")
    runs = fedsim.load(ROOT / "configs" / "quickstart.toml").runs()
    assert [len(group) for group in group_runs(runs)] == [15] * 5


def test_every_public_name_is_on_the_page_of_the_interface():
    shown = re.findall(r"^::: fedsim\.(?:[\w.]+\.)?(\w+)$", text_of("docs/reference/api.md"), re.M)
    assert set(fedsim.__all__) - set(shown) == {"Callback", "Scalar"}  # in the list of a module; an alias


def test_code_imports_public_modules():
    private = re.compile(r"\bfedsim\.(?:core|config|runs|\w+\.[\w.]+) import")
    assert not [(page, block.text) for page in PAGES for block in blocks(page, "python") if private.search(block.text)]
