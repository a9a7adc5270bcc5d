"""The components that a run names, and their settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from fedsim.config.fields import FIXED, Field, settings_of
from fedsim.config.kinds import KINDS
from fedsim.config.registry import Factory, find, split_names
from fedsim.config.schema import Config


def component_names(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, name) of every component that a configuration by dotted key names."""
    for key in KINDS:
        value = values.get(key)
        yield from ((key, name) for name in (split_names(key, value) if isinstance(value, str) else value or ()))


def flatten(config: Config) -> dict[str, Any]:
    """The configuration as {dotted key: value}: the fixed keys, then the settings of its components."""
    return dict(zip(FIXED, _FIXED_VALUES(config), strict=True)) | dict(config.settings)


def unflatten(values: Mapping[str, Any]) -> Config:
    """The configuration with these values by dotted key; all other fixed keys are at their defaults."""
    nested: dict[str, Any] = {"settings": [pair for pair in values.items() if pair[0] not in FIXED]}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        if key in FIXED:
            (nested.setdefault(section, {}) if section else nested)[name] = value
    return msgspec.convert(nested, Config)


def unmet(field: Field, config: Config) -> str:
    """Why the key has no effect on the run; "" if it has one."""
    settings = dict(config.settings) if field.name not in FIXED else {}
    value = lambda name: settings[name] if name in settings else attrgetter(name)(config)
    is_met = lambda condition: (value(condition.name) == condition.value) != condition.is_negated
    return next((condition.reason for condition in field.only_if if not is_met(condition)), "")


def without_effect(config: Config) -> dict[str, str]:
    """The keys that the run sets although they have no effect on it, and why."""
    values = flatten(config)
    is_set = lambda field: values.get(field.name) not in (None, field.default)
    conditional = filter(is_set, _conditional(factories(config)))
    return {field.name: reason for field in conditional if (reason := unmet(field, config))}


@cache
def _conditional(named: tuple[Factory, ...]) -> tuple[Field, ...]:
    """The fixed keys and the settings of these components that have an effect only under a condition."""
    settings = (field for factory in named for field in settings_of(factory))
    return tuple(field for field in (*FIXED.values(), *settings) if field.only_if)


def factories(config: Config) -> tuple[Factory, ...]:
    """The factories of all components of a run."""
    return _factories(_COMPONENTS(config))


@cache
def _factories(values: tuple[Any, ...]) -> tuple[Factory, ...]:
    return tuple(find(key, name) for key, name in component_names(dict(zip(KINDS, values, strict=True))))


def forget_plugins() -> None:
    """From now on plug-ins have the code that is in their files now."""
    find.cache_clear()
    _factories.cache_clear()


_COMPONENTS = attrgetter(*KINDS)
_FIXED_VALUES = attrgetter(*FIXED)


def settings_for(config: Config, factory: Factory) -> dict[str, Any]:
    """The settings of one component by the parameters of its factory."""
    names = {field.name for field in settings_of(factory)}
    return {name.rpartition(".")[2]: value for name, value in config.settings if name in names}


def positions_by(items: Iterable[Any], *parts: str) -> dict[Any, list[int]]:
    """The positions of equal `items`, or of those with equal `parts`, such as "server" and "settings" of runs."""
    positions: dict[Any, list[int]] = {}
    for position, value in enumerate(map(attrgetter(*parts), items) if parts else items):
        positions.setdefault(value, []).append(position)
    return positions


def distinct_runs(configs: Sequence[Config]) -> list[Config]:
    """One run with each corruption, attack and settings; thousands of a group differ in seeds and rates only."""
    return [configs[first] for first, *_ in positions_by(configs, "corruption", "attack", "settings").values()]


def is_number(value: Any) -> bool:
    """Whether the value of a traced key is an input of the compiled program; another one, such as None, shapes it."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def traced_settings(config: Config) -> dict[str, float]:
    """The settings that are inputs of the compiled program: numbers marked `Traced`, of components built in it."""
    is_traced = are_traced(factories(config), tuple(KINDS))
    return {name: value for name, value in config.settings if is_traced.get(name) and is_number(value)}


@cache
def are_traced(named: tuple[Factory, ...], keys: tuple[str, ...]) -> dict[str, bool]:
    """Whether numbers are inputs of a program: of these keys, and the settings of those of the factories under them."""
    settings = [field for factory in named if factory.key in keys for field in settings_of(factory)]
    return {field.name: field.is_traced for field in [*(FIXED[key] for key in keys), *settings]}
