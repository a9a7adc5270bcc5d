"""`fedsim report`: tables and figures of run folders."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.config.values import Sweep, option_of
from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.report import Results
    from fedsim.report.table import Table
    from fedsim.runs.folder import RunFolder

EPILOG = """\
examples:
  fedsim report runs/quickstart                    table, and summary.csv, paired.csv and figures in the run folder
  fedsim report runs/quickstart --paired           each rule's difference to ARFL over equal seeds, with 95 %
                                                   intervals
  fedsim report runs/cifar10 runs/femnist          one table for several folders
  fedsim report runs/a runs/b --out both           and all files that one folder gets, in both/
  fedsim report runs/cifar10 --format latex > table.tex
  fedsim report runs/cifar10 --format json         a record a number; csv, too
  fedsim report runs/grid --final mean:5           shows the mean of the last five evaluations; with --out, writes it
  fedsim report runs/grid --choose client.learning_rate arfl.lam centered_clipping.tau --out chosen
                                                   each rule with its best values for the worst attack (as in ByzFL)
  fedsim report runs/grid --confirm data.seed=5..9 --out confirmed
                                                   the worst attacks of the other splits, on these splits
  fedsim report runs/a --config mine.toml          only the runs of this configuration, with its rounds
  fedsim report runs/grid --format html            an interactive page for a sweep: runs/grid/report.html

Of a run that several folders contain, the first of the longest is read. --choose selects the best of the swept values
by the mean over seeds on validation data (data.validation_fraction), and on the test set only with --by test. Notes
below the tables have the selected values, and what selecting on the test set would have gained.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "report",
        help="write the tables and figures of run folders",
        description="Shows the tables of run folders, complete or not, and writes summary.csv, paired.csv and figures. "
        "Without --out, only the default report of one folder is written, into that folder.",
        epilog=EPILOG,
        usage="fedsim report RUN [RUN ...] [--config CONFIG [--preset NAME]] [--out DIR] [--paired] "
        "[--baseline RULE] [--final WHICH] [--choose KEY [KEY ...] [--by DATA] [--choose-per WHAT]] "
        "[--confirm KEY=VALUES] [--format FORMAT]",
    )
    parser.add_argument("run", metavar="RUN", type=Path, nargs="+", help="a run folder")
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="folder for files (default: RUN if there is one, and no option changes its numbers)",
    )
    parser.add_argument(
        "--config",
        metavar="CONFIG",
        type=Path,
        help="show only the runs of this configuration; --KEY VALUE overrides its keys",
    )
    parser.add_argument("--preset", metavar="NAME", help="with --config: apply [preset.NAME]")
    parser.add_argument("--paired", action="store_true", help="show differences between rules over equal seeds")
    parser.add_argument("--baseline", metavar="RULE", help="rule that the others are compared with (default: arfl)")
    parser.add_argument(
        "--final",
        metavar="WHICH",
        default="last",
        help="evaluations to show: last, mean:N of the last N, or best on validation data (default: last)",
    )
    parser.add_argument("--choose", metavar="KEY", nargs="+", help="show each rule with the best values of these keys")
    parser.add_argument("--by", choices=("validation", "test"), help="data for --choose (default: validation)")
    parser.add_argument(
        "--choose-per",
        choices=("worst", "scenario"),
        help="--choose selects for the worst attack at each fraction of corrupted clients, or for each scenario "
        "(default: worst)",
    )
    parser.add_argument(
        "--confirm",
        metavar="KEY=VALUES",
        help="show the runs of these splits or seeds only, such as data.seed=5..9, and choose the worst attack and the "
        "values of --choose on the others",
    )
    parser.add_argument(
        "--format",
        choices=("terminal", "markdown", "latex", "csv", "json", "html"),
        default="terminal",
        help="output format; html: only write report.html, an interactive page (default: terminal)",
    )


