"""The command line: `fedsim`."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from fedsim import interrupts
from fedsim.cli import config, data, diff, doctor, init, rate, report, run, show
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

MODULES = (run, rate, list_configurations, init, config, report, show, diff, data, doctor)
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in MODULES}
RENAMED = {("init", "--data"): "--data-path", ("report", "--select-per"): "--choose-per"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 2 after errors that users can fix, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    interrupts.message = "fedsim: interrupted"
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
    except ValueError as error:
        if "jax" in sys.modules or "JAX" not in str(error):
            raise
        # JAX checks its environment variables when it is imported.
        print(f"fedsim: error: {error}; change or unset this environment variable of JAX", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(interrupts.message, file=sys.stderr)
        return interrupts.INTERRUPTED


def entry() -> None:
    """The program `fedsim`. After Ctrl-C it exits at once: shutting XLA down while it compiles can crash."""
    gc.set_threshold(100_000, 20, 100)  # imports, tracing and figures make many objects and little garbage
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by what started the program, such as a daemon
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
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
    with_keys = ("run", "rate", "report")
    rest, overrides = split_overrides(arguments, run.flags()) if arguments[0] in with_keys else (arguments, {})
    words = [part for word in rest for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if "" in words:  # as a path it would be the working folder
        before = words[words.index("") - 1]
        raise ConfigError(f"{before}: must not be followed by an empty argument; is a shell variable unset?")
    options, unknown = _parser().parse_known_args(rest)
    if unknown and options.command == "run":
        raise no_option(unknown[0], (option_of(name) for name in vars(options) if name != "command"))
    if unknown:
        command = f"fedsim {options.command}"
        renamed = RENAMED.get((options.command, unknown[0].partition("=")[0]))
        remedy = f"it is called {renamed} now" if renamed else f"see `{command} --help`"
        raise ConfigError(f"{unknown[0]}: not an argument of `{command}`; {remedy}")
    call = COMMANDS[options.command].call
    code: int | None = call(options, overrides) if options.command in with_keys else call(options)
    return code or 0


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line; it takes no abbreviations, and shows an epilog as it is."""

    def __init__(self, **settings: Any) -> None:
        style = argparse.RawDescriptionHelpFormatter if settings.get("epilog") else argparse.HelpFormatter
        super().__init__(**settings, formatter_class=style, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raises `ConfigError`, which `main` prints."""
        message += ", before options" * message.startswith("the following arguments are required")
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="fedsim", description="Federated learning with corrupted clients.")
    parser.add_argument("--version", action="version", version=f"fedsim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in MODULES:
        module.add_parser(commands)
    return parser
