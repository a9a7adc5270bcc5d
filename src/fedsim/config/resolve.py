"""From given values to the configuration of a run: all keys that there are, and what follows from what is named."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from fedsim.config.fields import DEFAULTS, FIXED, Field, settings_of, toml
from fedsim.config.registry import Factory, built_in_factories, did_you_mean, find, nearest
from fedsim.config.schema import NAME_KEYS, Config, DataChoice, Settings, check_clients, named
from fedsim.config.told import takes_f, told
from fedsim.errors import ConfigError

WORDS = {  # what is named under each key
    "data.name": "data set",
    "data.partition": "partition",
    "corruption.kind": "corruption",
    "attack.kind": "attack",
    "model.name": "model",
    "client.algorithm": "algorithm",
    "client.schedule": "schedule",
    "server.aggregator": "aggregator",
    "server.pre_aggregators": "pre-aggregator",
    "server.optimizer": "server's optimiser",
    "server.schedule": "schedule",
}
RESERVED = ("name", "seed", "sweep", "budget", "slurm")  # no name of a section
BUILT_INSIDE = (  # the trace of a program, from `HParams`; all others are built on the host
    "attack.kind",
    "client.algorithm",
    "client.schedule",
    "server.aggregator",
    "server.pre_aggregators",
    "server.optimizer",
    "server.schedule",
)


@dataclass(frozen=True)
class Schema:
    """All keys that a configuration may have; a user's own factories bring theirs."""

    fields: Mapping[str, Field]  # by dotted name, in order
    headings: Mapping[str, str]  # what each section is, in a sentence

    def check(self, name: str, sections: Iterable[str] = ()) -> None:
        """Raises `ConfigError` with the nearest right name (of `sections` first) where there is no such key."""
        if name not in self.fields:
            raise ConfigError(f"unknown key {name}{did_you_mean(nearest(name, sections) or self.nearest(name))}")

    def nearest(self, name: str) -> str | None:
        """The key most like `name`, if any is: the whole name, or else its last part."""
        last_parts = {key.rpartition(".")[2]: key for key in reversed(list(self.fields))}  # the first of several
        match = nearest(name, self.fields)
        if match is None and (part := nearest(name.rpartition(".")[2], last_parts)):
            match = last_parts[part]
        return match

    def resolve(self, values: Mapping[str, Any]) -> Config:
        """The configuration with `values` by dotted key, the others at their defaults.

        It has the settings of the factories that it names and of no others, and every key that has no effect is at its
        default, so that equal runs compare equal. Raises `ConfigError` where a value is wrong.
        """
        fixed: dict[str, Any] = {}
        for name, value in values.items():
            self.check(name)
            section, _, last = name.rpartition(".")
            if name in FIXED:
                (fixed.setdefault(section, {}) if section else fixed)[last] = value
            else:
                self._convert(name, value)
        try:
            config = msgspec.convert(fixed, Config)
        except msgspec.ValidationError as error:
            raise self._complaint(error, values) from None
        for key, name in named(flatten(config)):
            find(key, name)  # also where it has no effect: a wrong name is a mistake all the same
        if config.data.partition != "natural":
            check_clients(config, config.data.num_clients)
        config = canonical(config)
        return replace(config, settings=self._settings(config, values))

    def _settings(self, config: Config, values: Mapping[str, Any]) -> Settings:
        """Those of the factories that `config` names."""
        of_named = {field.name for factory in factories(config) for field in settings_of(factory)}
        kept = [field for field in self.fields.values() if field.name in of_named]
        f = {field.name: number for field in kept if (number := told(config, field)) is not None}
        for name, number in f.items():
            if values.get(name, number) != number:
                raise ConfigError(
                    f"{name}: {values[name]}, but server.num_byzantine gives it {number}; leave one of them out"
                )
        given = {field.name: field.default for field in kept} | dict(values) | f
        return tuple((field.name, self._convert(field.name, given[field.name])) for field in kept)

    def _convert(self, name: str, value: Any) -> Any:
        """A setting's value, checked."""
        try:
            return msgspec.convert(value, self.fields[name].type)
        except msgspec.ValidationError as error:
            raise self._complaint(error, {name: value}, name) from None

    def _complaint(self, error: msgspec.ValidationError, values: Mapping[str, Any], key: str = "") -> ConfigError:
        what, _, where = str(error).partition(" - at ")
        where = key or where.strip("`").removeprefix("$.")
        if what.startswith("Invalid enum value"):
            what = f"expected {self.fields[where].choices}"
        name = where.partition("[")[0]  # of the whole list
        if name in values:
            what = f"{what.partition(', got ')[0]}, got {values[name]!r}"
        return ConfigError(f"{where}: {what[0].lower()}{what[1:]}")

    def reference(self) -> str:
        """Every key with its default and meaning, as TOML that may be run; keys without a default are commented out."""
        lines, section = [], ""
        for field in self.fields.values():
            if field.section != section:
                section = field.section
                lines += ["", f"# {self.headings[section]}", f"[{section}]"]
            last = field.name.rpartition(".")[2]
            setting = f"# {last} = ..." if field.default is None else f"{last} = {toml(field.default)}"
            lines.append(f"{setting:<24}  # {field.meaning}")
        return "\n".join([*lines, "", *SWEEP_HELP]) + "\n"


