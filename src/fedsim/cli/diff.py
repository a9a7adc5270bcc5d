"""`fedsim diff`: in what two run folders differ."""

import argparse
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.report.results import Results
    from fedsim.report.table import Number

SAME = ("versions", "device", "source")


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "diff",
        help="compare the keys and the results of two run folders",
        description="Shows the keys that differ between two run folders, then the settings whose results differ: mean "
        "and standard deviation over seeds.",
    )
    parser.add_argument("first", metavar="RUN1", type=Path, help="a run folder")
    parser.add_argument("second", metavar="RUN2", type=Path, help="another run folder")


def call(options: argparse.Namespace) -> int:
    """Shows the differences."""
    from fedsim import report
    from fedsim.runs.folder import RunFolder
    from fedsim.terminal import make_console, make_table

    folders = [RunFolder(path) for path in (options.first, options.second)]
    names = [str(folder.path) for folder in folders]
    keys = [tuple(map(str, line)) for line in _different_keys(*(folder.read_manifest() for folder in folders))]
    numbers = [_numbers(report.load(folder)) for folder in folders]
    every, different = numbers[0] | numbers[1], []
    for setting in every:
        first, second = (of.get(setting) for of in numbers)
        if first != second:
            change = f"{second.mean - first.mean:+.4g}" if first and second else ""
            different.append((", ".join(setting), _format(first), _format(second), change))
    output = make_console()
    output.print(make_table(("key", *names), keys) if keys else "No key differs.")
    output.print(make_table(("setting", *names, "difference"), different) if different else "No results differ.")
    if different and len(different) < len(every):
        output.print(f"{len(every) - len(different)} of {len(every)} settings have the same results.")
    return 0


def _different_keys(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    from fedsim.runs.differences import find_differences

    def keys(manifest: dict[str, Any]) -> dict[str, Any]:
        config = tomllib.loads(manifest["config"])
        blocks = config.pop("sweep", [])  # by number, so that each of their keys is compared
        config |= {f"sweep {number}": block for number, block in enumerate(blocks, 1)}
        return config | {name: manifest.get(name, {}) for name in SAME}

    return find_differences(keys(first), keys(second))


def _numbers(results: "Results") -> dict[tuple[str, str, str], "Number | None"]:
    """The number of each setting, by the names of its data set, row and scenario."""
    from fedsim.report.accuracy import final_number
    from fedsim.report.names import data_name, scenario_name
    from fedsim.report.rows import row_names

    return {
        (data_name(setting.data), row, scenario_name(setting.scenario)): final_number(results, setting)
        for setting, row in row_names(results.settings).items()
    }


def _format(number: "Number | None") -> str:
    if number is None:
        return "missing"
    return f"{number.mean:.4g}" if number.spread is None else f"{number.mean:.4g} ± {number.spread:.2g}"
