"""`fedsim run`: a configuration or a sweep, here or as jobs of a cluster."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import start
from fedsim.cli import paper as cli_paper
from fedsim.cli.overrides import SLURM
from fedsim.errors import ConfigError, OverrideError

if TYPE_CHECKING:
    from fedsim.config.toml import Experiment

EPILOG = """\
any key of the configuration can be given on the command line, and wins over the file and its sweep:
  --client.learning-rate 0.05           one value (see `fedsim config` for all keys)
  --mlp.hidden-sizes 64 32              a list, where the key takes one
  --sweep.seed 0 1 2                    several: every combination with the rest of the sweep is run
  --arfl.lam default                    as if the file did not have it
  --lr 0.05                             short for --client.learning-rate; so are --aggregator, --attack, --batch-size,
                                        --cohort-size, --corruption, --data, --epochs, --fraction, --lam, --model,
                                        --num-clients and --rounds, also behind --sweep.

examples:
  fedsim run configs/quickstart.toml
  fedsim run configs/quickstart.toml --server.aggregator arfl --sweep.arfl.lam 0.1 1 10
  fedsim run configs/quickstart.toml --corruption.kind flipping --out runs/flipping --dry-run
  fedsim run configs/quickstart.toml --dry-run --target h100
  fedsim run configs/quickstart.toml --sweep.seed 0 1 2 3 4 5 --out runs/quickstart-1234abcd --extend
  fedsim run configs/quickstart.toml --slurm.partition gpu --slurm.time 60 --slurm.gpus-per-node 1

The same command again (without --force) continues an interrupted run from its last checkpoint; started twice, both
share the work.
"""


NEXT = "next: look into {path}/figures, vary a key (`fedsim config` has all), or take your own data (`fedsim init`)"


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser's `commands`; returns its own."""
    parser = commands.add_parser(
        "run",
        help="run a configuration or a sweep, then show its table and draw its figures",
        description="Runs CONFIG and writes a run folder: rows as parquet, summary.csv, figures.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fedsim run [OPTION ...] [--KEY VALUE] [--sweep.KEY VALUE ...] CONFIG",
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a TOML file, or quickstart")
    parser.add_argument("--budget", metavar="NAME", help="use its [budget.NAME], such as small (default: paper)")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="the run folder (default: runs/<name>-<hash of the config>)"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would run, and run nothing")
    parser.add_argument(
        "--target",
        metavar="DEVICE",
        help="with --dry-run: compile for a100, h100, h200, v5e, v5p or v6e, or several as v5e:4; none need be there",
    )
    parser.add_argument(
        "--checkpoint-seconds",
        metavar="S",
        type=float,
        default=10.0,
        help="least time between checkpoints (default: 10)",
    )
    parser.add_argument(
        "--no-compile-cache", action="store_true", help="compile anew, and keep no compiled programs for later starts"
    )
    parser.add_argument("--tensorboard", action="store_true", help="write curves for TensorBoard into the run folder")
    parser.add_argument(
        "--log", metavar="TRACKER", choices=("wandb", "mlflow"), help="send curves to wandb or mlflow while it runs"
    )
    parser.add_argument("--mix", action="store_true", help="go on although versions or device are others than before")
    parser.add_argument(
        "--extend", action="store_true", help="add runs, such as more seeds, or rounds to what the folder of --out has"
    )
    parser.add_argument("--strict", action="store_true", help="take a key that has no effect as a mistake")
    parser.add_argument("--force", action="store_true", help="start over where the folder holds results already")
    return parser


def call(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    """Runs the configuration with `overrides` (see `cli.overrides`), or shows what would run."""
    from fedsim.api import default_folder
    from fedsim.config.unused import unused
    from fedsim.engine import devices

    jobs = {key.removeprefix(SLURM): overrides.pop(key) for key in list(overrides) if key.startswith(SLURM)}
    if options.target is not None:
        return _for_target(options, overrides)
    devices.one_per_core()  # before a user's own module, which may start JAX
    experiment = _read(options, overrides)
    path = options.out or default_folder(experiment)

    from fedsim import report
    from fedsim.cli import console
    from fedsim.cli.progress import progress
    from fedsim.engine import cache, make_plan, run_plan, slurm
    from fedsim.runs.trackers import sinks

    if jobs and not options.dry_run:
        if options.extend:
            raise ConfigError("--extend: not with --slurm; extend the folder first, or run the new seeds apart")
        if options.force:
            raise ConfigError("--force: not with --slurm, whose jobs share the folder; delete that first")
        keys = ("mix", "checkpoint_seconds", "tensorboard", "log", "no_compile_cache")
        for job in slurm.submit(experiment, path, jobs, {key: getattr(options, key) for key in keys}):
            print(f"job {job}")
        print(f"when all are done: fedsim report {path}; `fedsim run` of the same takes up what they left")
        return 0
    cache.keep_programs(not options.no_compile_cache)
    if options.extend and options.out is None:
        raise ConfigError("--extend: name the folder that gets more runs or rounds, with --out")
    if options.extend and options.force:
        raise ConfigError("--extend: keeps what is there, and --force deletes it; leave one of them out")
    if options.checkpoint_seconds < 0:
        raise ConfigError(f"--checkpoint-seconds: expected 0 or more, got {options.checkpoint_seconds:g}")
    plan = make_plan(experiment)
    without_effect = unused(experiment, plan.runs)
    if jobs:
        without_effect.append("--slurm: has no effect with --dry-run")
    if without_effect and options.strict:
        raise ConfigError(without_effect[0])
    for line in without_effect:
        print(f"fedsim: warning: {line}", file=sys.stderr)
    for note in plan.notes:
        print(f"fedsim: note: {note}", file=sys.stderr)
    if options.dry_run:
        console.show_plan(plan, path)
        return 0
    watching = sinks(path, options.tensorboard, options.log)
    again = "the same command without --force" if options.force else "the same command"
    start.say(f"fedsim: interrupted; {path} is incomplete, {again} continues it")
    with start.raising(), progress(path) as observer:
        folder = run_plan(
            plan,
            path,
            [*watching, observer],
            force=options.force,
            mix=options.mix,
            extend=options.extend,
            checkpoint_seconds=options.checkpoint_seconds,
        )
    start.say(f"fedsim: interrupted; all rows are written, `fedsim report {path}` shows them")
    results = report.make(folder)
    table = report.terminal(report.narrow(report.accuracy_tables(results), results))
    console.show_results([table, *cli_paper.pages(results, folder)], folder)
    print(NEXT.format(path=path), file=sys.stderr)
    return 0


def _read(options: argparse.Namespace, overrides: dict[str, Any]) -> "Experiment":
    """The experiment; a message about the value of one of `overrides` says where that stands."""
    from fedsim.config import toml

    try:
        return toml.read(options.config, overrides, options.budget)
    except OverrideError as error:
        raise ConfigError(f"on the command line: {error}") from None


def _for_target(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    """Shows the plan as it would be on devices that need not be here."""
    from fedsim.engine import make_plan, targets
    from fedsim.engine.layout import Machine

    target = targets.parse(options.target)
    if not options.dry_run:
        raise ConfigError("--target: shows a plan for another device and runs nothing; add --dry-run")
    targets.compile_only()
    experiment = _read(options, overrides)

    from fedsim.cli import targets as cli_targets

    chip = target.chip
    plan = make_plan(experiment, Machine(chip.backend, target.num_devices, chip.memory))
    cli_targets.show(plan, target)
    return 0
