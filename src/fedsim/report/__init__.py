"""Tables and figures, from run folders only."""

from rich.console import Group

from fedsim.report.cells import as_csv, read, summary
from fedsim.report.figures import figures
from fedsim.report.table import accuracy_table
from fedsim.store import RunFolder


def make(folder: RunFolder) -> Group:
    """Writes summary.csv and figures/ into a complete run folder; returns its table."""
    results = read(folder)
    folder.write_text("summary.csv", as_csv(summary(results)))
    for name, figure in figures(results):
        folder.write_figure(name, figure)
    return accuracy_table(results)
