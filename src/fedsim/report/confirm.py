"""What was chosen by its numbers, shown on runs that were not used for choosing.

Choosing among noisy numbers favors those that were lucky, so that the chosen one is worse on other splits. Here the
worst attack and the values of `--choose` are chosen on some runs, and the numbers of others are shown.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from polars import col

from fedsim.errors import ConfigError
from fedsim.report.names import scenario_name
from fedsim.report.results import Results
from fedsim.report.rows import row_names
from fedsim.report.settings import rows_of


def parse(text: str) -> tuple[str, Sequence[int]]:
    """Key and values of "data.seed=5..9" or "seed=5,6,7". Raises `ConfigError`."""
    match = re.fullmatch(r"(data\.seed|seed)=(?:(\d+)\.\.(\d+)|(\d+(?:,\d+)*))", text)
    if match is None:
        raise ConfigError(
            f"--confirm: must be data.seed=FIRST..LAST, seed=FIRST..LAST, or values as in seed=5,6, got {text}"
        )
    key, first, last, several = match.groups()
    values = tuple(map(int, several.split(","))) if several else range(int(first), int(last) + 1)
    if not values:
        raise ConfigError(f"--confirm: must go from the lower to the higher number, got {text}")
    return key, values


def confirm(results: Results, key: str, values: Sequence[int]) -> Results:
    """The runs in which `key`, "data.seed" or "seed", has one of `values`; the others are for choosing.

    Settings that lack runs of either kind are left out, with a note. Raises `ConfigError` if none is left.
    """
    position = ("data.seed", "seed").index(key)
    is_wanted = lambda draw: draw[position] in values
    shown = []
    lacks_others: list[str] = []
    lacks_these: list[str] = []
    names = row_names(results.settings)
    for setting in results.settings:
        if len(shares := set(map(is_wanted, setting.draws))) == 2:
            shown.append(setting.select(is_wanted))
        else:
            name = f"{names[setting]}, {scenario_name(setting.scenario)}"
            (lacks_others if True in shares else lacks_these).append(name)
    if not shown:
        which = f"no others to choose on; run other values of {key}, too" if lacks_others else "none of these"
        raise ConfigError(f"--confirm: must be some of the runs, but there are {which}")
    left_out = {"no other runs to choose on": lacks_others, "none of these runs": lacks_these}
    notes = *results.notes, *(f"Left out, as there are {why}: {'; '.join(of)}." for why, of in left_out.items() if of)
    present = sorted({draw[position] for setting in shown for draw in setting.draws})
    table = rows_of(results.table, shown)
    explored = table.filter(~col(key).is_in(present))
    table = table.filter(col(key).is_in(present))
    confirmed = f"{key} {_format(present)}"
    return replace(results, settings=shown, table=table, explored=explored, confirmed=confirmed, notes=notes)


def _format(values: Sequence[int]) -> str:
    """For example "5 to 9", or "2, 3, 7"."""
    is_range = len(values) > 2 and values[-1] - values[0] == len(values) - 1
    return f"{values[0]} to {values[-1]}" if is_range else ", ".join(map(str, values))