SWEEP_HELP = (
    "# A sweep: each [[sweep]] is a grid over any keys; all blocks together are the runs, equal runs once.",
    "# [[sweep]]",
    '# server.aggregator = ["fedavg", "arfl"]',
    "# seed = [0, 1, 2, 3, 4]",
)


@cache
def schema(own: tuple[Factory, ...] = ()) -> Schema:
    """The fixed keys, the settings of fedsim's own factories, and those of a user's `own`."""
    headings = {section: inspect.getdoc(getattr(Config(), section)) or "" for section in _sections(FIXED) if section}
    found = dict(FIXED)
    makers: dict[str, Factory] = {}
    for factory in [*built_in_factories(), *own]:
        settings = settings_of(factory)
        if not settings:
            continue
        before = makers.setdefault(factory.section, factory)
        if factory.section in (*_sections(FIXED), *RESERVED) or before.make is not factory.make:
            whose = "a key or section of every configuration" if before is factory else f"the section of {before.name}"
            raise ConfigError(
                f"{factory.key}: {factory.name}: {factory.section} is {whose} already; give the function another name"
            )
        headings[factory.section] = f"Settings of the {WORDS[factory.key]} {factory.name}."
        found |= {field.name: field for field in settings}
    return Schema(found, headings)


def _sections(found: Mapping[str, Field]) -> list[str]:
    return list(dict.fromkeys(field.section for field in found.values()))


def flatten(config: Config) -> dict[str, Any]:
    """The configuration as {dotted key: value}, settings of factories behind the fixed keys."""
    return {name: _fixed(config, name) for name in FIXED} | dict(config.settings)


def canonical(config: Config) -> Config:
    """The same run with every fixed key that has no effect on it at its default."""
    default = Config()
    if not any(map(takes_f, (field for factory in factories(config) for field in settings_of(factory)))):
        config = replace(config, server=replace(config.server, num_byzantine=None))
    if config.client.steps is not None:
        config = replace(config, client=replace(config.client, epochs=default.client.epochs))
    corruption, attack = config.corruption, config.attack
    if not config.has_corrupted or (corruption.kind == "none" and attack.kind == "none"):
        return replace(config, corruption=default.corruption, attack=default.attack)
    if corruption.clients:
        ids = tuple(sorted(set(corruption.clients)))
        corruption = replace(default.corruption, kind=corruption.kind, clients=ids, start=corruption.start)
    return replace(config, corruption=corruption)


def factories(config: Config) -> list[Factory]:
    """All that the configuration names."""
    return [find(key, name) for key, name in named({key: _fixed(config, key) for key in NAME_KEYS})]


def defaults(run: Mapping[str, Any]) -> dict[str, Any]:
    """Every key that a run by dotted key has, with the settings of what it names, at its default.

    Raises `ConfigError` where it names what is not there any more.
    """
    factories = [find(key, name) for key, name in named(dict(run))]
    return DEFAULTS | {field.name: field.default for factory in factories for field in settings_of(factory)}


def _fixed(config: Config, key: str) -> Any:
    """The value of a fixed key."""
    section, _, last = key.rpartition(".")
    return getattr(getattr(config, section) if section else config, last)


def settings_under(config: Config, *keys: str) -> Settings:
    """The settings of the factories that are named under `keys`."""
    chosen = [factory for factory in factories(config) if factory.key in keys]
    names = {field.name for factory in chosen for field in settings_of(factory)}
    return tuple((name, value) for name, value in config.settings if name in names)


def settings_for(config: Config, factory: Factory) -> dict[str, Any]:
    """The settings of one factory, by the names of its parameters."""
    values = dict(config.settings)
    names = [field.name for field in settings_of(factory) if field.name in values]
    return {name.rpartition(".")[2]: values[name] for name in names}


def limited(config: Config, key: str, name: str) -> list[tuple[Field, float]]:
    """The settings with limits, and their numbers, of the factory that is called `name` under `key`."""
    values = dict(config.settings)
    found = [(field, values.get(field.name)) for field in settings_of(find(key, name)) if field.limits]
    return [(field, value) for field, value in found if value is not None]


def data_choice(config: Config) -> DataChoice:
    """All that decides which examples the run's clients have."""
    return DataChoice(config.data, settings_under(config, "data.name", "data.partition"))


def traced_settings(config: Config) -> dict[str, float]:
    """The settings that are data for a compiled program: numbers marked `Traced`, of what is built inside the trace."""
    inside = [factory for factory in factories(config) if factory.key in BUILT_INSIDE]
    marked = {field.name for factory in inside for field in settings_of(factory) if field.is_traced}
    is_number = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    return {name: value for name, value in config.settings if name in marked and is_number(value)}
