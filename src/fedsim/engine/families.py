"""Which runs are a group, since they differ in inputs of their program only; which groups share one as a family.

A server or an attack whose state would take much memory in the runs of others has a program of its own.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import numpy as np

from fedsim.config.components import distinct_runs, positions_by, traced_settings
from fedsim.config.roles import SHAPE, attack_component, part, server_component
from fedsim.config.schema import Config, Settings
from fedsim.config.sections import Role
from fedsim.core.types import FederatedDataset
from fedsim.engine import build, memory
from fedsim.engine.backdoors import find_trigger
from fedsim.engine.estimate import attack_bytes, server_bytes
from fedsim.engine.family import Family
from fedsim.engine.inputs import changed_fields
from fedsim.engine.layout import Layout

MAX_SLOT_SHARE = 0.03  # of the memory, for the slots of all servers and attacks of a family
LOSSES = "these rules use losses, which are not recorded"


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


class Member(NamedTuple):
    """A group, as families see it."""

    configs: Sequence[Config]
    dataset: FederatedDataset
    layout: Layout


def make_families(members: Sequence[Member], available: int) -> list[Family]:
    """The family of each group, given the `available` bytes of memory; groups of a family share the same object."""
    family_of: dict[int, Family] = {}
    programs = [(family_key(member.configs, member.dataset), member.layout) for member in members]
    for numbers in positions_by(programs).values():
        candidates = [members[number] for number in numbers]
        for (_, reason), positions in positions_by(_split(candidates, available)).items():
            family = make_family([candidates[position] for position in positions], reason)
            family_of |= {numbers[position]: family for position in positions}
    return [family_of[number] for number in range(len(members))]


def make_family(members: Sequence[Member], reason: str = "") -> Family:
    """The family of these groups, and the reason why it is not part of a larger one."""
    servers: dict[Settings, Config] = {}
    attacks: dict[Settings, Config] = {}
    settings: dict[str, tuple[float, type]] = {}
    for configs, _, _ in members:
        servers.setdefault(server_component(configs[0]), configs[0])
        attacks.setdefault(attack_component(configs[0]), configs[0])
        for config in distinct_runs(configs):
            for key, value in traced_settings(config).items():
                if key not in settings or isinstance(value, float):
                    settings[key] = value, np.int32 if isinstance(value, int) else np.float32
    return Family(servers, attacks, settings, max(member.dataset.max_num_examples for member in members), reason)


def family_key(configs: Sequence[Config], dataset: FederatedDataset) -> Hashable:
    """Equal for groups whose programs differ in their branches and layouts only."""
    shapes = jax.tree.map(np.shape, (dataset.train, dataset.x_test, dataset.y_test, dataset.root, dataset.validation))
    has_triggers = any(find_trigger(config) is not None for config in distinct_runs(configs))
    dataset_id = id(dataset) if has_triggers else None  # the number of triggered examples depends on the labels
    return program_form(configs, dataset), str(shapes), dataset_id


def program_form(configs: Sequence[Config], dataset: FederatedDataset) -> Hashable:
    """What shapes the programs of a group, except for its branches, its layout and the shapes of its data.

    Of the keys of data, only the seed is left out: splits of a data set have similar shapes, so one layout suits all.
    """
    keys = tuple(pair for pair in part(configs[0], *SHAPE, Role.DATA) if pair[0] != "data.seed")
    is_delayed = any(config.corruption.start_round for config in configs)
    return keys, changed_fields(configs), is_delayed, dataset.spec, dataset.num_test_clients


def _split(members: Sequence[Member], available: int) -> list[tuple[tuple[Settings, ...], str]]:
    """For each of the groups that could be a family, its large components and the reason; equal ones are a family.

    Slots of servers and attacks may take `MAX_SLOT_SHARE` of the memory, the smallest first; each of the others has a
    program of its own. So have rules that use losses, if these are not recorded: the others do not compute them.
    """
    servers = {server_component(member.configs[0]): member for member in members}
    attacks = {attack_component(member.configs[0]): member for member in members}
    num_runs = max(len(member.configs) for member in members)
    large = _large(servers, server_bytes, available, num_runs) | _large(attacks, attack_bytes, available, num_runs)
    users: set[Settings] = set()
    if len(servers) > 1 and not members[0].configs[0].record.losses:
        uses_losses = lambda member: build.trace_server(member.configs[0], member.dataset).uses_losses
        users = {server for server, member in servers.items() if uses_losses(member)}
    parts = []
    for configs, _, _ in members:
        components = server_component(configs[0]), attack_component(configs[0])
        alone = tuple(component for component in components if component in large)
        reasons = [large[component] for component in alone] + [LOSSES] * (components[0] in users)
        parts.append((alone, "; ".join(reasons)))
    return parts


def _large(
    components: Mapping[Settings, Member],
    state_bytes: Callable[[Config, FederatedDataset], int],
    available: int,
    num_runs: int,
) -> dict[Settings, str]:
    """The components whose states take too much memory in `num_runs` runs of others, each with this as a sentence."""
    if len(components) == 1:
        return {}
    sizes = {
        component: num_runs * state_bytes(member.configs[0], member.dataset) for component, member in components.items()
    }
    total, large = 0, {}
    for component in sorted(sizes, key=lambda component: sizes[component]):
        total += sizes[component]
        if total > MAX_SLOT_SHARE * available:
            name, size = _title(dict(component)), memory.gibibytes(sizes[component])
            large[component] = f"the state of {name} takes {size} in {num_runs} runs"
    return large


def _title(component: dict[str, Any]) -> str:
    """For example "weights of arfl + nnm + median", or "mimic"."""
    if "attack.kind" in component:
        return str(component["attack.kind"])
    weighting = component["server.weighting"]
    weights = [f"weights of {weighting}"] if weighting else []
    return " + ".join([*weights, *component["server.pre_aggregators"], component["server.aggregator"]])
