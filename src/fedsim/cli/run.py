"""`fedsim run`: run a configuration or a sweep, on this machine or as jobs of a cluster."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import interrupts
from fedsim.cli.overrides import SLURM, TRACKERS
from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.forecast.targets import Target

EPILOG = """\
any key of the configuration can be set on the command line, which overrides the file and its sweep:
  --client.learning-rate 0.05           one value (see `fedsim config` for all keys)
  --mlp.hidden-sizes 64 32              a list, if the key takes one
  --sweep.seed 0 1 2                    several values (or 0,1,2), combined with the rest of the sweep
  --arfl.lam default                    the default, as if the file did not set it
  --lr 0.05                             short for --client.learning-rate; so are --aggregator, --attack, --batch-size,
                                        --cohort-size, --corruption, --data, --epochs, --fraction, --learning-rate,
                                        --model, --num-clients, --num-rounds, --partition and --rounds, also
                                        after --sweep.

examples:
  fedsim run configs/quickstart.toml
  fedsim run configs/quickstart.toml --server.aggregator arfl --sweep.arfl.lam 0.1 1 10
  fedsim run configs/quickstart.toml --corruption.kind flipping --out runs/flipping --dry-run
  fedsim run configs/quickstart.toml --dry-run --target h100
  fedsim run configs/quickstart.toml --sweep.seed 0 1 2 3 4 5 --out runs/quickstart-1234abcd
  fedsim run configs/quickstart.toml --slurm.partition gpu --slurm.time 60 --slurm.gpus-per-node 1

Only what DIR lacks is computed: the same command (without --force) resumes from the last checkpoint, another one adds
its runs or rounds. Commands that run into the same folder share the work.
"""


SEVERAL = ("coordinator", "num_processes", "process_id")
NAMES = "--coordinator, --num-processes and --process-id"
NEXT = "next: see {path}/figures, vary a key (`fedsim config` lists them), or use your own data (`fedsim init`)"


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser's `commands`; returns its parser."""
    parser = commands.add_parser(
        "run",
        help="run a configuration or a sweep, then show its table and plot its figures",
        description="Runs CONFIG and writes a run folder: rows as parquet, summary.csv, figures.",
        epilog=EPILOG,
        usage="fedsim run CONFIG [OPTION ...] [--KEY VALUE] [--sweep.KEY VALUE ...]",
    )
    parser.add_argument(
        "config", metavar="CONFIG", type=Path, help="a TOML file, or a bundled configuration such as quickstart"
    )
    parser.add_argument("--preset", metavar="NAME", help="apply [preset.NAME], such as small (default: paper, none)")
    add_options(parser, "runs/<name>-<hash of the configuration>")
    parser.add_argument(
        "--checkpoint-seconds",
        metavar="S",
        type=float,
        default=10.0,
        help="minimum time between checkpoints (default: 10)",
    )
    parser.add_argument(
        "--no-compile-cache", action="store_true", help="neither use nor write cached compiled programs"
    )
    parser.add_argument(
        "--log",
        metavar="TRACKER ...",
        choices=TRACKERS,
        action="append",
        default=[],
        help="send curves to wandb, or write them for tensorboard into the run folder, while it runs; or both",
    )
    parser.add_argument("--strict", action="store_true", help="treat a key without effect as an error")
    several = parser.add_argument_group("one run on several hosts")
    several.add_argument(
        "--distributed",
        action="store_true",
        help="all processes that srun, mpirun, a TPU slice or a Kubernetes job starts are one run",
    )
    several.add_argument(
        "--coordinator", metavar="HOST:PORT", help="where process 0 listens, if --distributed cannot detect it"
    )
    several.add_argument("--num-processes", metavar="P", type=int, help="with --coordinator: processes of the run")
    several.add_argument("--process-id", metavar="I", type=int, help="with --coordinator: number of this one, from 0")
    return parser


def add_options(parser: argparse.ArgumentParser, folder: str) -> None:
    """Adds the options that `fedsim rate` has, too; `folder` describes the default run folder."""
    parser.add_argument("--out", metavar="DIR", type=Path, help=f"run folder (default: {folder})")
    parser.add_argument("--dry-run", action="store_true", help="show the plan without running it")
    parser.add_argument(
        "--target",
        metavar="DEVICE",
        help="with --dry-run: compile for a100, h100, h200, v5e, v5p, v6e or several (v5e:4), present or not",
    )
    parser.add_argument(
        "--allow-mismatch",
        action="store_true",
        help="compute what is missing although code, versions, device, data or plug-ins have changed since",
    )
    parser.add_argument("--force", action="store_true", help="compute all runs of this command again")


def flags() -> set[str]:
    """The options without a value."""
    options = add_parser(argparse.ArgumentParser().add_subparsers())._option_string_actions
    return {option for option, action in options.items() if action.nargs == 0}


