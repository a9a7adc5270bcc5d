"""The paper's results made again: measured beside published, from run folders."""

from rich.console import Group

from fedsim.paper import page
from fedsim.paper.analyses import ANALYSES
from fedsim.paper.results import of_name
from fedsim.report import style
from fedsim.report.cells import Results
from fedsim.report.reading import read
from fedsim.runs.folder import RunFolder


def make(folder: RunFolder, results: Results | None = None, out: RunFolder | None = None) -> Group | None:
    """Writes paper.md and the paper's figures of a complete run folder into it, or into `out`; returns what to show.

    None, and nothing is written, where the folder's name is no result of the paper. `results` are the folder's, if they
    are read already.
    """
    out = out or folder
    made = read_page(folder, results)
    if made is None:
        return None
    out.write_text("paper.md", page.markdown(made))
    with style.context():
        for name, figure in ANALYSES[made.result.id].figures(made.results).items():
            out.write_figure(f"paper-{name}", figure)
    return page.terminal(made)


def read_page(folder: RunFolder, results: Results | None = None) -> page.Page | None:
    """Claims and tables of a complete run folder; None where its name is no result of the paper."""
    named = of_name(str(folder.read_manifest()["runs"][0].get("name", "")))
    if named is None:
        return None
    results = results or read(folder)
    analysis = ANALYSES[named.result.id]
    return page.Page(named.result, named.budget, results, analysis.claims(results), analysis.tables(results))
