"""Run folders of the paper's results: their state and how many claims hold."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedsim.errors import FedsimError
from fedsim.paper import make_page
from fedsim.paper.analyses import ANALYSES
from fedsim.paper.catalog import PaperResult, parse_name, rank
from fedsim.paper.claims import first_margin, summarize
from fedsim.paper.page import Page
from fedsim.runs.folder import RunFolder


class ResultFolder(NamedTuple):
    """A run folder of a result."""

    folder: RunFolder
    result: PaperResult
    budget: str
    state: str
    """Either "complete", or the number of finished groups, or an error."""
    page: Page | None
    """None: the folder is not complete, or cannot be read."""

    @property
    def claims(self) -> str:
        """How many claims hold; empty without a page."""
        return summarize(self.page.claims) if self.page else ""

    @property
    def margin(self) -> str:
        """The first numeric margin; may be empty."""
        return first_margin(self.page.claims) if self.page else ""


def find_result_folders(paths: Sequence[Path], id_: str | None = None) -> list[ResultFolder]:
    """The results' run folders among `paths` and directly below them; only those of result `id_`, if given."""
    folders = [_read_result_folder(RunFolder(path), id_) for path in _find_run_folders(paths)]
    order = list(ANALYSES)
    place = lambda each: (order.index(each.result.id), rank(each.budget), each.budget, str(each.folder.path))
    return sorted((folder for folder in folders if folder is not None), key=place)


def _find_run_folders(paths: Sequence[Path]) -> Iterator[Path]:
    is_run = lambda path: (path / "manifest.json").exists()
    for path in dict.fromkeys(paths):
        if is_run(path):
            yield path
        elif path.is_dir():
            yield from filter(is_run, sorted(path.iterdir()))


def _read_result_folder(folder: RunFolder, id_: str | None) -> ResultFolder | None:
    try:
        manifest = folder.read_manifest()
        parsed = parse_name(str(manifest["runs"][0].get("name", "")))
    except FedsimError:
        return None  # written by another program
    if parsed is None or id_ not in (None, parsed.result.id):
        return None
    result_folder = ResultFolder(folder, parsed.result, parsed.budget, "complete", None)
    if manifest["status"] != "complete":
        num_finished = sum(folder.read_finished(group) is not None for group in range(len(manifest["plan"])))
        return result_folder._replace(state=f"{num_finished} of {len(manifest['plan'])} groups")
    try:
        return result_folder._replace(page=make_page(folder))
    except FedsimError as error:
        return result_folder._replace(state=str(error).removeprefix(f"{folder.path}: "))