def call(options: argparse.Namespace, overrides: dict[str, Any]) -> None:
    """Writes and shows the report; `overrides` are of the configuration whose runs are to be shown."""
    from fedsim import report
    from fedsim.config import toml
    from fedsim.report.confirm import parse as parse_confirm
    from fedsim.report.paired import BASELINE, unpaired_notes
    from fedsim.runs.folder import RunFolder

    folders = [RunFolder(path) for path in options.run]
    of_keys = [option_of(f"sweep.{key}" if isinstance(overrides[key], Sweep) else key) for key in overrides]
    given = [*(["--preset"] if options.preset is not None else []), *of_keys]
    if given and not options.config:
        raise ConfigError(f"{given[0]}: must be used with --config CONFIG")
    config = toml.read(options.config, overrides, options.preset) if options.config else None
    results = report.load(*folders, final=options.final, config=config)
    if options.confirm is not None:
        results = report.confirm(results, *parse_confirm(options.confirm))
    if options.choose:
        results = report.choose(results, options.choose, options.by or "validation", options.choose_per or "worst")
    elif options.by or options.choose_per:
        raise ConfigError("--by, --choose-per: must be used with --choose KEY")
    baseline = BASELINE if options.baseline is None else options.baseline
    if options.format == "html":
        _write_page(results, options, _destination(options.out, results, baseline))
        return
    is_paired = options.paired or options.baseline is not None
    paired = report.paired_tables(results, baseline) if is_paired else []
    unpaired = unpaired_notes(results, baseline) if is_paired else []
    if options.paired and not paired:
        raise ConfigError(
            "--paired: "
            + ("; ".join(unpaired) or f"must have another rule with a scenario and a seed in common with {baseline}")
        )
    tables = paired if options.paired else report.accuracy_tables(results)
    out = _destination(options.out, results, baseline)
    written = [] if out is None else report.write(results, out, baseline)
    claims, problems = report.claims_tables(results)
    if options.format == "terminal":
        shown = report.narrow(tables, results, is_written=out is not None)
        show((shown, claims), written)
    else:
        print(_text(tables, options))
    for problem in (*problems, *unpaired):
        print(f"fedsim: note: {problem}", file=sys.stderr)
    if out is None:
        print("fedsim: note: nothing was written; --out DIR writes the files of this report", file=sys.stderr)


def show(parts: Iterable["Sequence[Table]"], written: Sequence[Path]) -> None:
    """Shows parts of a report, and the paths of the files that `report.write` has written."""
    from fedsim import report
    from fedsim.terminal import make_console

    console = make_console()
    for tables in parts:
        console.print(report.terminal(tables))
    for path in written:
        console.print(f"{path}{' (and .pdf)' if path.suffix == '.png' else ''}")


def _text(tables: "Sequence[Table]", options: argparse.Namespace) -> str:
    """The tables in the format of the options; csv and json have a record a number."""
    from fedsim import report

    formats = {
        "markdown": report.markdown,
        "latex": lambda tables: report.latex(tables, "tab:paired" if options.paired else "tab:accuracy"),
        "csv": lambda tables: report.as_csv(report.records(tables)),
        "json": lambda tables: json.dumps(report.records(tables), indent=2),
    }
    return formats[options.format](tables).removesuffix("\n")


def _write_page(results: "Results", options: argparse.Namespace, out: "RunFolder | None") -> None:
    """Writes report.html and prints its path."""
    from fedsim.report.html.page import write_page

    if out is None:
        raise ConfigError("--format html: must be used with --out DIR unless it is the default report of one folder")
    if options.paired or options.baseline:
        raise ConfigError("--format html: must be used without --paired and --baseline")
    print(write_page(results, out))


def _destination(path: Path | None, results: "Results", baseline: str) -> "RunFolder | None":
    """The folder for files, if any: by default none if that cannot be written to."""
    from fedsim.runs.folder import RunFolder

    if path is None:
        folder = results.folders[0]
        return folder if results.is_own(folder, baseline) and os.access(folder.path, os.W_OK) else None
    path.mkdir(parents=True, exist_ok=True)
    return RunFolder(path)
