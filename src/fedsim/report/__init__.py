"""Tables and figures, from run folders only."""

from pathlib import Path

from fedsim.report import style
from fedsim.report.accuracy import accuracy_tables
from fedsim.report.choose import choose
from fedsim.report.claims import Claim, check, claims_table
from fedsim.report.confirm import confirm
from fedsim.report.figures import figures
from fedsim.report.latex import latex
from fedsim.report.load import load
from fedsim.report.paired import BASELINE, differences, find_rule, paired_rows, paired_tables
from fedsim.report.render import as_csv, markdown, terminal
from fedsim.report.results import Results
from fedsim.report.summary import summary
from fedsim.report.table import Table, records
from fedsim.report.worst import narrow, worst_tables
from fedsim.runs.folder import RunFolder

__all__ = [
    "Claim",
    "Results",
    "accuracy_tables",
    "as_csv",
    "choose",
    "claims_tables",
    "confirm",
    "differences",
    "figures",
    "latex",
    "load",
    "markdown",
    "narrow",
    "paired_tables",
    "records",
    "summary",
    "terminal",
    "worst_tables",
    "write",
]


def claims_tables(results: Results) -> tuple[list[Table], list[str]]:
    """The table of the claims that the folders' configurations name; and what is wrong with their functions."""
    claims, problems = check(results)
    return ([claims_table(results, claims)] if claims else []), problems


def write(
    results: Results, out: RunFolder | Path | str, baseline: str = BASELINE, has_figures: bool = True
) -> list[Path]:
    """Writes summary.csv, table.md, table.tex and figures/ into the folder `out`, instead of those of earlier reports.

    Those are listed in .report.json; other files stay. With several attacks, worst.md and worst.tex, too; with
    `report.claims`, claims.md; paired.csv, the differences to the rule `baseline`, if that and another rule were run.
    Returns the paths, of figures those of the .png files. Raises `ConfigError` if `out` is a run folder and this is not
    its default report, which would be lost; `RunFolderError` if another file would be.
    """
    out = out if isinstance(out, RunFolder) else RunFolder(Path(out))
    results.check_destination(out, baseline)
    tables, worst = accuracy_tables(results), worst_tables(results)
    pairs = differences(results, baseline) if find_rule(results, baseline) else []
    every = {
        "summary.csv": as_csv(summary(results)),
        "paired.csv": as_csv(paired_rows(results, pairs)) if pairs else None,
        "table.md": markdown(tables),
        "table.tex": latex(tables),
        "worst.md": markdown(worst) if worst else None,
        "worst.tex": latex(worst, "tab:worst") if worst else None,
        "claims.md": markdown(claims) if (claims := claims_tables(results)[0]) else None,
    }
    texts = {name: text for name, text in every.items() if text is not None}
    all_figures = figures(results) if has_figures else {}
    pngs, pdfs = ([f"figures/{name}.{kind}" for name in sorted(all_figures)] for kind in ("png", "pdf"))
    out.start_report([*texts, *pngs, *pdfs], kept=("report.html", *([] if has_figures else ["figures/"])))
    for name, text in texts.items():
        out.write_text(name, text)
    with style.context():
        for name, figure in all_figures.items():
            out.write_figure(name, figure)
    return [out.path / name for name in (*texts, *pngs)]
