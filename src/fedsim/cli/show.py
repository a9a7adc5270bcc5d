"""`fedsim show`: list run folders with their status and best results."""

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import FedsimError

if TYPE_CHECKING:
    from fedsim.runs.folder import RunFolder

COLUMNS = ("folder", "status", "age", "runs", "best in the hardest scenario")
DAY = 24 * 3600


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "show",
        help="list run folders: status, age, runs, and the best rule",
        description="Lists run folders, the latest first: status, age, runs, and the rule with the best final mean in "
        "the scenario where the best one is worst.",
    )
    parser.add_argument(
        "run", metavar="DIR", type=Path, nargs="*", help="a run folder, or a folder of run folders (default: runs)"
    )


def call(options: argparse.Namespace) -> int:
    """Shows the folders; returns 2 if one is no run folder, or is broken."""
    from fedsim.runs.folder import RunFolder
    from fedsim.terminal import make_console, make_table

    roots = options.run or [Path("runs")]
    paths = [path for root in roots for path in _run_folders(root)]
    if not paths:
        raise FedsimError(f"{' '.join(map(str, roots))}: no run folders found; create one with `fedsim run`")
    paths.sort(key=_modified, reverse=True)
    cells, are_whole = zip(*(_cells(RunFolder(path)) for path in paths), strict=True)
    make_console().print(make_table(COLUMNS, [(str(path), *texts) for path, texts in zip(paths, cells, strict=True)]))
    return 0 if all(are_whole) else 2


def _run_folders(path: Path) -> list[Path]:
    if (path / "manifest.json").exists():
        return [path]
    if path.exists() and not path.is_dir():
        raise FedsimError(f"DIR: must be a run folder or a folder of run folders, got the file {path}")
    return [manifest.parent for manifest in path.glob("*/manifest.json")]


def _modified(path: Path) -> float:
    manifest = path / "manifest.json"
    return manifest.stat().st_mtime if manifest.exists() else 0.0


def _cells(folder: "RunFolder") -> tuple[list[str], bool]:
    """The cells after the folder's name, and whether the folder is whole.

    A broken folder has the error in place of its status or its best setting.
    """
    from fedsim.report.names import duration

    try:
        manifest = folder.read_manifest()
    except FedsimError as error:
        return [str(error).removeprefix(f"{folder.path}: "), "", "", ""], False
    age = time.time() - _modified(folder.path)
    days = f"{age / DAY:.0f} days" if age > 2 * DAY else duration(age)
    best, is_whole = _best(folder)
    status = _status(folder, manifest)
    return [status, days, str(len(manifest["runs"])), best], is_whole or manifest["status"] != "complete"


def _status(folder: "RunFolder", manifest: dict[str, Any]) -> str:
    """For example "complete", "40 %, stopped" or "40 %, running"."""
    if manifest["status"] == "complete":
        return "complete"
    plan, runs = manifest["plan"], manifest["runs"]
    last = [max((span.last for span in folder.parts(group).spans()), default=0) for group in range(len(plan))]
    completed = sum(rounds * len(group["runs"]) for rounds, group in zip(last, plan, strict=True))
    total = sum(run["server.num_rounds"] for run in runs)
    try:
        state = "running" if any(folder.is_locked(group) for group in range(len(plan))) else "stopped"
    except FedsimError:  # another user's folder
        state = "not complete"
    return f"{100 * completed / max(total, 1):.0f} %, {state}"


def _best(folder: "RunFolder") -> tuple[str, bool]:
    """The best of the hardest scenario, such as "95.32 ± 0.57 ARFL, Shuffling 30 %"; and whether there are rows.

    The scenario of the first data set in which the best rule is worst; without rows, the reason instead.
    """
    from fedsim import report
    from fedsim.report.accuracy import final_number
    from fedsim.report.names import scenario_name
    from fedsim.report.rows import row_names

    try:
        results = report.load(folder)
    except FedsimError as error:
        return str(error).removeprefix(f"{folder.path}: "), False
    data = results.settings[0].data
    metric = results.metric(data)
    candidates: dict[str, list[tuple[float, str, float | None]]] = {}  # by scenario: goodness, row and spread
    for setting, row in row_names(results.settings).items():
        number = final_number(results, setting) if setting.data == data else None
        if number is not None and math.isfinite(number.mean) and not number.marks:
            of_scenario = candidates.setdefault(scenario_name(setting.scenario), [])
            of_scenario.append((metric.sign * number.mean, row, number.spread))
    if not candidates:
        return "all runs failed", True
    best = {scenario: max(of, key=lambda candidate: candidate[0]) for scenario, of in candidates.items()}
    hardest = min(best, key=lambda scenario: best[scenario][0])
    goodness, row, deviation = best[hardest]
    num_equal = sum(other == goodness for other, *_ in candidates[hardest]) - 1
    spread = "" if deviation is None else f" ± {deviation:.{metric.digits}f}"
    others = f" and {num_equal} more" if num_equal else ""
    return f"{metric.sign * goodness:.{metric.digits}f}{spread} {row}{others}, {hardest}", True
