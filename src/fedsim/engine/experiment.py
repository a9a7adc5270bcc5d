"""The loop over the groups of an experiment: locks, checkpoints, callbacks."""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from fedsim.config.experiment import Experiment
from fedsim.config.schema import Config
from fedsim.engine import devices, factories, processes
from fedsim.engine.compiling import MAX_KEPT_FAMILIES, keep_programs, start_compiling
from fedsim.engine.environment import dataset_digest
from fedsim.engine.fitting import fit_layouts
from fedsim.engine.group import GroupRun, start_of
from fedsim.engine.layout import Machine
from fedsim.engine.plan import Plan, make_plan
from fedsim.engine.store import open_folder
from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs.callbacks import Callback
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.folder import RunFolder
from fedsim.runs.writer import GroupWriter

CHECKPOINT_SECONDS = 10.0
POLL_SECONDS = 1.0
log = logging.getLogger("fedsim")


def prepare(experiment: Experiment, use_cache: bool = True) -> Plan:
    """The plan of an experiment, to be run by `run_plan` with compiled programs from a cache. Raises as `make_plan`."""
    devices.use_one_per_core()
    devices.enable_program_cache(use_cache)
    return make_plan(experiment)


def run_plan(
    plan: Plan,
    path: Path,
    callbacks: Sequence[Callback] = (),
    *,
    force: bool = False,
    allow_mismatch: bool = False,
    wait: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> RunFolder:
    """Computes what the folder `path` lacks of the plan's runs and their rounds; resumes runs that were stopped there.

    Processes that run into the same folder share its groups; with `wait` each returns when all groups are complete,
    otherwise when no group is left to start. `force` computes all runs of the plan again. `allow_mismatch` computes
    missing ones although code, versions, device, data or plug-ins differ from those of others. At least
    `checkpoint_seconds` pass between two checkpoints of a group. Raises `RunFolderError` if the folder cannot be used,
    and `ConfigError` if a group does not fit into memory or a plug-in fails.

    Processes that JAX's distributed runtime connects are one run: all of them call this with the same plan, and only
    process 0 has callbacks and writes the folder, which all of them must see for checkpoints.
    """
    processes.check_devices()
    folder = RunFolder(path)
    plan = _open(folder, plan, force, allow_mismatch)
    is_primary = processes.is_primary()
    callbacks = callbacks if is_primary else []
    num_completed = plan.total_rounds - sum(group.total_rounds for group in plan.groups)
    groups = _lock_groups(plan, folder, wait)
    background = ThreadPoolExecutor(1)  # compiles the next family while a group runs
    with closing(groups), ExitStack() as stack:
        stack.callback(keep_programs, MAX_KEPT_FAMILIES)
        stack.callback(background.shutdown, wait=False, cancel_futures=True)
        while (following := processes.decide(lambda: next(groups, None))) is not None:
            number, is_complete = following
            num_others, num_completed = num_completed, num_completed + plan.groups[number].total_rounds
            if is_complete:
                log.info(plan.describe(number, "kept"))
                start = start_of(plan, number, plan.groups[number].configs[0].server.num_rounds, num_completed)
                for callback in callbacks:
                    callback.on_start(start)
                    callback.on_end()
            elif _run_group(plan, number, folder, callbacks, checkpoint_seconds, background, num_others):
                break
    if is_primary and plan.groups:
        with folder.lock.hold(wait=True):
            folder.remove_superseded()
    return folder


def _open(folder: RunFolder, plan: Plan, force: bool, allow_mismatch: bool) -> Plan:
    """As `open_folder`; of several processes, process 0 opens the folder, and the others get its plan."""
    if jax.process_count() == 1:
        return open_folder(folder, plan, force, allow_mismatch)
    digests = [plan.experiment.digest(), *map(dataset_digest, plan.datasets.values())]
    if not processes.have_same("".join(digests)):
        raise ConfigError("--distributed: all processes must have the same configuration and data; copy those of one")

    def share(make: Callable[[], Plan]) -> Plan:
        def dump() -> tuple[list[Config], Machine, list[tuple[Any, ...]]]:
            """What the folder, or the memory of a process, may change."""
            made = make()
            return made.runs, made.machine, [(group.runs, group.layout, group.folder) for group in made.groups]

        runs, machine, groups = processes.decide(dump)
        shared = replace(plan, runs=runs, machine=machine)
        return replace(shared, groups=[shared.group(*group) for group in groups])

    def fit(unfitted: Plan) -> Plan:
        """Compilers of several processes may wait for each other, so all processes compile."""
        return fit_layouts(share(lambda: unfitted))

    if not processes.is_primary():
        fit(plan)
    return share(lambda: open_folder(folder, plan, force, allow_mismatch, fit))


def _lock_groups(plan: Plan, folder: RunFolder, wait: bool) -> Generator[tuple[int, bool]]:
    """The groups that are to be run, each locked until the next; and those that another process completes (True).

    With `wait`, waits for groups that other processes have locked.
    """
    pending, waiting_for = list(range(len(plan.groups))), ""
    while pending:
        locked = []  # by other processes
        for number in pending:
            group = folder.group(plan.groups[number].folder)
            num_rounds = plan.groups[number].configs[0].server.num_rounds
            if not group.path.parent.exists():  # before the lock makes it
                raise RunFolderError(f"{folder.path}: the folder was moved or deleted during the run")
            with group.lock.hold() as is_ours:
                if not is_ours:
                    locked.append(number)
                elif not group.exists():  # another process has computed its runs again
                    group.remove()
                else:
                    # In the second case another process computes more rounds than this plan has.
                    yield number, group.is_complete() or group.last_round() > num_rounds
        if locked == pending:  # no group is left to start
            if not wait and waiting_for:  # the first time, `fedsim show` may have looked at a lock
                return
            holder = folder.group(plan.groups[locked[0]].folder).lock.describe_holder()
            if holder != waiting_for:
                waiting_for = holder
                log.info(plan.describe(locked[0], holder))
            time.sleep(POLL_SECONDS)
        pending = locked


def resume_round(written: Sequence[tuple[int, int]], checkpoint: int | None, eval_every: int) -> int:
    """The round of the `checkpoint` if all rows up to it are `written`; -1 to start over."""
    expected = 0
    for first, last in written:
        if checkpoint is None or first != expected:
            break
        if last == checkpoint:
            return checkpoint
        expected = last + eval_every
    return -1


def _run_group(
    plan: Plan,
    number: int,
    folder: RunFolder,
    callbacks: Sequence[Callback],
    checkpoint_seconds: float,
    background: Executor,
    num_completed: int,
) -> bool:
    """Runs a group that this process has locked, from its last checkpoint if that is valid.

    Returns whether a callback has stopped the experiment. `num_completed` are the rounds of complete groups.
    """
    group, config = folder.group(plan.groups[number].folder), plan.groups[number].configs[0]
    with Checkpoints(group.checkpoints, checkpoint_seconds, processes.decide) as checkpoints:
        latest = checkpoints.latest_round()
        start = processes.decide(lambda: resume_round(group.spans(), latest, config.server.eval_every))
        if start < 0:
            checkpoints.delete()
        following = processes.decide(lambda: _next_family(plan, number, folder))
        writer = GroupWriter(group, checkpoints, processes.is_primary())
        log.info(plan.describe(number, "compiling" if start < 0 else f"compiling, resumes after round {start}"))
        with factories.plugin_errors(plan.runs):  # the program has branches for plug-ins of other groups, too
            inputs, programs = start_compiling(plan, number, background)
            if following is not None:
                start_compiling(plan, following, background)
        run = GroupRun(plan, number, inputs, programs, callbacks, writer, num_completed)
        seconds = run.run(checkpoints, start)
    processes.wait_for_all()  # until all parts of the checkpoint are written
    if seconds is not None and processes.is_primary():
        keep_states = config.record.final_states
        group.mark_complete(config.server.num_rounds, seconds, start >= 0, keep_states)
    return run.is_stopped


def _next_family(plan: Plan, number: int, folder: RunFolder) -> int | None:
    """The first incomplete group after group `number` that does not share its program; None if there is none."""
    later = range(number + 1, len(plan.groups))
    later_groups = (group for group in later if plan.families[group] is not plan.families[number])
    folders = ((group, folder.group(plan.groups[group].folder)) for group in later_groups)
    return next((group for group, path in folders if path.exists() and not path.is_complete()), None)
