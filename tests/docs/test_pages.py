"""The documentation's code, run page by page as a reader would."""

import re
import shutil
import sys
from pathlib import Path

import pytest

import fedsim
from fedsim.cli import main as cli
from fedsim.cli.overrides import SLURM, split_overrides
from fedsim.config import toml
from fedsim.config.registry import BUILT_IN
from fedsim.runs.schemas import SCHEMAS
from tests.docs.pages import OWN_TESTS, PAGES, ROOT, Block, blocks, commands, inline_commands, text_of

HOW = {"not run", "read, not run", "tested with"}
WORDS = {*HOW, "first", "has"}
WITH_CODE = [page for page in PAGES if page not in OWN_TESTS and page != "README.md" and blocks(page, "python", "sh")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run folder to read: two rules, two lambdas, two seeds, clean and corrupted."""
    out = tmp_path_factory.mktemp("docs") / "made"
    experiment = fedsim.load(
        ROOT / "configs" / "quickstart.toml",
        server__aggregator=["fedavg", "arfl"],
        arfl__lam=[0.1, 10.0],
        corruption__fraction=[0.0, 0.3],
        corruption__kind="shuffling",
        seed=[0, 1],
        server__num_rounds=4,
    )
    return fedsim.run(experiment, out=out, progress=False).path


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """In an empty folder with the repository's configurations. Figures have tests of their own, and take long."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fedsim.report.figures", lambda results: {})
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:  # the page's own files
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", WITH_CODE)
def test_code_of(page, reader, made):
    namespace: dict = {"__name__": "page"}
    for block in blocks(page):
        for command in block.notes.get("first", ()):
            execute(command.split())
        for folder in block.notes.get("has", ()):
            shutil.copytree(made, folder)
        if block.file:
            Path(block.file).write_text(block.text)
        elif block.language == "python" and "not run" not in block.notes:
            exec(compile(block.text, page, "exec"), namespace)
        elif block.language == "sh":
            run_shell(block)


def is_marked(block: Block) -> bool:
    """Whether a comment says how a block with a run is tested, so that none takes minutes unawares."""
    return block.language != "sh" or "fedsim run" not in block.text or bool(block.notes.keys() & HOW)


def run_shell(block: Block) -> None:
    if "not run" in block.notes or not is_marked(block):
        return
    extra = [word for options in block.notes.get("tested with", ()) for word in options.split()]
    for command in commands(block):
        if "read, not run" in block.notes:
            read(command)
        else:
            execute(command + (extra if command[1] == "run" else []))


def execute(command: list[str]) -> None:
    """Runs a command of fedsim; an option that is given again behind it counts."""
    assert command[0] == "fedsim", command
    assert cli.main(last_wins(command[1:])) == 0


def last_wins(words: list[str]) -> list[str]:
    """The words without options whose key is named again behind them."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            parts.append([])
        parts[-1].append(word)
    key = lambda part: part[0].removeprefix("--").removeprefix("sweep.") if part[0].startswith("--") else None
    names = [key(part) for part in parts]
    return [word for i, part in enumerate(parts) if names[i] is None or names[i] not in names[i + 1 :] for word in part]


def read(command: list[str]) -> None:
    """Checks a command's options, and the configuration of one that runs, without running it."""
    rest, overrides = split_overrides(command[1:])
    options = cli._parser().parse_args(rest)
    if command[1] == "run":
        keys = {key: value for key, value in overrides.items() if not key.startswith(SLURM)}
        assert toml.read(options.config, keys, options.budget).runs()


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command in inline_commands(page):
        read(command)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md"])
def test_what_is_not_run_says_why(page):
    for block in blocks(page):
        assert is_marked(block), f"{page}: a comment must say how this is tested (tests/docs/pages.py):\n{block.text}"
        assert set(block.notes) <= WORDS
        assert all(reason.strip() for reasons in block.notes.values() for reason in reasons)


@pytest.mark.parametrize("table", SCHEMAS)
def test_columns_of_run_folders(table):
    part = text_of("docs/reference/run-folders.md").split(f"## {table}.parquet\n")[1].split("\n## ")[0]
    told = []
    for names, kind in re.findall(r"^\| (`.*?`) \| (\w+) \|", part, re.MULTILINE):
        told += [(name, kind) for name in re.findall(r"`(\w+)`", names)]
    assert told == [(field.name, str(field.type)) for field in SCHEMAS[table]]


def test_every_corruption_has_a_line():
    table = text_of("docs/reference/corruptions.md").split("\n\n")[2]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(BUILT_IN["corruption.kind"])


def test_the_face_names_what_there_is():
    table = text_of("README.md").split("## What there is\n")[1].split("\n## ")[0]
    known = {name for names in BUILT_IN.values() for name in names}
    assert set(re.findall(r"`(\w+)`", table)) <= known
