"""`fedsim show`: run folders, and what came of them."""

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import FedsimError

if TYPE_CHECKING:
    from fedsim.runs.folder import RunFolder

COLUMNS = ("folder", "status", "age", "runs", "best")
DAY = 24 * 3600


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "show",
        help="list run folders: status, age, runs and best cell",
        description="Lists run folders, the latest first: status, age, runs, and the cell with the best final mean.",
    )
    parser.add_argument(
        "run", metavar="DIR", type=Path, nargs="*", help="a run folder, or a folder of them (default: runs)"
    )


def call(options: argparse.Namespace) -> int:
    """Shows the folders."""
    from rich.table import Table
    from rich.text import Text

    from fedsim.cli import console
    from fedsim.runs.folder import RunFolder

    paths = [path for given in options.run or [Path("runs")] for path in _run_folders(given)]
    if not paths:
        raise FedsimError(f"{' '.join(map(str, options.run)) or 'runs'}: no run folder there; `fedsim run` makes one")
    table = Table(*COLUMNS)
    for path in sorted(paths, key=_changed, reverse=True):
        table.add_row(*map(Text, (str(path), *_cells(RunFolder(path)))))
    console.terminal().print(table)
    return 0


def _run_folders(path: Path) -> list[Path]:
    if (path / "manifest.json").exists() or not path.is_dir():
        return [path]
    return [manifest.parent for manifest in path.glob("*/manifest.json")]


def _changed(path: Path) -> float:
    manifest = path / "manifest.json"
    return manifest.stat().st_mtime if manifest.exists() else 0.0


def _cells(folder: "RunFolder") -> list[str]:
    """What stands behind the folder's name; what is wrong with it in place of its status."""
    from fedsim.report.names import duration

    try:
        manifest = folder.read_manifest()
    except FedsimError as error:
        return [str(error).removeprefix(f"{folder.path}: "), "", "", ""]
    age = time.time() - _changed(folder.path)
    days = f"{age / DAY:.0f} days" if age > 2 * DAY else duration(age)
    return [_status(folder, manifest), days, str(len(manifest["runs"])), _best(folder)]


def _status(folder: "RunFolder", manifest: dict[str, Any]) -> str:
    """For example "complete", "40 %, stopped" or "40 %, running"."""
    if manifest["status"] == "complete":
        return "complete"
    plan, runs = manifest["plan"], manifest["runs"]
    last = [max(folder.rounds_written(group), default=0) for group in range(len(plan))]
    done = sum(rounds * len(group["runs"]) for rounds, group in zip(last, plan, strict=True))
    total = sum(run["server.num_rounds"] for run in runs)
    running = any(folder.is_locked(group) for group in range(len(plan)))
    return f"{100 * done / max(total, 1):.0f} %, {'running' if running else 'stopped'}"


def _best(folder: "RunFolder") -> str:
    """For example "95.32 ± 0.57 ARFL, Shuffling 30 %": the best of its first data set."""
    from fedsim import report
    from fedsim.report.measure import measures
    from fedsim.report.names import data_name
    from fedsim.report.table import final_numbers

    try:
        results = report.read(folder)
    except FedsimError as error:
        return str(error).removeprefix(f"{folder.path}: ")
    data = results.cells[0].data
    measure = measures(results.cells)[data]
    found = {
        f"{row}, {scenario}": number
        for (name, row, scenario), number in final_numbers(results).items()
        if name == data_name(data) and number is not None and math.isfinite(number.mean)
    }
    best = measure.best(number.mean for number in found.values())
    for name, number in found.items():
        if number.mean == best:
            spread = "" if number.spread is None else f" ± {number.spread:.{measure.digits}f}"
            return f"{best:.{measure.digits}f}{spread} {name}"
    return "all runs diverged"