def call(options: argparse.Namespace, overrides: dict[str, Any]) -> None:
    """Runs the configuration with `overrides` (see `cli.overrides`), or shows the plan."""
    if not options.checkpoint_seconds >= 0:  # nan
        raise ConfigError(f"--checkpoint-seconds: must be a number >= 0, got {options.checkpoint_seconds:g}")
    jobs = {key.removeprefix(SLURM): overrides.pop(key) for key in list(overrides) if key.startswith(SLURM)}
    if not _is_distributed(options) or options.target is not None:
        _call(options, overrides, jobs)
        return
    if jobs:
        raise ConfigError("--distributed: must be used without --slurm, whose jobs are runs of their own")
    from fedsim.engine import processes

    processes.connect(options.coordinator, options.num_processes, options.process_id)
    _call(options, overrides, jobs)
    processes.wait_for_all()


def _is_distributed(options: argparse.Namespace) -> bool:
    """Whether this process is one of several. Raises `ConfigError` if options are wrong or missing."""
    given = [getattr(options, name) is not None for name in SEVERAL]
    if not any(given):
        return bool(options.distributed)
    if not all(given):
        raise ConfigError(f"--coordinator: must be used with all of {NAMES}, or use --distributed alone")
    host, _, port = options.coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--coordinator: must be HOST:PORT, got {options.coordinator}")
    if options.num_processes < 1:
        raise ConfigError(f"--num-processes: must be an integer >= 1, got {options.num_processes}")
    if not 0 <= options.process_id < options.num_processes:
        number = options.num_processes - 1
        raise ConfigError(f"--process-id: must be an integer from 0 to {number}, got {options.process_id}")
    return True


def _call(options: argparse.Namespace, overrides: dict[str, Any], slurm: dict[str, str]) -> None:
    from fedsim.api import default_folder
    from fedsim.config import toml
    from fedsim.engine import devices

    target = parse_target(options)
    if target is None:
        devices.use_one_per_core()  # before plug-ins are imported, which may start JAX
    experiment = toml.read(options.config, overrides, options.preset)
    path = options.out or default_folder(experiment)

    from fedsim import report
    from fedsim.cli.report import show
    from fedsim.engine import jobs, make_plan, prepare, processes, run_plan
    from fedsim.runs.trackers import make_trackers
    from fedsim.terminal import show_progress

    if slurm and not options.dry_run:
        if options.strict:
            raise ConfigError("--strict: must be used without --slurm; add --dry-run to check the keys first")
        if options.force:
            raise ConfigError("--force: must be used without --slurm, whose jobs share the folder; use another --out")
        keys = ("allow_mismatch", "checkpoint_seconds", "log", "no_compile_cache")
        for job in jobs.submit(experiment, path, slurm, {key: getattr(options, key) for key in keys}):
            print(f"job {job}")
        print(f"when all jobs have finished: fedsim report {path}; repeat `fedsim run` to complete what they left")
        return
    plan = make_plan(experiment, target.machine) if target else prepare(experiment, not options.no_compile_cache)
    if plan.warnings and options.strict:
        raise ConfigError(plan.warnings[0])
    run_options = {name: getattr(options, name) for name in ("force", "allow_mismatch", "checkpoint_seconds")}
    if not processes.is_primary():
        if not options.dry_run:
            with interrupts.raised():
                run_plan(plan, path, **run_options)
        return
    warn([*plan.warnings, *(["--slurm: has no effect with --dry-run"] if slurm else [])])
    for note in plan.notes:
        print(f"fedsim: note: {note}", file=sys.stderr)
    if options.dry_run:
        from fedsim.cli.plan import show_forecast, show_plan

        show_forecast(plan, target) if target else show_plan(plan, path, options.force, options.allow_mismatch)
        return
    trackers = make_trackers(path, options.log)
    command = "the same command without --force" if options.force else "the same command"
    interrupts.message = f"fedsim: interrupted; {path} is incomplete, {command} resumes it"
    with interrupts.raised(), show_progress(path, plan.runs) as bar:
        folder = run_plan(plan, path, [*trackers, bar], **run_options)
    interrupts.message = f"fedsim: interrupted; all rows are written, `fedsim report {path}` shows them"
    results = report.load(folder)
    written = report.write(results, folder)
    claims, problems = report.claims_tables(results)
    tables = report.narrow(report.accuracy_tables(results), results)
    show((tables, claims), written)
    warn(problems)
    print(NEXT.format(path=path), file=sys.stderr)


def parse_target(options: argparse.Namespace) -> "Target | None":
    """The devices of `--target`, if it was given. Raises `ConfigError` without `--dry-run`."""
    if options.target is None:
        return None
    from fedsim.forecast import targets

    target = targets.parse(options.target)
    if not options.dry_run:
        raise ConfigError("--target: must be used with --dry-run")
    targets.disable_accelerators()
    return target


def warn(warnings: Sequence[str]) -> None:
    """Prints a line for each of the warnings."""
    for warning in warnings:
        print(f"fedsim: warning: {warning}", file=sys.stderr)
