"""The reference page of the command line, from its `--help`."""

import argparse
import os

from fedsim.cli import main

HEAD = """# Command line

All commands and their options, as `fedsim --help` and `fedsim COMMAND --help` print them. Exit codes: 0; 2 after an
error that users can fix, with one line on stderr; 130 after Ctrl-C."""


def page() -> str:
    """The page as Markdown."""
    os.environ["COLUMNS"] = "100"  # argparse's width
    return "\n\n".join([HEAD, *_parts(main._parser())]) + "\n"


def _parts(parser: argparse.ArgumentParser, level: int = 1) -> list[str]:
    """The help of the parser, followed by that of its commands."""
    parts = [f"```text\n{parser.format_help()}```"]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                parts += [f"{'#' * (level + 1)} {command.prog}", *_parts(command, level + 1)]
    return parts
