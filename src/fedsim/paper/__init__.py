"""Reproduction of the paper's results: claims, tables and figures from run folders."""

from typing import TYPE_CHECKING

from rich.console import Group

from fedsim.paper import page
from fedsim.paper.analyses import ANALYSES, check_claims, with_split_means
from fedsim.paper.catalog import parse_name
from fedsim.report import style
from fedsim.report.reading import read
from fedsim.report.results import Results
from fedsim.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_page(folder: RunFolder, results: Results | None = None, out: RunFolder | None = None) -> Group | None:
    """Writes paper.md and the paper's figures of a complete run folder into it or into `out`; returns the page.

    Returns None and writes nothing if the folder's name is not a result of the paper. Pass the folder's `results` if
    they have been read before.
    """
    out = out or folder
    result_page = make_page(folder, results)
    if result_page is None:
        return None
    out.write_text("paper.md", page.markdown(result_page))
    with style.context():
        for name, figure in make_figures(result_page).items():
            out.write_figure(f"paper-{name}", figure)
    return page.terminal(result_page)


def make_figures(result_page: page.Page) -> dict[str, "Figure"]:
    """The figures of a page by name; with several splits, of the mean over the seeds of each."""
    return ANALYSES[result_page.result.id].figures(with_split_means(result_page.results))


def make_page(folder: RunFolder, results: Results | None = None) -> page.Page | None:
    """Claims and tables of a complete run folder; None if its name is not a result of the paper."""
    parsed = parse_name(str(folder.read_manifest()["runs"][0].get("name", "")))
    if parsed is None:
        return None
    results = results or read(folder)
    analysis = ANALYSES[parsed.result.id]
    shown = with_split_means(results)
    claims, tables = check_claims(analysis, results), analysis.tables(shown)
    return page.Page(parsed.result, parsed.budget, results, claims, tables)
