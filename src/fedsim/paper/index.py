"""The run folders of the paper's results: their state, and how far they are from published."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedsim.errors import FedsimError
from fedsim.paper.analyses import ANALYSES
from fedsim.paper.results import Result, of_name
from fedsim.report.cells import read
from fedsim.runs.folder import RunFolder


class Entry(NamedTuple):
    """A run folder of a result."""

    folder: RunFolder
    result: Result
    budget: str
    state: str  # "complete", or how many groups are, or what is wrong
    measured: str  # how far from published; empty where there is nothing yet


def entries(paths: Sequence[Path], id_: str | None = None) -> list[Entry]:
    """The run folders among `paths` and right below them that belong to a result (to that with `id_`, if given)."""
    found = [entry for path in _folders(paths) if (entry := _entry(RunFolder(path), id_)) is not None]
    order = list(ANALYSES)
    return sorted(found, key=lambda entry: (order.index(entry.result.id), entry.budget, str(entry.folder.path)))


def _folders(paths: Sequence[Path]) -> Iterator[Path]:
    is_run = lambda path: (path / "manifest.json").exists()
    for path in dict.fromkeys(paths):
        if is_run(path):
            yield path
        elif path.is_dir():
            yield from filter(is_run, sorted(path.iterdir()))


def _entry(folder: RunFolder, id_: str | None) -> Entry | None:
    try:
        manifest = folder.read_manifest()
        found = of_name(str(manifest["runs"][0].get("name", "")))
    except FedsimError:
        return None  # not of this program
    if found is None or id_ not in (None, found[0].id):
        return None
    if manifest["status"] != "complete":
        done = sum(folder.finished(group) is not None for group in range(len(manifest["plan"])))
        return Entry(folder, *found, f"{done} of {len(manifest['plan'])} groups", "")
    try:
        return Entry(folder, *found, "complete", ANALYSES[found[0].id].summary(read(folder)))
    except FedsimError as error:
        return Entry(folder, *found, str(error).removeprefix(f"{folder.path}: "), "")
