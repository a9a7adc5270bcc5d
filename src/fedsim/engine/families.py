"""Which runs are a group, since they differ in inputs of their program only; which groups share one as a family.

A server or an attack whose state would take much memory in the runs of others has a program of its own.
"""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields

import jax
import numpy as np

from fedsim.config.components import distinct_runs, positions_by, traced_settings
from fedsim.config.roles import SHAPE, attack_component, part, server_component
from fedsim.config.schema import Config, Settings
from fedsim.config.sections import Role
from fedsim.core.types import FederatedDataset
from fedsim.engine import build
from fedsim.engine.data import find_trigger
from fedsim.engine.family import Family
from fedsim.engine.inputs import changed_fields, is_delayed
from fedsim.engine.layout import Layout
from fedsim.engine.memory import attack_bytes, server_bytes

MAX_SLOT_SHARE = 0.03  # of the memory, for the slots of all servers and attacks of a family


def program_key(config: Config) -> tuple[Settings, bool, Hashable]:
    """Equal for the runs of a group; the last parts are whether corruption changes the inputs, and how the task."""
    corruption = build.corruption(config)
    keys = part(config, *SHAPE, Role.BRANCH, Role.DATA)
    return keys, "x" in corruption.changed_fields, corruption.change_task


def group_runs(configs: Sequence[Config]) -> list[tuple[int, ...]]:
    """The positions of the runs of each group, in the order of their first run."""
    groups: dict[tuple[Settings, bool, Hashable], list[int]] = {}
    parts = [field.name for field in fields(Config) if field.name != "seed"]
    for positions in positions_by(configs, *parts).values():
        groups.setdefault(program_key(configs[positions[0]]), []).extend(positions)
    return [tuple(sorted(positions)) for positions in groups.values()]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that are locked, checkpointed and written together."""

    runs: tuple[int, ...]
    """Positions in the plan's list of runs."""
    configs: Sequence[Config]
    dataset: FederatedDataset
    layout: Layout
    folder: str = ""
    """The name of its folder in the run folder."""

    @property
    def total_rounds(self) -> int:
        """Rounds over all runs."""
        return sum(config.server.num_rounds for config in self.configs)

    @property
    def max_rounds(self) -> int:
        """The most rounds of a chunk."""
        return self.configs[0].server.max_rounds

    def __str__(self) -> str:
        """For example "arfl, 15 runs"."""
        rule = self.configs[0].server.aggregator.rpartition(":")[2]
        return f"{rule}, {len(self.runs)} run{'s' * (len(self.runs) > 1)}"


def make_families(groups: Sequence[Group], available: int) -> list[Family]:
    """The family of each group, given the `available` bytes of memory; groups of a family share the same object."""
    family_of: dict[int, Family] = {}
    programs = [(family_key(group.configs, group.dataset), group.layout) for group in groups]
    for numbers in positions_by(programs).values():
        candidates = [groups[number] for number in numbers]
        for positions in positions_by(_split(candidates, available)).values():
            family = make_family([candidates[position] for position in positions])
            family_of |= {numbers[position]: family for position in positions}
    return [family_of[number] for number in range(len(groups))]


def make_family(groups: Sequence[Group]) -> Family:
    """The family of these groups."""
    servers: dict[Settings, Config] = {}
    attacks: dict[Settings, Config] = {}
    settings: dict[str, tuple[float, type]] = {}
    for group in groups:
        servers.setdefault(server_component(group.configs[0]), group.configs[0])
        attacks.setdefault(attack_component(group.configs[0]), group.configs[0])
        for config in distinct_runs(group.configs):
            for key, value in traced_settings(config).items():
                if key not in settings or isinstance(value, float):
                    settings[key] = value, np.int32 if isinstance(value, int) else np.float32
    return Family(servers, attacks, settings, max(group.dataset.max_num_examples for group in groups))


def family_key(configs: Sequence[Config], dataset: FederatedDataset) -> Hashable:
    """Equal for groups whose programs differ in their branches and layouts only."""
    counts = np.unique(dataset.y_test, return_counts=True)  # which determine the number of triggered examples
    return layout_key(configs, dataset), str(counts) if _has_triggers(configs) else None


def layout_key(configs: Sequence[Config], dataset: FederatedDataset) -> Hashable:
    """Equal for groups that have the same layout if they have as many runs."""
    shapes = jax.tree.map(np.shape, (dataset.train, dataset.x_test, dataset.y_test, dataset.root, dataset.validation))
    has_backdoors = _has_triggers(configs) and "x" in changed_fields(configs)
    return program_form(configs, dataset), str(shapes), id(dataset) if has_backdoors else None


def _has_triggers(configs: Sequence[Config]) -> bool:
    """Whether the success of a backdoor, or of targeted label noise, is measured."""
    return any(find_trigger(config) is not None for config in distinct_runs(configs))


def program_form(configs: Sequence[Config], dataset: FederatedDataset) -> Hashable:
    """What shapes the programs of a group, except for its branches, its layout and the shapes of its data.

    Of the keys of data, only the seed is left out: splits of a data set have similar shapes, so one layout suits all.
    """
    keys = tuple(pair for pair in part(configs[0], *SHAPE, Role.DATA) if pair[0] != "data.seed")
    change_task = build.change_task(configs[0])
    return keys, changed_fields(configs), change_task, is_delayed(configs), dataset.spec, dataset.num_test_clients


def _split(groups: Sequence[Group], available: int) -> list[Hashable]:
    """For each of the groups that could be a family, what sets it apart; equal ones are a family.

    Slots of servers and attacks may take `MAX_SLOT_SHARE` of the memory, the smallest first; each of the others has a
    program of its own. So have rules that use losses, if these are not recorded: the others do not compute them.
    """
    servers = {server_component(group.configs[0]): group for group in groups}
    attacks = {attack_component(group.configs[0]): group for group in groups}
    num_runs = max(len(group.configs) for group in groups)
    large = _large(servers, server_bytes, available, num_runs) | _large(attacks, attack_bytes, available, num_runs)
    users: set[Settings] = set()
    if len(servers) > 1 and not groups[0].configs[0].record.losses:
        uses_losses = lambda group: build.trace_server(group.configs[0], group.dataset).uses_losses
        users = {server for server, group in servers.items() if uses_losses(group)}
    parts: list[Hashable] = []
    for group in groups:
        components = server_component(group.configs[0]), attack_component(group.configs[0])
        parts.append((tuple(filter(large.__contains__, components)), components[0] in users))
    return parts


def _large(
    components: Mapping[Settings, Group],
    state_bytes: Callable[[Config, FederatedDataset], int],
    available: int,
    num_runs: int,
) -> set[Settings]:
    """The components whose states take too much memory in `num_runs` runs of others."""
    if len(components) == 1:
        return set()
    sizes = {
        component: num_runs * state_bytes(group.configs[0], group.dataset) for component, group in components.items()
    }
    in_order = sorted(sizes, key=lambda component: sizes[component])
    totals = itertools.accumulate(sizes[component] for component in in_order)
    return {component for component, total in zip(in_order, totals, strict=True) if total > MAX_SLOT_SHARE * available}
