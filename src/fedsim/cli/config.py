"""`fedsim config`: every key of a configuration."""

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "config",
        help="print every key of a configuration with its default, meaning and allowed values",
        description="Prints every key with its default, meaning and allowed values, as a TOML file to start from.",
    )
    parser.add_argument("section", metavar="SECTION", nargs="?", help="only this one, such as server or arfl")


def call(options: argparse.Namespace) -> None:
    """Prints the keys."""
    from fedsim.config.resolve import schema

    print(schema().reference(options.section), end="")
