"""`fedsim list`: the configurations that come with fedsim."""

import argparse
import itertools
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment

SEEDS = ("seed", "data.seed")


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    commands.add_parser(
        "list",
        help="list the configurations that come with fedsim: what they show, runs and presets",
        description="Lists the configurations that come with fedsim, which `fedsim run NAME` runs from any folder.",
    )


def call(options: argparse.Namespace) -> None:
    """Prints two lines for each configuration."""
    from fedsim.config import bundled, toml

    for name in bundled.names():
        text = bundled.located(Path(name)).read_text(encoding="utf-8")
        presets = ", ".join(tomllib.loads(text).get(toml.PRESET, {}))
        number = count_runs(toml.read(Path(name)))
        size = f"{number:,} run{'s' * (number != 1)}" + (f"; presets: {presets}" if presets else "")
        print(f"{name} ({size})\n    {first_sentence(text)}")
    print("\nRun one with `fedsim run NAME`, or a variant of it with `fedsim run NAME --preset PRESET`.")


def count_runs(experiment: "Experiment") -> int:
    """The number of runs. Seeds change nothing else, so each other point is resolved once: grids take seconds."""
    runs = set[Any]()
    for block in experiment.sweep or ({},):
        seeds = itertools.product(*(block.get(key, [experiment.values.get(key, 0)]) for key in SEEDS))
        other_keys = {key: values for key, values in block.items() if key not in SEEDS}
        runs |= set(itertools.product(replace(experiment, sweep=(other_keys,)).runs(), seeds))
    return len(runs)


def first_sentence(text: str) -> str:
    """That of the comment with which a file begins."""
    comment = re.match(r"(?:#.+\n)*", text)
    assert comment is not None
    return re.split(r"(?<=[.?]) (?=[A-Z])", comment[0].replace("\n#", "").removeprefix("#").strip())[0]
