"""`fedsim completion`: scripts by which shells complete commands, options and keys."""

import argparse
from collections.abc import Callable
from typing import Any

from fedsim.errors import ConfigError, import_extra, pip_install

SHELLS = ("bash", "zsh")
EPILOG = """\
examples:
  source <(fedsim completion bash)                                        in ~/.bashrc
  fedsim completion zsh > ~/.zfunc/_fedsim                                a folder of $fpath
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Prints a script that completes commands, options and keys in a shell.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)


def call(options: argparse.Namespace, parser: Callable[[], argparse.ArgumentParser]) -> int:
    """Prints the script for the program whose parser `parser()` returns."""
    missing = f"fedsim completion: needs shtab; {pip_install('completion')}"
    shtab = import_extra("shtab", ConfigError, missing)
    print(shtab.complete(parser(), options.shell))
    return 0


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Adds all keys of a configuration to the options of `fedsim run`."""
    from fedsim.cli.overrides import option_of
    from fedsim.config.resolve import schema
    from fedsim.config.synonyms import KEYS

    fields = schema().fields
    meanings = {key: field.meaning for key, field in fields.items()} | {
        short: f"short for {key}" for short, key in KEYS.items()
    }
    for key, meaning in meanings.items():
        for name in (key, f"sweep.{key}"):
            parser.add_argument(option_of(name), metavar="VALUE", help=meaning.replace("%", "%%"))
