"""The host's loop over the groups of an experiment: who runs which, from where, and what is written."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedsim.checkpoint import Checkpoints
from fedsim.execute import SECONDS, Output, run_group
from fedsim.manifest import open_folder, read_group
from fedsim.plan import Plan
from fedsim.rows import Columns
from fedsim.sinks import JsonLines, Sink
from fedsim.store import RunFolder
from fedsim.sweep import Group
from fedsim.types import ServerState

CHECKPOINT_SECONDS = 10.0
POLL_SECONDS = 1.0
RESUMED = "resumed"  # in the manifest: its seconds are without those before a checkpoint that was gone on from


class Progress:
    """What a user sees while an experiment runs; this one shows nothing."""

    def start(self, plan: Plan) -> None:
        """Before anything is computed."""

    def group(self, plan: Plan, group: Group, status: str) -> None:
        """`group` is "compiling", "running" or "kept" from an earlier start."""

    def rounds(self, num_rounds: int) -> None:
        """Rounds done, over all runs, since the last call."""


def run(
    plan: Plan,
    path: Path,
    progress: Progress,
    *,
    force: bool = False,
    mix: bool = False,
    wait: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    sinks: Sequence[Sink] = (),
) -> RunFolder:
    """Runs the plan into the folder `path`, from where an earlier start of it was stopped, with that start's layouts.

    Processes that are started on the same folder share its groups; with `wait` each returns when all is complete,
    otherwise when no group is left to begin. `force` starts over; `mix` goes on although versions or device are others
    than before. At least `checkpoint_seconds` pass between two checkpoints of a group. `sinks` get the rows as they
    come, beside the folder's log. Raises `RunFolderError` where the folder holds something else. The manifest's status
    is "complete" at the end and "incomplete" before, whatever happens.
    """
    folder = RunFolder(path)
    manifest = open_folder(folder, plan, force, mix)
    plan = replace(plan, groups=[read_group(entry) for entry in manifest["plan"]])
    progress.start(plan)
    if manifest["status"] == "complete":
        for group in plan.groups:
            _keep(plan, group, progress)
        return folder
    all_sinks = (JsonLines(folder), *sinks)
    pending, told = list(range(len(plan.groups))), -1
    while pending:
        busy = []
        for number in pending:
            with folder.claim(number) as is_ours:
                if not is_ours:
                    busy.append(number)
                elif folder.finished(number):
                    _keep(plan, plan.groups[number], progress)
                else:
                    _run_group(plan, number, folder, progress, checkpoint_seconds, all_sinks)
        if busy == pending:  # nothing was left to begin
            if not wait:
                return folder
            if busy[0] != told:
                progress.group(plan, plan.groups[busy[0]], "another process works on it")
                told = busy[0]
            time.sleep(POLL_SECONDS)
        pending = busy
    _complete(folder)
    return folder


def _run_group(
    plan: Plan,
    number: int,
    folder: RunFolder,
    progress: Progress,
    checkpoint_seconds: float,
    sinks: Sequence[Sink],
) -> None:
    """Runs a group that this process has claimed, from its last checkpoint."""
    group = plan.groups[number]
    configs = [plan.runs[position] for position in group.runs]
    is_resumed = False
    with Checkpoints(folder.checkpoints(number), checkpoint_seconds) as checkpoints:

        def restore(shapes: ServerState) -> tuple[int, ServerState] | None:
            """Goes back to the last checkpoint, if every row before it is there; rows after it are dropped."""
            nonlocal is_resumed
            latest = checkpoints.latest()
            if latest is not None:
                expected = list(range(0, latest + 1, configs[0].server.eval_every))
                if folder.rounds_written(number)[: len(expected)] != expected:
                    latest = None
            after, is_resumed = -1 if latest is None else latest, latest is not None
            folder.drop_parts(number, after)
            for sink in sinks:
                sink.begin(number, after)
            return None if latest is None else (latest, checkpoints.restore(latest, shapes))

        def rows(round_: int, tables: dict[str, Columns]) -> None:
            folder.write_part(number, round_, tables)
            for sink in sinks:
                sink.rows(number, tables["rounds"])

        output = Output(
            rows=rows,
            model=folder.write_model,
            save=checkpoints.save,
            restore=restore,
            status=partial(progress.group, plan, group),
            progress=progress.rounds,
        )
        try:
            seconds = run_group(configs, plan.datasets[configs[0].data], group, output)
        finally:
            for sink in sinks:
                sink.end()
    folder.finish(number, seconds | {RESUMED: is_resumed})


def _complete(folder: RunFolder) -> None:
    """Joins the parts, once all groups are complete."""
    with folder.alone():
        manifest = folder.read_manifest()
        if manifest["status"] == "complete":
            return
        folder.join()
        entries = [folder.finished(number) or {} for number in range(len(manifest["plan"]))]
        totals = {name: sum(entry.get(name, 0.0) for entry in entries) for name in SECONDS}
        resumed = {RESUMED: any(entry.get(RESUMED) for entry in entries)}
        folder.write_manifest(manifest | {"status": "complete"} | totals | resumed)


def _keep(plan: Plan, group: Group, progress: Progress) -> None:
    progress.group(plan, group, "kept")
    progress.rounds(sum(plan.runs[position].server.num_rounds for position in group.runs))
