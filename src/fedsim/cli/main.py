"""The command line: `fedsim`."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from fedsim import __version__, start
from fedsim.cli import completion as cli_completion
from fedsim.cli import data as cli_data
from fedsim.cli import diff as cli_diff
from fedsim.cli import doctor as cli_doctor
from fedsim.cli import init as cli_init
from fedsim.cli import paper as cli_paper
from fedsim.cli import report as cli_report
from fedsim.cli import run as cli_run
from fedsim.cli import show as cli_show
from fedsim.cli.overrides import no_option, option_of, split_overrides
from fedsim.errors import ConfigError, FedsimError

WELCOME = """\
fedsim simulates federated learning with corrupted clients.

Start here:
  fedsim run quickstart    compare five aggregators on handwritten digits (a minute or two)
  fedsim init              write a configuration for your own data
  fedsim config            every key of a configuration, with its default and meaning
  fedsim paper             the paper's results: commands, and measured beside published
  fedsim data list         the data sets, and how to prepare them
  fedsim --help            all commands
"""

COMMANDS = ("run", "init", "config", "report", "show", "diff", "paper", "data", "doctor", "completion")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 2 for what the user can mend, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    start.say("fedsim: interrupted")
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # the reader, `head` say, has gone
        sys.stderr.close()
        return 0
    except (FedsimError, OSError) as error:
        print(f"fedsim: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(start.said(), file=sys.stderr)
        return start.INTERRUPTED


def entry() -> None:
    """The program `fedsim`. After Ctrl-C it ends at once: tearing down XLA while it compiles can crash."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # where its encoding has no ± or λ
    code = main()
    if code == start.INTERRUPTED:
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
        raise ConfigError(f"no command {arguments[0]}{match}")
    if arguments[0] == "run":
        rest, overrides = split_overrides(arguments)
        options, unknown = _parser().parse_known_args(rest)
        if unknown:
            raise no_option(unknown[0], map(option_of, vars(options)))
        return cli_run.call(options, overrides)
    options = _parser().parse_args(arguments)
    commands = {
        "init": cli_init.call,
        "config": _config,
        "report": cli_report.call,
        "show": cli_show.call,
        "diff": cli_diff.call,
        "paper": cli_paper.call,
        "data": cli_data.call,
        "doctor": cli_doctor.call,
        "completion": lambda options: cli_completion.call(options, partial(_parser, with_keys=True)),
    }
    return commands[options.command](options)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises `ConfigError`, for `main` to show."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def _parser(with_keys: bool = False) -> argparse.ArgumentParser:
    """The parser of all commands; `with_keys` of a configuration among the options of `run`, for completion."""
    parser = Parser(prog="fedsim", description="Federated learning with corrupted clients.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"fedsim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = cli_run.add_parser(commands)
    if with_keys:
        cli_completion.add_keys(run)
    cli_init.add_parser(commands)
    commands.add_parser(
        "config",
        help="print every key of a configuration with its default and meaning",
        description="Prints every key with its default and meaning, as a TOML file to start from.",
    )
    for one in (cli_report, cli_show, cli_diff, cli_paper, cli_data, cli_doctor, cli_completion):
        one.add_parser(commands)
    return parser


def _config(options: argparse.Namespace) -> int:
    from fedsim.config.resolve import schema

    del options
    print(schema().reference(), end="")
    return 0
