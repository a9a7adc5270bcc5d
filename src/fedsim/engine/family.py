"""A family: the branches of a compiled program, and what they need of the runs that take them.

States have a slot for each server (pre-aggregators and rule) and each attack; `core.branches` chooses among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import attack_component, server_component
from fedsim.config.schema import Config, Settings
from fedsim.core.branches import Branch, MethodFamily, info_name
from fedsim.core.types import FederatedDataset, HParams, PyTree, RoundRecord, SimulationState
from fedsim.engine import build


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
        return Branch(*map(np.int32, self.position(config)))  # type: ignore[arg-type]

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
