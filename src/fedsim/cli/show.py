"""`fedsim show`: list run folders with their status and best results, and what is missing of a folder's settings."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import FedsimError

if TYPE_CHECKING:
    from fedsim.report.results import Results
    from fedsim.report.settings import Setting
    from fedsim.runs.folder import RunFolder, StoredRun
    from fedsim.runs.groups import GroupFolder

COLUMNS = ("folder", "status", "age", "runs", "best in the hardest scenario")
SETTING_COLUMNS = ("rule", "scenario", "rounds", "complete", "missing")
MAX_SETTINGS, MAX_DRAWS = 50, 6  # that are listed, except incomplete settings
DAY = 24 * 3600


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "show",
        help="list run folders: status, age, runs, and the best rule",
        description="Lists run folders, the latest first: status, age, runs, and the rule with the best final mean in "
        "the scenario where the best one is worst. Of a given run folder also the settings, and what they lack.",
    )
    parser.add_argument(
        "run", metavar="DIR", type=Path, nargs="*", help="a run folder, or a folder of run folders (default: runs)"
    )


def call(options: argparse.Namespace) -> int:
    """Shows the folders; returns 2 if one is no run folder, or is broken."""
    from fedsim.runs.folder import RunFolder
    from fedsim.terminal import make_console, make_table

    of_roots = {root: _run_folders(RunFolder(root)) for root in options.run or [Path("runs")]}
    if empty := [str(root) for root, of_root in of_roots.items() if not of_root]:
        raise FedsimError(f"{' '.join(empty)}: no run folders found; create one with `fedsim run`")
    folders = [folder for of_root in of_roots.values() for folder in of_root]
    folders.sort(key=_modified, reverse=True)
    described = [_describe(folder, folder.path in options.run) for folder in folders]
    cells, settings, are_whole = zip(*described, strict=True)
    output = make_console()
    output.print(make_table(COLUMNS, [(str(f.path), *texts) for f, texts in zip(folders, cells, strict=True)]))
    for folder, rows in zip(folders, settings, strict=True):
        if rows:
            output.print(f"{folder.path}:", make_table(SETTING_COLUMNS, rows))
    return 0 if all(are_whole) else 2


def _run_folders(folder: "RunFolder") -> list["RunFolder"]:
    if folder.has_runs():
        return [folder]
    if folder.path.exists() and not folder.path.is_dir():
        raise FedsimError(f"DIR: must be a run folder or a folder of run folders, got the file {folder.path}")
    children = (type(folder)(path) for path in folder.path.glob("*"))
    return [child for child in children if child.has_runs()]


def _modified(folder: "RunFolder") -> float:
    """When rows were added."""
    from fedsim.runs.legacy import MANIFEST

    paths = [*folder.path.glob("groups/*"), folder.path / MANIFEST]
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)


def _describe(folder: "RunFolder", has_table: bool) -> tuple[list[str], list[tuple[str, ...]], bool]:
    """The cells after the folder's name, the rows of its settings if asked for, and whether it is whole.

    A broken folder has the error in place of its status or its best setting.
    """
    from fedsim.report.keys import with_labels
    from fedsim.report.load import load_runs, stored_runs
    from fedsim.report.names import duration
    from fedsim.report.settings import settings_of

    text = lambda error: str(error).removeprefix(f"{folder.path}: ")
    try:
        runs = stored_runs(folder)
    except FedsimError as error:
        return [text(error), "", "", ""], [], False
    try:
        results = load_runs([folder], [runs])
        best, settings, is_whole = _best(results), results.settings, True
    except FedsimError as error:
        best, settings, is_whole = text(error), [], False
    if has_table and sum(len(setting.runs) for setting in settings) < len(runs):  # some have no rows
        settings = settings_of(with_labels([run.keys for run in runs]), [run.num_clients for run in runs])
    age = max(time.time() - _modified(folder), 0.0)  # of another machine, whose clock may be ahead
    days = f"{age / DAY:.0f} days" if age > 2 * DAY else duration(age)
    runs = [run.as_planned() for run in runs]
    last = {group: group.last_round() for group in {run.group for run in runs if not run.is_complete}}
    status = _status(runs, last)
    rows = _setting_rows(runs, settings, last) if has_table else []
    return [status, days, str(len(runs)), best], rows, is_whole or status != "complete"


def _status(runs: Sequence["StoredRun"], last: dict["GroupFolder", int]) -> str:
    """For example "complete", "40 %, stopped" or "40 %, running"; `last` as for `_missing`."""
    if runs and not last:
        return "complete"
    total = sum(run.num_rounds for run in runs)
    completed = sum(max(last.get(run.group, run.num_rounds), 0) for run in runs)
    state = "running" if any(group.lock.is_held() for group in last) else "stopped"
    return f"{100 * completed // max(total, 1)} %, {state}"


def _setting_rows(
    runs: Sequence["StoredRun"], settings: Sequence["Setting"], last: dict["GroupFolder", int]
) -> list[tuple[str, ...]]:
    """A row a setting, incomplete ones first; of many settings, complete ones are one row, and those of one state."""
    from fedsim.report.names import count, scenario_name
    from fedsim.report.rows import row_names

    num_complete = {setting: sum(runs[run].is_complete for run in setting.runs) for setting in settings}
    is_complete = lambda setting: num_complete[setting] == len(setting.runs)
    rows: list[tuple[str, ...]] = []
    names = row_names(settings)
    others = list(filter(is_complete, settings)) if len(settings) > MAX_SETTINGS else []
    states: dict[tuple[str, str, str], list[Setting]] = {}
    for setting in sorted(settings, key=is_complete)[: len(settings) - len(others)]:
        of = f"{num_complete[setting]} of {count(len(setting.runs), 'run')}"
        state = str(runs[setting.runs[0]].num_rounds), of, _missing(runs, setting, last)
        states.setdefault(state, []).append(setting)
    for state, members in states.items():
        if len(settings) > MAX_SETTINGS and len(members) > 1:
            rows.append((count(len(members), "setting"), "", *state))
        else:
            rows += [(names[setting], scenario_name(setting.scenario), *state) for setting in members]
    num_runs = sum(len(setting.runs) for setting in others)
    rest = (count(len(others), "complete setting"), "", "", f"{num_runs} of {count(num_runs, 'run')}", "")
    return [*rows, *([rest] if others else [])]


def _missing(runs: Sequence["StoredRun"], setting: "Setting", last: dict["GroupFolder", int]) -> str:
    """Which runs of a setting are not complete, for example "seed 2 (has 40 rounds), seed 3, seed 4 (no rows)".

    `last` is the last round of each incomplete group, -1 without rows.
    """
    has_splits = len(setting.splits) > 1
    missing: dict[str, list[str]] = {}  # by what there is of them
    for (split, seed), run in zip(setting.draws, setting.runs, strict=True):
        if not runs[run].is_complete:
            rounds = last[runs[run].group]
            draws = missing.setdefault(f"has {rounds} rounds" if rounds >= 0 else "no rows", [])
            draws.append(f"split {split} " * has_splits + f"seed {seed}")
    more = lambda draws: [f"and {len(draws) - MAX_DRAWS} more"] if len(draws) > MAX_DRAWS else []
    return ", ".join(f"{', '.join(draws[:MAX_DRAWS] + more(draws))} ({what})" for what, draws in missing.items())


def _best(results: "Results") -> str:
    """The best of the hardest scenario, such as "95.32 ± 0.57 ARFL, Shuffling 30 %".

    The scenario of the first data set in which the best rule is worst; clean data only if there is nothing else.
    """
    from fedsim.report.accuracy import final_number
    from fedsim.report.names import scenario_name
    from fedsim.report.rows import row_names

    key = _, metric = results.table_key(results.settings[0])
    candidates: dict[str, list[tuple[float, str, float | None]]] = {}  # by scenario: goodness, row and spread
    clean = {scenario_name(setting.scenario) for setting in results.settings if setting.scenario.is_clean}
    entries = [
        (setting, row, number)
        for setting, row in row_names(results.settings).items()
        if results.table_key(setting) == key and (number := final_number(results, setting)) is not None
        if not number.num_diverged and not number.num_skipped
    ]
    if not entries:
        return "all runs failed"
    fewest = min(number.missing_rounds for *_, number in entries)  # of complete settings, if there are any
    for setting, row, number in entries:
        if number.missing_rounds == fewest:
            of_scenario = candidates.setdefault(scenario_name(setting.scenario), [])
            of_scenario.append((metric.sign * number.mean, row, number.spread))
    best = {scenario: max(of, key=lambda candidate: candidate[0]) for scenario, of in candidates.items()}
    hardest = min(set(best) - clean or best, key=lambda scenario: best[scenario][0])
    goodness, row, deviation = best[hardest]
    num_equal = sum(other == goodness for other, *_ in candidates[hardest]) - 1
    spread = "" if deviation is None else f" ± {deviation:.{metric.digits}f}"
    others = f" and {num_equal} more" if num_equal else ""
    return f"{metric.sign * goodness:.{metric.digits}f}{spread} {row}{others}, {hardest}"
