"""Which runs are a group, since they differ in inputs of their program only; which groups share one as a family.

States of a family's program have a slot for each server (weighting, pre-aggregators and rule) and each attack;
`core.branches` chooses among them. One whose state would take much memory in the runs of others has its own program.
"""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.components import distinct_runs, positions_by, traced_settings
from fedsim.config.roles import attack_component, has_rates_of_rounds, part, server_component
from fedsim.config.schema import Config, Settings
from fedsim.config.sections import Role
from fedsim.core.branches import Branch, MethodFamily, info_name
from fedsim.core.types import FederatedDataset, HParams, PyTree, RoundRecord, SimulationState
from fedsim.engine import build
from fedsim.engine.data import find_trigger
from fedsim.engine.inputs import changed_fields, is_delayed
from fedsim.engine.layout import Layout
from fedsim.engine.memory import attack_bytes, server_bytes

MAX_SLOT_SHARE = 0.03  # of the memory, for the slots of all servers and attacks of a family
ON_HOST = "server.eval_every", "server.patience", "server.stop_diverged"  # keys of what happens between chunks


def program_key(config: Config) -> tuple[Settings, bool, Hashable]:
    """Equal for the runs of a group; the last parts are whether corruption changes the inputs, and how the task."""
    corruption = build.corruption(config)
    keys = part(config, Role.PROGRAM, Role.BRANCH, Role.DATA, Role.RECORD, Role.ENGINE)
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


@dataclass(frozen=True, eq=False)
class Family:
    """The branches of a program."""

    servers: Mapping[Settings, Config]
    """A run with each server, in the order of the branches."""
    attacks: Mapping[Settings, Config]
    """A run with each attack."""
    settings: Mapping[str, tuple[float, type]]
    """A value and the type of each traced setting of any run."""
    max_num_examples: int
    """Examples of the largest client of any data set."""

    def __str__(self) -> str:
        parts = ((self.servers, "rule"), (self.attacks, "attack"))
        return " x ".join(f"{len(branches)} {noun}{'s' * (len(branches) > 1)}" for branches, noun in parts)

    def position(self, config: Config) -> tuple[int, int]:
        """The positions of the run's server and attack."""
        servers, attacks = list(self.servers), list(self.attacks)
        return servers.index(server_component(config)), attacks.index(attack_component(config))

    def branch(self, config: Config) -> Branch:
        """The branch of a run, for the program's inputs."""
        return Branch(*map(np.int32, self.position(config)))

    def hparams(self, configs: Sequence[Config]) -> HParams:
        """The traced numbers [S] of the runs, with those of the family's other branches."""
        numbers = [build.hparams(config) for config in configs]
        settings: dict[str, Any] = {
            key: np.asarray([run.settings.get(key, value) for run in numbers], kind)
            for key, (value, kind) in self.settings.items()
        }
        rates = jax.tree.map(
            lambda *values: np.asarray(values, np.float32), *(run._replace(settings={}) for run in numbers)
        )
        return rates._replace(settings=settings)

    def method(self, dataset: FederatedDataset) -> MethodFamily:
        """Training, attack and aggregation of a round, with the server and the attack of the run's branch."""
        servers = self.servers.values()
        return MethodFamily(
            base=build.method(next(iter(servers))),
            servers=[build.server(config) for config in servers],
            traces=[build.trace_server(config, dataset) for config in servers],
            attacks=[build.attack(config) for config in self.attacks.values()],
        )

    def uses_losses(self, dataset: FederatedDataset) -> bool:
        """Whether the state or the aggregate of any server depends on the clients' losses."""
        return any(build.trace_server(config, dataset).uses_losses for config in self.servers.values())

    def own_state(self, states: SimulationState, config: Config) -> SimulationState:
        """The states with those of the run's own branch in place of all slots."""
        server, attack = self.position(config)
        return states._replace(aggregator=states.aggregator[server], attack=states.attack[attack])

    def with_slots(self, states: SimulationState, like: SimulationState, config: Config) -> SimulationState:
        """The inverse of `own_state`: zeros as `like` in all other slots."""
        server, attack = self.position(config)

        def fill(slots: Sequence[PyTree], position: int, state: PyTree) -> tuple[PyTree, ...]:
            zeros = lambda shapes: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype, device=a.sharding), shapes)
            return tuple(state if slot == position else zeros(shapes) for slot, shapes in enumerate(slots))

        return states._replace(
            aggregator=fill(like.aggregator, server, states.aggregator),
            attack=fill(like.attack, attack, states.attack),
        )

    def own_alpha(self, alpha: PyTree, config: Config) -> PyTree:
        """The weights of all clients that the run's own rule keeps; None if it keeps none."""
        return alpha[self.position(config)[0]]

    def own_info(self, records: RoundRecord, config: Config) -> RoundRecord:
        """The records with the scalars of the run's own rule only."""
        prefix = info_name(self.position(config)[0], "")
        return records._replace(
            info={name.removeprefix(prefix): a for name, a in records.info.items() if name.startswith(prefix)}
        )


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
    labels, counts = np.unique(dataset.y_test, return_counts=True)  # they determine the number of triggered examples
    batch_size = min(configs[0].client.batch_size, dataset.max_num_examples)  # of the draws of a model's layers
    triggers = (labels.tobytes(), counts.tobytes()) if _has_triggers(configs) else None
    return layout_key(configs, dataset), batch_size, triggers


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
    All rounds count only if a learning rate depends on their number, otherwise those of a chunk.
    """
    config = configs[0]
    left_out = {"data.seed", *ON_HOST} | (set() if has_rates_of_rounds(config) else {"server.num_rounds"})
    keys = tuple(pair for pair in part(config, Role.PROGRAM, Role.ENGINE, Role.DATA) if pair[0] not in left_out)
    chunk = config.server.max_rounds, config.server.may_stop, config.record.classes, config.record.local_steps
    change = build.change_task(config), changed_fields(configs), is_delayed(configs)
    return keys, chunk, change, dataset.spec, dataset.num_test_clients


def _split(groups: Sequence[Group], available: int) -> list[Hashable]:
    """For each of the groups that could be a family, what sets it apart; equal ones are a family.

    Slots of servers and attacks may take `MAX_SLOT_SHARE` of the memory, the smallest first; each of the others has a
    program of its own. So have rules that use losses, if these are not recorded: the others do not compute them.
    """
    servers = {server_component(group.configs[0]): group for group in groups}
    attacks = {attack_component(group.configs[0]): group for group in groups}
    num_runs = max(len(group.configs) for group in groups)
    large = _large(servers, server_bytes, available, num_runs) | _large(attacks, attack_bytes, available, num_runs)
    parts: list[Hashable] = []
    for group in groups:
        config = group.configs[0]
        components = server_component(config), attack_component(config)
        needs_losses = not config.record.losses and build.trace_server(config, group.dataset).uses_losses
        parts.append((tuple(filter(large.__contains__, components)), needs_losses))
    return parts


def _large(
    components: Mapping[Settings, Group],
    state_bytes: Callable[[Config, FederatedDataset], int],
    available: int,
    num_runs: int,
) -> set[Settings]:
    """The components whose states take too much memory in `num_runs` runs of others."""
    sizes = {
        component: num_runs * state_bytes(group.configs[0], group.dataset) for component, group in components.items()
    }
    in_order = sorted(sizes, key=lambda component: sizes[component])
    totals = itertools.accumulate(sizes[component] for component in in_order)
    return {component for component, total in zip(in_order, totals, strict=True) if total > MAX_SLOT_SHARE * available}
