"""What of a configuration shapes its program: runs with equal keys are a group.

Seeds, corruption and its fraction, learning rates and all traced settings are data.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple

from fedsim.config.components import positions_by, settings_under, traced_settings
from fedsim.config.schema import AttackConfig, Config, CorruptionConfig, Settings
from fedsim.engine import build

SERVER_KEYS = ("server.weighting", "server.pre_aggregators", "server.aggregator")
ATTACK_KEYS = ("attack.kind",)


class ProgramKey(NamedTuple):
    """The part of a run's configuration that shapes its program: runs with equal keys are a group."""

    config: Config
    """The configuration with everything that is data at its default."""
    changes_inputs: bool
    """Whether corruption changes the inputs, so that runs do not share them."""


def program_key(config: Config) -> ProgramKey:
    """Removes everything from `config` that is data for its program."""
    corruption_settings = dict(settings_under(config, "corruption.kind"))
    traced = traced_settings(config)
    presence = lambda number: None if number is None else 0.0  # whether a number is set shapes the program
    momentum, weight_decay = presence(config.client.momentum), presence(config.client.weight_decay)
    settings = [(key, value) for key, value in config.settings if key not in corruption_settings]
    static = replace(
        config,
        name="fedsim",
        seed=0,
        corruption=CorruptionConfig(),
        attack=AttackConfig(config.attack.kind),
        client=replace(config.client, learning_rate=0.1, momentum=momentum, weight_decay=weight_decay),
        server=replace(config.server, learning_rate=1.0, num_byzantine=None),
        settings=tuple((key, "data" if key in traced else value) for key, value in settings),
    )
    return ProgramKey(static, "x" in build.corruption(config).changed_fields)


def group_runs(configs: Sequence[Config]) -> list[tuple[int, ...]]:
    """The positions of the runs of each group, in the order of their first run."""
    groups: dict[ProgramKey, list[int]] = {}
    parts = [field.name for field in fields(Config) if field.name != "seed"]
    for positions in positions_by(configs, *parts).values():
        groups.setdefault(program_key(configs[positions[0]]), []).extend(positions)
    return [tuple(sorted(positions)) for positions in groups.values()]


class Component(NamedTuple):
    """What shapes the server or the attack of a run: runs with equal ones share a branch of a program."""

    names: tuple[str, ...]
    """The names of its parts."""
    settings: Settings
    """Their settings, without the values of traced ones."""


def server_component(config: Config) -> Component:
    """The weighting, the pre-aggregators and the rule of a run."""
    weighting = [] if config.server.weighting is None else [f"weights of {config.server.weighting}"]
    names = (*weighting, *config.server.pre_aggregators, config.server.aggregator)
    return _component(config, names, SERVER_KEYS)


def attack_component(config: Config) -> Component:
    """The attack of a run."""
    return _component(config, (config.attack.kind,), ATTACK_KEYS)


def _component(config: Config, names: tuple[str, ...], keys: Sequence[str]) -> Component:
    traced = traced_settings(config)
    settings = settings_under(config, *keys)
    return Component(names, tuple((key, "data" if key in traced else value) for key, value in settings))
