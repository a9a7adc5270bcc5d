"""`fedsim show`: list run folders with their status and best results."""

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
        help="list run folders: status, age, runs and best setting",
        description="Lists run folders, the latest first: status, age, runs, and the setting with the best final mean.",
    )
    parser.add_argument(
        "run",
        metavar="DIR",
        type=Path,
        nargs="*",
        help="a run folder, or a folder of run folders (default: runs)",
    )


def call(options: argparse.Namespace) -> int:
    """Shows the folders."""
    from rich.table import Table
    from rich.text import Text

    from fedsim.runs.folder import RunFolder
    from fedsim.terminal import make_console

    roots = options.run or [Path("runs")]
    paths = [path for root in roots for path in _run_folders(root)]
    if not paths:
        raise FedsimError(f"{' '.join(map(str, roots))}: no run folders found; create one with `fedsim run`")
    table = Table(*COLUMNS)
    for path in sorted(paths, key=_modified, reverse=True):
        table.add_row(*map(Text, (str(path), *_cells(RunFolder(path)))))
    make_console().print(table)
    return 0


def _run_folders(path: Path) -> list[Path]:
    if (path / "manifest.json").exists() or not path.is_dir():
        return [path]
    return [manifest.parent for manifest in path.glob("*/manifest.json")]


def _modified(path: Path) -> float:
    manifest = path / "manifest.json"
    return manifest.stat().st_mtime if manifest.exists() else 0.0


def _cells(folder: "RunFolder") -> list[str]:
    """The cells after the folder's name; a broken folder has the error in place of its status."""
    from fedsim.report.names import duration

    try:
        manifest = folder.read_manifest()
    except FedsimError as error:
        return [str(error).removeprefix(f"{folder.path}: "), "", "", ""]
    age = time.time() - _modified(folder.path)
    days = f"{age / DAY:.0f} days" if age > 2 * DAY else duration(age)
    return [_status(folder, manifest), days, str(len(manifest["runs"])), _best(folder)]


def _status(folder: "RunFolder", manifest: dict[str, Any]) -> str:
    """For example "complete", "40 %, stopped" or "40 %, running"."""
    if manifest["status"] == "complete":
        return "complete"
    plan, runs = manifest["plan"], manifest["runs"]
    last = [max((span.last for span in folder.parts(group).spans()), default=0) for group in range(len(plan))]
    completed = sum(rounds * len(group["runs"]) for rounds, group in zip(last, plan, strict=True))
    total = sum(run["server.num_rounds"] for run in runs)
    running = any(folder.is_locked(group) for group in range(len(plan)))
    return f"{100 * completed / max(total, 1):.0f} %, {'running' if running else 'stopped'}"


def _best(folder: "RunFolder") -> str:
    """For example "95.32 ± 0.57 ARFL, Shuffling 30 %": the best setting of its first data set."""
    from fedsim import report
    from fedsim.report.accuracy import final_numbers
    from fedsim.report.metric import metrics_by_data
    from fedsim.report.names import data_name

    try:
        results = report.read(folder)
    except FedsimError as error:
        return str(error).removeprefix(f"{folder.path}: ")
    data = results.settings[0].data
    metric = metrics_by_data(results.settings)[data]
    candidates = {
        f"{row}, {scenario}": number
        for (name, row, scenario), number in final_numbers(results).items()
        if name == data_name(data) and number is not None and math.isfinite(number.mean)
    }
    best = metric.best(number.mean for number in candidates.values())
    for name, number in candidates.items():
        if number.mean == best:
            spread = "" if number.spread is None else f" ± {number.spread:.{metric.digits}f}"
            return f"{best:.{metric.digits}f}{spread} {name}"
    return "all runs diverged"
