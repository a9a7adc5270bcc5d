"""The host's loop over the groups of an experiment: who runs which, from where, and what is written."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedsim.core.types import ServerState
from fedsim.engine.compiling import Ahead, GroupPrograms
from fedsim.engine.group import GroupRun, Restore
from fedsim.engine.manifest import open_folder
from fedsim.engine.plan import Plan
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Ended, Event, Kept, Observer, Started, Status
from fedsim.runs.folder import RESUMED, SECONDS, RunFolder
from fedsim.runs.streams import JsonLines
from fedsim.runs.swept import run_names
from fedsim.runs.writer import FolderWriter

CHECKPOINT_SECONDS = 10.0
POLL_SECONDS = 1.0


def run_plan(
    plan: Plan,
    path: Path,
    observers: Sequence[Observer] = (),
    *,
    force: bool = False,
    mix: bool = False,
    extend: bool = False,
    wait: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> RunFolder:
    """Runs the plan into the folder `path`, from where an earlier start of it was stopped, with that start's layouts.

    Processes that are started on the same folder share its groups; with `wait` each returns when all is complete,
    otherwise when no group is left to begin. `force` starts over; `mix` goes on although versions or device are others
    than before; `extend` adds the runs and rounds that the folder has not. At least `checkpoint_seconds` pass between
    two checkpoints of a group. `observers` see all events, beside the folder's own. Raises `RunFolderError` where the
    folder holds something else. The manifest's status is "complete" at the end and "incomplete" before, whatever
    happens.
    """
    folder = RunFolder(path)
    manifest, plan = open_folder(folder, plan, force, mix, extend)
    watched = _Watched(plan, (JsonLines(folder, manifest["runs"]), *observers))
    names = run_names(manifest["runs"])
    watched(Started(len(plan.runs), sum(config.server.num_rounds for config in plan.runs), names))
    if manifest["status"] == "complete":
        for number in range(len(plan.groups)):
            watched.kept(number)
        return folder
    pending, waiting_for = list(range(len(plan.groups))), -1
    with Ahead(lambda number: _programs(plan, number)) as ahead:
        while pending:
            busy = []
            for number in pending:
                with folder.lock_group(number) as is_ours:
                    if not is_ours:
                        busy.append(number)
                    elif folder.finished(number):
                        watched.kept(number)
                    else:
                        _run_group(plan, number, folder, watched, checkpoint_seconds, ahead)
            if busy == pending:  # nothing was left to begin
                if not wait:
                    return folder
                if busy[0] != waiting_for:
                    watched.status(busy[0], "another process works on it")
                    waiting_for = busy[0]
                time.sleep(POLL_SECONDS)
            pending = busy
    _complete(folder)
    return folder


class _Watched:
    """A plan and those who watch it run."""

    def __init__(self, plan: Plan, observers: Sequence[Observer]) -> None:
        self._plan, self.observers = plan, tuple(observers)

    def __call__(self, event: Event) -> None:
        for observer in self.observers:
            observer(event)

    def status(self, number: int, text: str) -> None:
        """Says what goes on with a group."""
        title = self._plan.title(self._plan.groups[number])
        self(Status(number, len(self._plan.groups), title, text))

    def kept(self, number: int) -> None:
        """Says that a group is complete already."""
        self.status(number, "kept")
        self(Kept(number, self._plan.num_rounds(self._plan.groups[number])))


def resume_round(written: Sequence[int], checkpoint: int | None, eval_every: int) -> int | None:
    """The round to go on from: the checkpoint's, if every row up to it is `written`; None: from the start."""
    if checkpoint is None:
        return None
    expected = list(range(0, checkpoint + 1, eval_every))
    return checkpoint if list(written[: len(expected)]) == expected else None


def _programs(plan: Plan, number: int) -> GroupPrograms:
    group = plan.groups[number]
    return GroupPrograms(plan.configs(group), plan.dataset(group), group.layout)


def _run_group(
    plan: Plan, number: int, folder: RunFolder, watched: _Watched, checkpoint_seconds: float, ahead: Ahead
) -> None:
    """Runs a group that this process has locked, from its last checkpoint if that is sound."""

    def programs() -> GroupPrograms:
        taken = ahead.take(number)
        later = range(number + 1, len(plan.groups))
        following = next((n for n in later if not folder.finished(n)), None)
        if following is not None:
            ahead.start(following)
        return taken

    group = plan.groups[number]
    configs = plan.configs(group)
    with Checkpoints(folder.checkpoints(number), checkpoint_seconds) as checkpoints:
        eval_every = configs[0].server.eval_every
        start = resume_round(folder.rounds_written(number), checkpoints.latest_round(), eval_every)
        # Logs may be ahead of the folder: what comes after the last checkpoint is void for both.
        observer = _Watched(plan, (*watched.observers, FolderWriter(folder, checkpoints)))
        status: Callable[[str], None] = lambda text: watched.status(number, text)
        run = GroupRun(number, group, configs, plan.dataset(group), observer, status, programs)
        try:
            seconds = run.run(_restore_from(checkpoints, start))
        finally:
            observer(Ended(number))
    folder.finish(number, seconds | {RESUMED: start is not None}, keep_states=configs[0].record.states)


def _restore_from(checkpoints: Checkpoints, start: int | None) -> Restore:
    def restore(shapes: ServerState) -> tuple[int, ServerState] | None:
        return None if start is None else (start, checkpoints.restore(start, shapes))

    return restore


def _complete(folder: RunFolder) -> None:
    """Joins the parts, once all groups are complete."""
    with folder.alone():
        manifest = folder.read_manifest()
        if manifest["status"] == "complete":
            return
        folder.join(manifest["runs"])
        entries = [folder.finished(number) or {} for number in range(len(manifest["plan"]))]
        totals = {name: sum(entry.get(name, 0.0) for entry in entries) for name in SECONDS}
        resumed = {RESUMED: any(entry.get(RESUMED) for entry in entries)}
        folder.write_manifest(manifest | {"status": "complete"} | totals | resumed)
