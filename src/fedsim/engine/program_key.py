"""Which runs are a group: all that differ in inputs of their program only."""

from collections.abc import Sequence
from dataclasses import fields

from fedsim.config.components import positions_by
from fedsim.config.roles import SHAPE, part
from fedsim.config.schema import Config, Role, Settings
from fedsim.engine import build


def program_key(config: Config) -> tuple[Settings, bool]:
    """Equal for the runs of a group; the last part says whether corruption changes inputs, so that none are shared."""
    return part(config, *SHAPE, Role.BRANCH, Role.DATA), "x" in build.corruption(config).changed_fields


def group_runs(configs: Sequence[Config]) -> list[tuple[int, ...]]:
    """The positions of the runs of each group, in the order of their first run."""
    groups: dict[tuple[Settings, bool], list[int]] = {}
    parts = [field.name for field in fields(Config) if field.name != "seed"]
    for positions in positions_by(configs, *parts).values():
        groups.setdefault(program_key(configs[positions[0]]), []).extend(positions)
    return [tuple(sorted(positions)) for positions in groups.values()]
