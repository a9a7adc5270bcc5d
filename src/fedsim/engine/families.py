"""Families: groups that differ in rule, pre-aggregators, attack and data only, and so share a compiled program.

A program has one branch for each server (pre-aggregators and rule) and each attack of its family; `core.branches`
chooses among them by an index. States have a slot for each of them, so a server or an attack whose state would take
much memory in the runs of others has a program of its own.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.components import settings_under, traced_settings
from fedsim.config.schema import AttackConfig, Config
from fedsim.core.branches import Branch, MethodFamily, info_name
from fedsim.core.contracts import RootEvaluator
from fedsim.core.method import MethodFunction
from fedsim.core.types import Aggregate, CohortReport, FederatedDataset, HParams, PyTree, RoundRecord, SimulationState
from fedsim.engine import build, memory
from fedsim.engine.estimate import attack_bytes, server_bytes
from fedsim.engine.inputs import changed_fields, find_trigger
from fedsim.engine.layout import Layout
from fedsim.engine.program_key import (
    ATTACK_KEYS,
    SERVER_KEYS,
    Component,
    attack_component,
    program_key,
    server_component,
)

MAX_SLOT_SHARE = 0.03  # of the memory, for the slots of all servers and attacks of a family


@dataclass(frozen=True, eq=False)
class Family:
    """The branches of a program."""

    servers: Mapping[Component, Config]
    """A run with each server, in the order of the branches."""
    attacks: Mapping[Component, Config]
    """A run with each attack."""
    settings: Mapping[str, tuple[float, type]]
    """A value and the type of each traced setting of any run."""
    max_num_examples: int
    """Examples of the largest client of any data set."""
    reason: str = ""
    """Why it is not part of a larger family, if it could be."""

    def __str__(self) -> str:
        parts = ((self.servers, "rule"), (self.attacks, "attack"))
        return " x ".join(f"{len(branches)} {noun}{'s' * (len(branches) > 1)}" for branches, noun in parts)

    @property
    def has_branches(self) -> bool:
        """Whether there is more than one server or attack."""
        return len(self.servers) > 1 or len(self.attacks) > 1

    def position(self, config: Config) -> tuple[int, int]:
        """The positions of the run's server and attack."""
        servers, attacks = list(self.servers), list(self.attacks)
        return servers.index(server_component(config)), attacks.index(attack_component(config))

    def branch(self, config: Config) -> Branch | None:
        """The branch of a run, for the program's inputs; None if there is only one."""
        return Branch(*map(np.int32, self.position(config))) if self.has_branches else None  # type: ignore[arg-type]

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

    def method(self, dataset: FederatedDataset) -> MethodFunction | MethodFamily:
        """Training, attack and aggregation of a round, with the server and the attack of the run's branch."""
        base = build.method(next(iter(self.servers.values())))
        if not self.has_branches:
            return base
        servers = list(self.servers.values())
        reports = [_trace_server(config, dataset) for config in servers] if len(servers) > 1 else []
        return MethodFamily(
            base=base,
            servers=[build.server(config) for config in servers],
            attacks=[build.attack(config) for config in self.attacks.values()],
            infos=[report.info for report in reports],
            root_training=[report.trains_on_root for report in reports],
        )

    def own_state(self, states: SimulationState, config: Config) -> SimulationState:
        """The states with the slots of the run's own branch only, as without a family."""
        server, attack = self.position(config)
        return states._replace(
            aggregator=states.aggregator[server] if len(self.servers) > 1 else states.aggregator,
            attack=states.attack[attack] if len(self.attacks) > 1 else states.attack,
        )

    def with_slots(self, states: SimulationState, like: SimulationState, config: Config) -> SimulationState:
        """The inverse of `own_state`: zeros as `like` in all other slots."""
        server, attack = self.position(config)

        def fill(slots: Sequence[PyTree], position: int, own: PyTree) -> tuple[PyTree, ...]:
            zeros = lambda shapes: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype, device=a.sharding), shapes)
            return tuple(own if slot == position else zeros(shapes) for slot, shapes in enumerate(slots))

        return states._replace(
            aggregator=fill(like.aggregator, server, states.aggregator) if len(self.servers) > 1 else states.aggregator,
            attack=fill(like.attack, attack, states.attack) if len(self.attacks) > 1 else states.attack,
        )

    def own_alpha(self, alpha: PyTree, config: Config) -> PyTree:
        """The weights of all clients that the run's own rule keeps; None if it keeps none."""
        return alpha[self.position(config)[0]] if len(self.servers) > 1 else alpha

    def own_info(self, records: RoundRecord, config: Config) -> RoundRecord:
        """The records with the scalars of the run's own rule only."""
        if len(self.servers) == 1:
            return records
        prefix = info_name(self.position(config)[0], "")
        return records._replace(
            info={name.removeprefix(prefix): a for name, a in records.info.items() if name.startswith(prefix)}
        )


class ServerTrace(NamedTuple):
    """What is known of a server once it is traced."""

    info: dict[str, jax.ShapeDtypeStruct]
    """The scalars that its rule reports."""
    uses_losses: bool
    """Whether its state or its aggregate depends on the clients' losses."""
    trains_on_root: bool
    """Whether its rule trains on root data."""


