"""What was chosen after looking, on runs that were not looked at.

Choosing among noisy numbers favors those that were lucky, so that the chosen one is worse on other splits. Here the
worst attack and the values of `--choose` are chosen on some runs, and the numbers of others are shown.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedsim.errors import ConfigError
from fedsim.report.results import Results

SPLIT = "data.seed"


def parse(text: str) -> tuple[str, Sequence[int]]:
    """Key and values of "data.seed=5..9" or "seed=5,6,7". Raises `ConfigError`."""
    match = re.fullmatch(r"(data\.seed|seed)=(?:(\d+)\.\.(\d+)|(\d+(?:,\d+)*))", text)
    if match is None:
        raise ConfigError(
            f"--confirm: must be data.seed=FIRST..LAST, seed=FIRST..LAST, or values as in seed=5,6, got {text}"
        )
    key, first, last, several = match.groups()
    return key, tuple(map(int, several.split(","))) if several else range(int(first), int(last) + 1)


def confirm(results: Results, key: str, values: Sequence[int]) -> Results:
    """The runs in which `key`, "data.seed" or "seed", has one of `values`; the others are for choosing.

    Raises `ConfigError` if there are no runs of either kind.
    """
    shown, explored = [], {}
    for setting in results.settings:
        is_shown = np.asarray([value in values for value in (setting.splits if key == SPLIT else setting.seeds)])
        if is_shown.any():
            shown.append(setting.select(np.flatnonzero(is_shown).tolist()))
        if not is_shown.all():
            explored[setting] = setting.select(np.flatnonzero(~is_shown).tolist())
    if not shown or not explored:
        which = "no such runs" if not shown else "no other runs to choose on"
        raise ConfigError(f"--confirm: must be some of the runs, but there are {which}; run these values of {key}, too")
    return replace(results, settings=shown, explored=explored, confirmed=f"{key} {_format(values)}")


def _format(values: Sequence[int]) -> str:
    return f"{values[0]} to {values[-1]}" if isinstance(values, range) else ", ".join(map(str, values))
