"""The command line: `fedsim`."""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from fedsim import interrupts
from fedsim.cli import data, diff, doctor, init, rate, report, run, show
from fedsim.cli import list as list_configurations
from fedsim.cli.overrides import no_option, split_overrides
from fedsim.config.values import option_of
from fedsim.errors import ConfigError, FedsimError, describe_os_error
from fedsim.version import __version__

WELCOME = """\
fedsim simulates federated learning with corrupted clients.

Start here:
  fedsim run quickstart    compare five aggregators on digits (37 seconds on two idle cores)
  fedsim list              list the other configurations that come along
  fedsim init              write a configuration for your own data
  fedsim config            print every key of a configuration, with its default and meaning
  fedsim data list         list the data sets
  fedsim --help            list all commands
"""

COMMANDS = ("run", "rate", "list", "init", "config", "report", "show", "diff", "data", "doctor")
RENAMED = {("init", "--data"): "--data-path", ("report", "--select-per"): "--choose-per"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 2 after errors that users can fix, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    interrupts.set_message("fedsim: interrupted")
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # the reader, such as `head`, has exited
        sys.stderr.close()
        return 0
    except FedsimError as error:
        print(f"fedsim: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fedsim: error: {describe_os_error(error)}; use another path", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(interrupts.message(), file=sys.stderr)
        return interrupts.INTERRUPTED


def entry() -> None:
    """The program `fedsim`. After Ctrl-C it exits at once: shutting XLA down while it compiles can crash."""
    gc.set_threshold(100_000, 20, 100)  # imports, tracing and figures make many objects and little garbage
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # if its encoding lacks ± or λ
    code = main()
    if code == interrupts.INTERRUPTED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(WELCOME, end="")
        return 0
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        from fedsim.config.registry import did_you_mean, nearest

        match = did_you_mean(nearest(arguments[0], COMMANDS)) or "; the commands are " + ", ".join(COMMANDS)
        raise ConfigError(f"COMMAND: must be a command of fedsim, got {arguments[0]}{match}")
    has_keys = arguments[0] in ("run", "rate", "report")
    rest, overrides = split_overrides(arguments, run.flags()) if has_keys else (arguments, {})
    options, unknown = _parser().parse_known_args(rest)
    if unknown and options.command == "run":
        raise no_option(unknown[0], map(option_of, vars(options)))
    if unknown:
        command = f"fedsim {options.command}"
        renamed = RENAMED.get((options.command, unknown[0].partition("=")[0]))
        remedy = f"it is called {renamed} now" if renamed else f"see `{command} --help`"
        raise ConfigError(f"{unknown[0]}: not an argument of `{command}`; {remedy}")
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": partial(run.call, overrides=overrides),
        "rate": partial(rate.call, overrides=overrides),
        "list": list_configurations.call,
        "init": init.call,
        "config": _config,
        "report": partial(report.call, overrides=overrides),
        "show": show.call,
        "diff": diff.call,
        "data": data.call,
        "doctor": doctor.call,
    }
    return commands[options.command](options)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises `ConfigError`, which `main` prints."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="fedsim", description="Federated learning with corrupted clients.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"fedsim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run.add_parser(commands)
    rate.add_parser(commands)
    list_configurations.add_parser(commands)
    init.add_parser(commands)
    config = commands.add_parser(
        "config",
        help="print every key of a configuration with its default, meaning and allowed values",
        description="Prints every key with its default, meaning and allowed values, as a TOML file to start from.",
    )
    config.add_argument("section", metavar="SECTION", nargs="?", help="only this one, such as server or arfl")
    for command in (report, show, diff, data, doctor):
        command.add_parser(commands)
    return parser


def _config(options: argparse.Namespace) -> int:
    from fedsim.config.resolve import schema

    print(schema().reference(options.section), end="")
    return 0
