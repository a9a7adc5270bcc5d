"""The command line: `fedsim`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from fedsim import __version__, cli_data, cli_paper, cli_report
from fedsim.errors import ConfigError, FedsimError

WELCOME = """\
fedsim simulates federated learning with corrupted clients.

Start here:
  fedsim run configs/quickstart.toml    compare five aggregators on handwritten digits (a minute or two)
  fedsim config                         every key of a configuration, with its default and meaning
  fedsim paper                          the paper's results: commands, and measured beside published
  fedsim data list                      the data sets, and how to prepare them
  fedsim --help                         all commands
"""

RUN_EPILOG = """\
any key of the configuration can be given on the command line, and wins over the file and its sweep:
  --client.learning-rate 0.05           one value (see `fedsim config` for all keys)
  --sweep.seed 0 1 2                    several: every combination with the rest of the sweep is run

examples:
  fedsim run configs/quickstart.toml
  fedsim run configs/quickstart.toml --server.aggregator arfl --sweep.arfl.lam 0.1 1 10
  fedsim run configs/quickstart.toml --corruption.kind flipping --out runs/flipping --dry-run
  fedsim run configs/quickstart.toml --slurm.partition gpu --slurm.time 60 --slurm.gpus-per-node 1

The same command again continues an interrupted run from its last checkpoint; started twice, both share the work.
"""


COMMANDS = ("run", "config", "report", "paper", "data")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 2 for what the user can mend, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # the reader, `head` say, has gone
        sys.stderr.close()
        return 0
    except (FedsimError, OSError) as error:
        print(f"fedsim: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedsim: interrupted", file=sys.stderr)
        return 130


def entry() -> None:
    """The program `fedsim`. After Ctrl-C it ends at once: tearing down XLA while it compiles can crash."""
    code = main()
    if code == 130:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(WELCOME, end="")
        return 0
    overrides: dict[str, Any] = {}
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        from fedsim.keys import did_you_mean, nearest

        match = did_you_mean(nearest(arguments[0], COMMANDS)) or "; the commands are " + ", ".join(COMMANDS)
        raise ConfigError(f"no command {arguments[0]}{match}")
    if arguments[0] == "run":
        arguments, overrides = split_overrides(arguments)
    options = _parser().parse_args(arguments)
    return {"run": _run, "config": _config, "report": _report, "paper": _paper, "data": _data}[options.command](
        options, overrides
    )


SLURM = "slurm."


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises `ConfigError`, for `main` to show."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="fedsim", description="Federated learning with corrupted clients.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"fedsim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="run a configuration or a sweep, then show its table and draw its figures",
        description="Runs CONFIG and writes a run folder: rows as parquet, summary.csv, figures.",
        epilog=RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fedsim run [OPTION ...] [--KEY VALUE] [--sweep.KEY VALUE ...] CONFIG",
        allow_abbrev=False,
    )
    run.add_argument("config", metavar="CONFIG", type=Path, help="a TOML file")
    run.add_argument("--budget", metavar="NAME", help="use its [budget.NAME], such as small (default: paper)")
    run.add_argument(
        "--out", metavar="DIR", type=Path, help="the run folder (default: runs/<name>-<hash of the config>)"
    )
    run.add_argument("--dry-run", action="store_true", help="show what would run, and run nothing")
    run.add_argument(
        "--checkpoint-seconds",
        metavar="S",
        type=float,
        default=10.0,
        help="least time between checkpoints (default: 10)",
    )
    run.add_argument("--tensorboard", action="store_true", help="write curves for TensorBoard into the run folder")
    run.add_argument("--mix", action="store_true", help="go on although versions or device are others than before")
    run.add_argument("--force", action="store_true", help="start over where the folder holds results already")

    commands.add_parser(
        "config",
        help="print every key of a configuration with its default and meaning",
        description="Prints every key with its default and meaning, as a TOML file to start from.",
    )
    cli_report.add_parser(commands)
    cli_paper.add_parser(commands)
    cli_data.add_parser(commands)
    return parser


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Arguments without `--key value` and `--sweep.key value ...`, and these as {"key": "value"}.

    An option counts as a key if it has a dot or is the name of a key; `-` in it stands for `_`.
    """
    from fedsim.keys import KEYS, did_you_mean, nearest_key

    rest: list[str] = []
    overrides: dict[str, Any] = {}
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        option, has_value, value = argument.partition("=")
        key = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or ("." not in key and key not in KEYS):
            rest.append(argument)
            continue
        prefix = "sweep." if key.startswith("sweep.") else ""
        target = key.removeprefix(prefix)
        if target.startswith(SLURM):
            prefix = ""
        elif target not in KEYS:
            match = nearest_key(target)
            suggestion = did_you_mean(f"--{prefix}{match.replace('_', '-')}" if match else None)
            raise ConfigError(f"{option}: unknown key {target}{suggestion}")
        values = [value] if has_value else []
        while pending and not values_end(pending[0]) and (prefix or not values):
            values.append(pending.pop(0))
        if not values:
            raise ConfigError(f"{option}: needs a value")
        if {target, f"sweep.{target}"} & overrides.keys():
            raise ConfigError(f"{option}: given twice; a key has one value, or --sweep and all its values at once")
        overrides[key] = values if prefix else values[0]
    return rest, overrides


def values_end(argument: str) -> bool:
    """Whether `argument` is no value of a sweep any more: the next option, or the configuration file."""
    return argument.startswith("--") or argument.endswith(".toml")


def _run(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    from fedsim.configfile import load

    jobs = {key.removeprefix(SLURM): overrides.pop(key) for key in list(overrides) if key.startswith(SLURM)}
    experiment = load(options.config, overrides, options.budget)
    path = options.out or Path("runs") / f"{experiment.base.name}-{experiment.digest()}"

    from fedsim import console, devices, report, sinks, slurm
    from fedsim.experiment import run
    from fedsim.plan import make_plan

    if jobs and not options.dry_run:
        for job in slurm.submit(experiment, path, jobs):
            print(f"job {job}")
        print(f"when all are done: fedsim report {path}; `fedsim run` of the same takes up what they left")
        return 0
    tensorboard = (sinks.TensorBoard(path),) if options.tensorboard else ()
    devices.one_per_core()
    plan = make_plan(experiment)
    if options.dry_run:
        console.show_plan(plan, path)
        return 0
    with console.Bar() as progress:
        try:
            folder = run(
                plan,
                path,
                progress,
                force=options.force,
                mix=options.mix,
                checkpoint_seconds=options.checkpoint_seconds,
                sinks=tensorboard,
            )
        except KeyboardInterrupt:
            progress.close()
            print(f"fedsim: interrupted; {path} is incomplete, the same command continues it", file=sys.stderr)
            return 130
    try:
        results = report.make(folder)
        table = report.terminal(report.accuracy_tables(results))
        console.show_results(cli_paper.with_page(table, results, folder), folder)
    except KeyboardInterrupt:
        print(f"fedsim: interrupted; all rows are written, `fedsim report {path}` shows them", file=sys.stderr)
        return 130
    return 0


def _config(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    from fedsim.keys import reference

    del options, overrides
    print(reference(), end="")
    return 0


def _report(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    del overrides
    return cli_report.run(options)


def _paper(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    del overrides
    return cli_paper.run(options)


def _data(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    del overrides
    return cli_data.run(options)


if __name__ == "__main__":
    entry()
