"""The loop over the groups of an experiment: locks, checkpoints, events."""

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from fedsim.engine import factories, processes
from fedsim.engine.background import BackgroundCompiler
from fedsim.engine.group import GroupRun
from fedsim.engine.plan import Plan
from fedsim.engine.shared_plan import open_shared
from fedsim.errors import RunFolderError
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Event, GroupFinished, GroupSkipped, Observer, Started
from fedsim.runs.folder import CHECKSUMS, RESUMED, SECONDS, RunFolder
from fedsim.runs.parts import Span
from fedsim.runs.streams import JsonLines
from fedsim.runs.sweep import run_names
from fedsim.runs.writer import FolderWriter, StateWriter

CHECKPOINT_SECONDS = 10.0
POLL_SECONDS = 1.0


def run_plan(
    plan: Plan,
    path: Path,
    observers: Sequence[Observer] = (),
    *,
    force: bool = False,
    allow_mismatch: bool = False,
    extend: bool = False,
    wait: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> RunFolder:
    """Runs the plan into the folder `path`; resumes a run that was stopped there, with its layouts.

    Processes that run into the same folder share its groups; with `wait` each returns when all groups are complete,
    otherwise when no group is left to start. `force` starts over. `allow_mismatch` resumes although code, versions or
    device differ. `extend` adds the runs and rounds that the folder does not have. At least `checkpoint_seconds` pass
    between two checkpoints of a group. `observers` see all events. The manifest's status is "complete" at the end and
    "incomplete" before. Raises `RunFolderError` if the folder cannot be used, and `ConfigError` if a group does not fit
    into memory or a plug-in fails.

    Processes that JAX's distributed runtime connects are one run: all of them call this with the same plan, and only
    process 0 has observers and writes the folder, which all of them must see for checkpoints.
    """
    processes.check_devices()
    folder = RunFolder(path)
    manifest, plan = open_shared(folder, plan, force, allow_mismatch, extend)
    processes.wait_for_all()  # some may take minutes longer to load the data
    observers = [] if manifest is None else [JsonLines(folder, manifest["runs"]), *observers]
    observe = _broadcast(observers)
    pending: list[int] = []
    if manifest is not None:
        num_rounds = sum(config.server.num_rounds for config in plan.runs)
        observe(Started(len(plan.runs), num_rounds, run_names(manifest["runs"])))
        if manifest["status"] == "complete":
            for number in range(len(plan.groups)):
                _skip_group(plan, number, observe)
        else:
            pending += range(len(plan.groups))
    groups = processes.decide_each(_lock_groups(plan, pending, folder, observe, wait))
    with closing(groups), BackgroundCompiler(plan.compiler) as background:
        for number in groups:
            _run_group(plan, number, folder, observers, checkpoint_seconds, background)
    if manifest is not None and manifest["status"] != "complete" and not pending:
        _complete(folder)
    processes.wait_for_all()
    return folder


def _lock_groups(plan: Plan, pending: list[int], folder: RunFolder, observe: Observer, wait: bool) -> Generator[int]:
    """The groups of `pending` that are to be run, each locked until the next; removes complete ones from `pending`.

    With `wait`, waits for groups that other processes have locked.
    """
    waiting_for = None
    while pending:
        locked = []  # by other processes
        for number in list(pending):
            with folder.lock_group(number) as is_ours:
                if not is_ours:
                    locked.append(number)
                elif folder.read_finished(number):
                    _skip_group(plan, number, observe)
                else:
                    yield number
        if locked == pending:  # no group is left to start
            if not wait and waiting_for is not None:  # the first time, `fedsim show` may have looked at a lock
                return
            status = plan.status(locked[0], folder.describe_holder(locked[0]))
            if status != waiting_for:
                waiting_for = status
                observe(status)
            time.sleep(POLL_SECONDS)
        pending[:] = locked


def _broadcast(observers: Sequence[Observer]) -> Observer:
    """An observer that passes every event to all `observers`."""

    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe


def _skip_group(plan: Plan, number: int, observe: Observer) -> None:
    """Reports a group that is complete already."""
    observe(plan.status(number, "kept"))
    observe(GroupSkipped(number, plan.num_rounds(plan.groups[number])))


def resume_round(written: Sequence[Span], checkpoint: int | None, eval_every: int) -> int | None:
    """The round of the `checkpoint` if all rows up to it are `written`; None to start over."""
    expected = 0
    for span in written:
        if checkpoint is None or span.first != expected:
            return None
        if span.last == checkpoint:
            return checkpoint
        expected = span.last + eval_every
    return None


def _run_group(
    plan: Plan,
    number: int,
    folder: RunFolder,
    observers: Sequence[Observer],
    checkpoint_seconds: float,
    background: BackgroundCompiler,
) -> None:
    """Runs a group that this process has locked, from its last checkpoint if that is valid."""
    configs = plan.configs(plan.groups[number])
    with Checkpoints(folder.checkpoints(number), checkpoint_seconds, processes.decide) as checkpoints:
        eval_every, latest = configs[0].server.eval_every, checkpoints.latest_round()
        start = processes.decide(lambda: resume_round(folder.parts(number).spans(), latest, eval_every))
        if start is None:
            checkpoints.delete()
        following = processes.decide(lambda: _next_family(plan, number, folder))
        # Logs may be ahead of the folder; both drop what comes after the last checkpoint.
        write = FolderWriter(folder, checkpoints) if processes.is_primary() else StateWriter(checkpoints)
        observe = _broadcast([*observers, write])
        observe(plan.status(number, "compiling"))
        try:
            with factories.plugin_errors(plan.runs):  # the program has branches for plug-ins of other groups, too
                compiler = background.take(number)
                if following is not None:
                    background.start(following)
            seconds = GroupRun(plan, number, compiler, observe).run(checkpoints, start)
        finally:
            observe(GroupFinished(number))
    processes.wait_for_all()  # until all parts of the checkpoint are written
    if processes.is_primary():
        folder.mark_finished(number, seconds | {RESUMED: start is not None}, keep_states=configs[0].record.final_states)


def _next_family(plan: Plan, number: int, folder: RunFolder) -> int | None:
    """The first incomplete group after group `number` that does not share its program; None if there is none."""
    later = range(number + 1, len(plan.groups))
    later_groups = (group for group in later if plan.families[group] is not plan.families[number])
    return next((group for group in later_groups if not folder.read_finished(group)), None)


def _complete(folder: RunFolder) -> None:
    """Joins the parts of all groups, once these are complete."""
    with folder.lock():
        manifest = folder.read_manifest()
        if manifest["status"] == "complete":
            return
        entries = [entry for number in range(len(manifest["plan"])) if (entry := folder.read_finished(number))]
        if len(entries) < len(manifest["plan"]):
            raise RunFolderError(f"{folder.path}: rows have disappeared since they were written; run it again")
        checksums = folder.join_parts(manifest["runs"])
        totals = {name: sum(entry.get(name, 0.0) for entry in entries) for name in SECONDS}
        resumed = {RESUMED: any(entry.get(RESUMED) for entry in entries)}
        folder.write_manifest(manifest | {"status": "complete", CHECKSUMS: checksums} | totals | resumed)
