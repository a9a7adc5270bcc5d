"""Which runs are a group: all that differ in inputs of their program only."""

from collections.abc import Sequence

from fedsim.config.roles import SHAPE, part
from fedsim.config.schema import Config, Role, Settings
from fedsim.engine import build


def program_key(config: Config) -> tuple[Settings, bool]:
    """Equal for the runs of a group; the last part says whether corruption changes inputs, so that none are shared."""
    return part(config, *SHAPE, Role.BRANCH, Role.DATA), "x" in build.corruption(config).changed_fields


def group_runs(configs: Sequence[Config]) -> list[tuple[int, ...]]:
    """The positions of the runs of each group, in the order of their first run."""
    groups: dict[tuple[Settings, bool], list[int]] = {}
    for position, config in enumerate(configs):
        groups.setdefault(program_key(config), []).append(position)
    return [tuple(positions) for positions in groups.values()]