def _trace_server(config: Config, dataset: FederatedDataset) -> ServerTrace:
    """Traces the server of a run, without computing anything."""
    server = build.server(config)(build.hparams(config))
    num_clients, size = dataset.num_clients, config.server.cohort_size
    zeros = lambda shape: jnp.zeros(shape.shape, shape.dtype)
    trains_on_root = False

    def run(losses: jax.Array, all_losses: jax.Array) -> tuple[PyTree, Aggregate]:
        variables = jax.tree.map(zeros, build.model_shapes(config, dataset))
        update = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), variables)
        ids = jnp.arange(size)
        report = CohortReport(ids, ids, losses, update, ids >= 0)

        def train() -> PyTree:
            nonlocal trains_on_root
            trains_on_root = True
            return variables

        rows = lambda updates: jnp.zeros(jax.tree.leaves(updates)[0].shape[0])
        root = RootEvaluator(rows, train)
        key = jax.random.key(0)
        state = server.init(variables, jnp.zeros(num_clients, jnp.int32), all_losses)
        return state, server.aggregate(report, state, (key, key), lambda: root)[0]

    jaxpr, (_, aggregate) = jax.make_jaxpr(run, return_shape=True)(jnp.zeros(size), jnp.zeros(num_clients))
    read = {id(value) for equation in jaxpr.jaxpr.eqns for value in equation.invars} | set(map(id, jaxpr.jaxpr.outvars))
    uses_losses = any(id(value) in read for value in jaxpr.jaxpr.invars)
    info = {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in aggregate.info.items()}
    return ServerTrace(info, uses_losses, trains_on_root)


Part: TypeAlias = tuple[Component | None, str]


class Member(NamedTuple):
    """A group, as families see it."""

    configs: Sequence[Config]
    dataset: FederatedDataset
    layout: Layout


def make_families(members: Sequence[Member], available: int) -> list[Family]:
    """The family of each group, given the `available` bytes of memory; groups of a family share the same object."""
    candidates: dict[Hashable, list[int]] = {}
    for number, member in enumerate(members):
        key = (family_key(member.configs, member.dataset), member.layout)
        candidates.setdefault(key, []).append(number)
    family_of: dict[int, Family] = {}
    for numbers in candidates.values():
        parts: dict[tuple[Part, ...], list[int]] = {}
        for number, part in zip(numbers, _split([members[number] for number in numbers], available), strict=True):
            parts.setdefault(part, []).append(number)
        for part, together in parts.items():
            reason = "; ".join(why for _, why in part if why)
            family = replace(make_family([members[number] for number in together]), reason=reason)
            family_of |= dict.fromkeys(together, family)
    return [family_of[number] for number in range(len(members))]


def make_family(members: Sequence[Member]) -> Family:
    """The family of these groups."""
    servers: dict[Component, Config] = {}
    attacks: dict[Component, Config] = {}
    settings: dict[str, tuple[float, type]] = {}
    for configs, _, _ in members:
        servers.setdefault(server_component(configs[0]), configs[0])
        attacks.setdefault(attack_component(configs[0]), configs[0])
        for config in configs:
            for key, value in traced_settings(config).items():
                if key not in settings or isinstance(value, float):
                    settings[key] = value, np.int32 if isinstance(value, int) else np.float32
    return Family(servers, attacks, settings, max(member.dataset.max_num_examples for member in members))


def family_key(configs: Sequence[Config], dataset: FederatedDataset) -> Hashable:
    """Equal for groups whose programs differ in their branches and layouts only."""
    config, _ = program_key(configs[0])
    branches = dict(settings_under(configs[0], *SERVER_KEYS, *ATTACK_KEYS))
    config = replace(
        config,
        data=replace(config.data, seed=0),
        attack=AttackConfig(),
        server=replace(config.server, aggregator="", pre_aggregators=(), num_byzantine=None),
        settings=tuple((key, value) for key, value in config.settings if key not in branches),
    )
    has_triggers = any(find_trigger(config) is not None for config in configs)
    shapes = jax.tree.map(np.shape, (dataset.train, dataset.x_test, dataset.y_test, dataset.root, dataset.validation))
    is_delayed = any(config.corruption.start_round for config in configs)
    return (
        config,
        changed_fields(configs),
        is_delayed,
        dataset.spec,
        str(shapes),
        dataset.num_test_clients,
        id(dataset) if has_triggers else None,  # the number of triggered examples depends on their labels
    )


def _split(members: Sequence[Member], available: int) -> list[tuple[Part, ...]]:
    """The parts of groups that could be a family: groups with equal values are one, the second of each is the reason.

    Slots of servers and attacks may take `MAX_SLOT_SHARE` of the memory, the smallest first; each of the others has a
    program of its own. So have rules that use losses, if these are not recorded: the others do not compute them.
    """
    servers = {server_component(member.configs[0]): member for member in members}
    attacks = {attack_component(member.configs[0]): member for member in members}
    num_runs = max(len(member.configs) for member in members)
    large = _large(servers, server_bytes, available, num_runs) | _large(attacks, attack_bytes, available, num_runs)
    uses_losses: dict[Component, str] = {}
    if len(servers) > 1 and not members[0].configs[0].record.losses:
        for server, member in servers.items():
            uses = _trace_server(member.configs[0], member.dataset).uses_losses
            uses_losses[server] = "these rules use losses, which are not recorded" if uses else ""
    parts: list[tuple[Part, ...]] = []
    for configs, _, _ in members:
        components = server_component(configs[0]), attack_component(configs[0])
        by_size = [(component, large[component]) if component in large else (None, "") for component in components]
        losses = uses_losses.get(components[0], "")
        parts.append((*by_size, (None, losses)))
    return parts


def _large(
    components: Mapping[Component, Member],
    state_bytes: Callable[[Config, FederatedDataset], int],
    available: int,
    num_runs: int,
) -> dict[Component, str]:
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
            name, size = " + ".join(component.names), memory.gibibytes(sizes[component])
            large[component] = f"the state of {name} takes {size} in {num_runs} runs"
    return large
