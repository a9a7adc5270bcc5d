"""`fedsim paper`: the paper's results, the commands that reproduce them, and the results of run folders."""

import argparse
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.config import bundled
from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.paper.catalog import PaperResult
    from fedsim.paper.result_folders import ResultFolder
    from fedsim.report.results import Results
    from fedsim.runs.folder import RunFolder

EPILOG = """\
examples:
  fedsim paper                                   all results, and the run folders under runs/
  fedsim paper lambda                            one result: its configuration, claims and tables
  fedsim run configs/paper/lambda.toml --preset small        reproduce it; without --preset: in full
  fedsim paper --page docs/results.md            all results in runs/ as one page with figures
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    paper = commands.add_parser(
        "paper",
        help="list the paper's results, and compare run folders with them",
        description="Lists the paper's results with the commands that reproduce them, and compares run folders.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    paper.add_argument("result", metavar="ID", nargs="?", help="show this result in detail")
    paper.add_argument(
        "--runs",
        metavar="DIR",
        type=Path,
        nargs="+",
        default=[Path("runs")],
        help="folders of run folders (default: runs)",
    )
    paper.add_argument(
        "--page", metavar="FILE.md", type=Path, help="write a page of all results, and a folder of its figures"
    )


def call(options: argparse.Namespace) -> int:
    """Shows all results, or one of them."""
    from rich.text import Text

    from fedsim.cli import console
    from fedsim.config.registry import did_you_mean, nearest
    from fedsim.paper import page as paper_page
    from fedsim.paper.catalog import RESULTS
    from fedsim.paper.result_folders import find_result_folders

    show = lambda *shown: console.show_results(shown, None)
    id_ = options.result
    if id_ not in (None, *RESULTS):
        choices = did_you_mean(nearest(id_, RESULTS)) or "; the results are " + ", ".join(RESULTS)
        raise ConfigError(f"ID: must be a result of the paper, got {id_}{choices}")
    for path in options.runs:
        if not path.is_dir() and path != Path("runs"):
            raise ConfigError(f"--runs: must be folders, got {path}")
    if options.page is not None and (id_ is not None or options.page.suffix != ".md"):
        raise ConfigError(f"--page: must be a file name that ends in .md, without an ID, got {options.page}")
    folders = find_result_folders(options.runs, id_)
    if options.page is not None:
        return _write_overview(folders, options.page)
    if id_ is None:
        show(_list_results(folders))
    else:
        print(_describe(RESULTS[id_]))
    if folders:
        show(_list_folders(folders))
    else:
        paths = ", ".join(map(str, options.runs))
        print(f"No run folders of {id_ or 'these results'} in {paths}; choose other folders with --runs DIR.")
    for entry in folders if id_ else ():
        if entry.page is not None:
            show(Text(f"\n{entry.folder.path}"), paper_page.terminal(entry.page))
    return 0


def _write_overview(folders: list["ResultFolder"], page: Path) -> int:
    """Writes the page of all results, from run folders and from the pages that were written before."""
    from fedsim.paper.overview import write_overview

    for path in write_overview(folders, page):
        print(path)
    return 0


def pages(results: "Results", out: "RunFolder | None") -> list[Any]:
    """The page of the paper's result if `results` come from one of its folders; its files are written into `out`."""
    from fedsim import paper

    page = paper.write_page(results.folders[0], results, out) if out is not None and len(results.folders) == 1 else None
    return [] if page is None else [page]


def _list_results(folders: list["ResultFolder"]) -> Any:
    """All results with the claims of their best run folders, and the commands that reproduce them."""
    from rich.console import Group
    from rich.text import Text

    from fedsim.paper.catalog import RESULTS
    from fedsim.terminal import make_table

    rows = []
    best = {entry.result.id: entry for entry in reversed(folders) if entry.claims}
    for result in RESULTS.values():
        entry = best.get(result.id)
        texts = (entry.budget, entry.claims, entry.margin) if entry else ("-", "", "")
        rows.append((result.id, result.where, *texts))
    commands = (
        "fedsim run configs/paper/RESULT.toml                   reproduces a result in full",
        "fedsim run configs/paper/RESULT.toml --preset small    a smaller version, for two cores",
        "        ... --preset medium, or digits                 fewer clients and rounds; or its design on digits",
        "fedsim paper RESULT                                    its configuration, claims and tables",
    )
    table = make_table(("result", "in the paper", "best run", "claims", "first margin"), rows)
    return Group(table, Text("\n".join(commands)))


def _describe(result: "PaperResult") -> str:
    """A description of the result, with the header of its configuration."""
    lines = [f"{result.id}, {result.where}: {result.description}; published: {result.published}"]
    text = bundled.located(Path(result.config)).read_text(encoding="utf-8").splitlines()
    header = takewhile(lambda line: line.startswith("#"), text)
    return "\n".join([*lines, result.config, *("  " + line.removeprefix("#").removeprefix(" ") for line in header)])


def _list_folders(folders: list["ResultFolder"]) -> Any:
    """A table with a line per run folder."""
    from fedsim.terminal import make_table

    rows = [(str(entry.folder.path), entry.budget, entry.state, entry.claims, entry.margin) for entry in folders]
    return make_table(("run folder", "budget", "state", "claims", "first margin"), rows)
