"""`fedsim diff`: in what two run folders differ."""

import argparse
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.report.table import Number

SAME = ("versions", "device", "source")


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "diff",
        help="the keys and the cells in which two run folders differ",
        description="Shows the keys in which two run folders differ, then the cells: final mean and deviation of each.",
    )
    parser.add_argument("first", metavar="RUN1", type=Path, help="a run folder")
    parser.add_argument("second", metavar="RUN2", type=Path, help="another")


def call(options: argparse.Namespace) -> int:
    """Shows the differences."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from fedsim import report
    from fedsim.cli import console
    from fedsim.report.table import final_numbers
    from fedsim.runs.folder import RunFolder

    folders = [RunFolder(path) for path in (options.first, options.second)]
    names = [escape(str(folder.path)) for folder in folders]
    keys = Table("key", *names)
    for key, *values in _keys(*(folder.read_manifest() for folder in folders)):
        keys.add_row(*map(Text, (key, *map(str, values))))
    numbers = [final_numbers(report.read(folder)) for folder in folders]
    cells = Table("cell", *names, "difference")
    every = list(numbers[0] | numbers[1])
    different = [cell for cell in every if numbers[0].get(cell) != numbers[1].get(cell)]
    for cell in different:
        one, other = (found.get(cell) for found in numbers)
        change = f"{other.mean - one.mean:+.4g}" if one and other else ""
        cells.add_row(Text(", ".join(cell)), _text(one), _text(other), change)
    shown = console.terminal()
    shown.print(keys if keys.row_count else "No key differs.")
    shown.print(cells if different else "No cell differs.")
    if different and len(different) < len(every):
        shown.print(f"{len(every) - len(different)} of {len(every)} cells are the same.")
    return 0


def _keys(there: dict[str, Any], here: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    from fedsim.runs.differences import differences

    nested = [
        _with_blocks(tomllib.loads(manifest["config"])) | {name: manifest.get(name, {}) for name in SAME}
        for manifest in (there, here)
    ]
    return differences(*nested)


def _with_blocks(config: dict[str, Any]) -> dict[str, Any]:
    """The blocks of the sweep by number, so that each of their keys is compared."""
    blocks = config.pop("sweep", [])
    return config | {f"sweep {number}": block for number, block in enumerate(blocks, 1)}


def _text(number: "Number | None") -> str:
    if number is None:
        return "not there"
    return f"{number.mean:.4g}" if number.spread is None else f"{number.mean:.4g} ± {number.spread:.2g}"
