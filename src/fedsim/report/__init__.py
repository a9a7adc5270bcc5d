"""Tables and figures, from run folders only."""

from fedsim.report import style
from fedsim.report.accuracy import accuracy_tables
from fedsim.report.choose import choice_rows, choose
from fedsim.report.confirm import confirm
from fedsim.report.cube import as_xarray
from fedsim.report.figures import figures
from fedsim.report.latex import latex
from fedsim.report.paired import BASELINE, differences, find_rule, paired_rows, paired_tables
from fedsim.report.ranks import rank_rows, ranks
from fedsim.report.reading import read
from fedsim.report.render import markdown, terminal
from fedsim.report.results import Results
from fedsim.report.summary import as_csv, summary
from fedsim.report.worst import narrow, worst_tables
from fedsim.runs.folder import RunFolder

__all__ = [
    "Results",
    "accuracy_tables",
    "as_xarray",
    "choose",
    "confirm",
    "differences",
    "figures",
    "latex",
    "make",
    "markdown",
    "narrow",
    "paired_tables",
    "ranks",
    "read",
    "summary",
    "terminal",
    "worst_tables",
    "write",
]


def make(folder: RunFolder) -> Results:
    """Writes summary.csv, paired.csv, tables and figures into a complete run folder; returns what it read."""
    results = read(folder)
    write(results, folder)
    return results


def write(results: Results, out: RunFolder, baseline: str = BASELINE) -> None:
    """Writes summary.csv, table.md, table.tex and figures/ into the folder `out`.

    With several attacks, worst.md and worst.tex, too; paired.csv, the differences to the rule `baseline`, if that and
    another rule were run; ranks.csv with three rules and three scenarios; choices.csv, if values were chosen.
    """
    out.write_text("summary.csv", as_csv(summary(results)))
    if find_rule(results, baseline) and (pairs := differences(results, baseline)):
        out.write_text("paired.csv", as_csv(paired_rows(pairs)))
    if rule_ranks := ranks(results):
        out.write_text("ranks.csv", as_csv(rank_rows(rule_ranks)))
    if results.selection is not None:
        out.write_text("choices.csv", as_csv(choice_rows(results.selection)))
    else:
        (out.path / "choices.csv").unlink(missing_ok=True)
    tables = accuracy_tables(results)
    out.write_text("table.md", markdown(tables))
    out.write_text("table.tex", latex(tables))
    if worst := worst_tables(results):
        out.write_text("worst.md", markdown(worst))
        out.write_text("worst.tex", latex(worst, "tab:worst"))
    all_figures = figures(results)
    with style.context():
        for name, figure in all_figures.items():
            out.write_figure(name, figure)
