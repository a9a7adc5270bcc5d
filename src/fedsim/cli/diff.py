"""`fedsim diff`: in what two run folders differ."""

import argparse
from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.report.results import Results
    from fedsim.report.table import Number
    from fedsim.runs.folder import RunFolder


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


def call(options: argparse.Namespace) -> None:
    """Shows the differences."""
    from fedsim import report
    from fedsim.runs.differences import find_differences
    from fedsim.runs.folder import RunFolder
    from fedsim.terminal import make_console, make_table

    folders = [RunFolder(path) for path in (options.first, options.second)]
    names = [str(folder.path) for folder in folders]
    keys = find_differences(*map(_read_values, folders))
    numbers = _numbers([report.load(folder) for folder in folders])
    every, different = numbers[0] | numbers[1], []
    for setting in every:
        first, second = (of.get(setting) for of in numbers)
        if repr(first) != repr(second):  # NaN equals NaN
            change = f"{second.mean - first.mean:+.4g}" if first and second else ""
            different.append((", ".join(setting), _format(first), _format(second), change))
    output = make_console()
    output.print(make_table(("key", *names), keys) if keys else "No key differs.")
    output.print(make_table(("setting", *names, "difference"), different) if different else "No results differ.")
    if different and len(different) < len(every):
        output.print(f"{len(every) - len(different)} of {len(every)} settings have the same results.")


def _read_values(folder: "RunFolder") -> dict[str, str]:
    """The different values of each key of the folder's runs and computers."""
    from fedsim.runs.differences import flatten_tables

    computers = (environment for group in folder.groups() for environment in group.record.environments)
    values: dict[str, dict[str, None]] = {}
    for table in chain((run.keys for run in folder.runs()), map(flatten_tables, computers)):
        for key, value in table.items():
            if value is not None:
                values.setdefault(key, {})[str(value)] = None
    by_size = lambda value: (len(value), value)  # of most numbers; folders have their runs in any order
    return {key: ", ".join(sorted(different, key=by_size)) for key, different in values.items()}


def _numbers(results: "Sequence[Results]") -> list[dict[tuple[str, str, str], "Number | None"]]:
    """For each folder, the number of each setting, by the names of its data set, row and scenario.

    Keys that differ only between the folders have no part in the names: they are shown by themselves.
    """
    from fedsim.report.accuracy import final_number
    from fedsim.report.keys import SETTING_KEYS
    from fedsim.report.names import data_name, scenario_name
    from fedsim.report.rows import row_names
    from fedsim.report.settings import settings_of
    from fedsim.runs.sweep import varying_keys

    runs = [run for of in results for run in of.runs]
    named = {*SETTING_KEYS, *chain.from_iterable(varying_keys(of.runs) for of in results)}
    common = {key: value for run in runs for key, value in run.items() if key not in named}
    settings = settings_of(
        [run | {key: common[key] for key in run.keys() & common.keys()} for run in runs],
        [stored.num_clients for of in results for _, stored in of.sources],
    )
    names = {run: (row, scenario_name(s.scenario)) for s, row in row_names(settings).items() for run in s.runs}
    starts = accumulate((len(of.runs) for of in results), initial=0)
    return [
        {(data_name(s.data), *names[start + s.runs[0]]): final_number(of, s) for s in of.settings}
        for start, of in zip(starts, results, strict=False)
    ]


def _format(number: "Number | None") -> str:
    if number is None:
        return "missing"
    return f"{number.mean:.4g}" if number.spread is None else f"{number.mean:.4g} ± {number.spread:.2g}"
