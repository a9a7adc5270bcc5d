"""From values by key to the configuration of a run, with the settings of its components."""

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from fedsim.config.clients import check_clients, configured_f, sort_clients
from fedsim.config.components import factories, unflatten, without_effect
from fedsim.config.fields import FIXED, Field, settings_of
from fedsim.config.kinds import KINDS
from fedsim.config.registry import Factory, built_in_factories, did_you_mean, nearest
from fedsim.config.schema import Config, is_byzantine_count
from fedsim.config.values import DEFAULT, KEYS, Sweep, format_toml, list_element, parse_words
from fedsim.core.setting_types import describe_type
from fedsim.core.settings import MAX_INT
from fedsim.errors import ConfigError

RENAMED = {"budget": "preset"}  # tables under their earlier names
RESERVED = ("sweep", "preset", "slurm")  # not allowed as names of sections, nor are keys without a section
SWEEP_REMEDY = "; to run several values, use fedsim.sweep([...]) in Python, --sweep.{} or [[sweep]] in a file"
SWEEP_HELP = (
    "# Each [[sweep]] block is a grid over any keys. The runs are those of all blocks, equal runs once.",
    "# [[sweep]]",
    '# server.aggregator = ["fedavg", "arfl"]',
    "# seed = [0, 1, 2, 3, 4]",
)


@dataclass(frozen=True, eq=False)
class Schema:
    """All keys that a configuration may have: the fixed ones, and the settings of built-in components and plug-ins."""

    fields: Mapping[str, Field]
    """The keys by dotted name, in order."""
    headings: Mapping[str, str]
    """A sentence about each section."""
    without_settings: Mapping[str, str]
    """By name, a remark on each component that has no settings, and so no section."""

    def check_key(self, name: str, sections: Iterable[str] = ()) -> None:
        """Raises `ConfigError` for an unknown key, with settings or the nearest name (of `sections` first)."""
        if new_name := RENAMED.get(name.partition(".")[0]):
            raise ConfigError(f"unknown key {name}; it is called {new_name} now")
        if name.partition(".")[0] in ("sweep", "preset"):
            raise ConfigError(f"{name}: must be at the top level of a configuration, in no sweep or preset")
        if name in self.headings:
            key = next(key for key, field in self.fields.items() if field.section == name)
            raise ConfigError(
                f"{name}: must be set by its keys, such as {key} ({key.replace('.', '__')} in Python), as a section is"
            )
        if name not in self.fields:
            remedy = self._settings_remedy(name) or did_you_mean(nearest(name, sections) or self.nearest(name))
            raise ConfigError(f"unknown key {name}{remedy}")

    def _settings_remedy(self, name: str) -> str:
        """Which settings the component of this section has; "" if the section is none of a component."""
        section = name.partition(".")[0]
        if not (settings := [key for key in self.fields if key.startswith(f"{section}.") and key not in FIXED]):
            return self.without_settings.get(section, "")
        names = ", ".join(key.rpartition(".")[2] for key in settings)
        return did_you_mean(self.nearest(name, settings)) or f"; the settings of {section} are: {names}"

    def read(self, tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        """(dotted key, value) of nested tables. Raises `ConfigError` at the first unknown key."""
        for name, value in tables.items():
            if not isinstance(name, str):
                raise ConfigError(f"{prefix or 'tables'}: keys must be text, got {name!r}")
            key = prefix + name
            if key not in self.headings:
                self.check_key(key, self.headings if isinstance(value, dict) else ())
                yield key, self.read_value(key, value)
            elif isinstance(value, dict):
                yield from self.read(value, key + ".")
            else:
                raise ConfigError(f"{key}: must be a section, [{key}] with its keys below, got {value!r}")

    def read_value(self, key: str, value: Any) -> Any:
        """`value` with words of the command line parsed, and with one name in place of several as a list of one."""
        if isinstance(value, Sweep):
            return Sweep(tuple(self.read_value(key, inner) for inner in value.values))
        kind = self.fields[key].type
        value = parse_words(value, kind)
        is_one_of_several = key in KINDS and list_element(kind) is not None and isinstance(value, str)
        return [value] if is_one_of_several and value != DEFAULT else value

    def nearest(self, name: str, keys: Collection[str] | None = None) -> str | None:
        """The key (of `keys`) of which this is a synonym, or the most similar one whose last part is similar."""
        keys = self.fields if keys is None else keys
        last = lambda key: key.rpartition(".")[2]
        if (synonym := KEYS.get(last(name))) in keys:
            return synonym
        return nearest(name, [key for key in keys if nearest(last(name), [last(key)])], 0.0)

    def resolve(self, values: Mapping[str, Any]) -> Config:
        """The run with `values` by dotted key and defaults for all other keys.

        It has the settings of the components that it names, and keys without effect are at their defaults, so that
        equal runs compare equal. Raises `ConfigError` for an unknown key or a wrong value.
        """
        converted = {key: self.convert(key, value) for key, value in values.items()}
        values = {key: value for key, value in converted.items() if key != "name"}  # that of the experiment
        config = self._config(values)  # also with components without effect: an unknown name is an error
        if config.data.partition != "natural":
            check_clients(config, config.data.num_clients)
        is_error = lambda key: any(condition.is_error for condition in self.fields[key].only_if)
        unused = {key for key in without_effect(config) if not is_error(key)}
        kept = {key: value for key, value in values.items() if key not in unused}
        for section in ("corruption", "attack"):
            if clients := kept.get(f"{section}.clients"):
                key = f"{section}.kind"
                kept[f"{section}.clients"], kind = sort_clients(clients, key, kept.get(key, "none"))
                kept |= {key: kind} if key in kept else {}
        kept |= {"data.seed": config.seed} if config.data.seed == "seed" else {}
        config = config if kept == values else self._config(kept)
        if config.server.num_byzantine is None:
            return config
        f = {key: configured_f(config, self.fields[key]) for key, _ in config.settings if is_byzantine_count(key)}
        for key, number in f.items():
            if kept.get(key, number) != number:
                raise ConfigError(
                    f"{key}: must equal server.num_byzantine ({number}), got {kept[key]}; remove one of them"
                )
        settings = ((key, self.convert(key, f[key]) if key in f else value) for key, value in config.settings)
        return replace(config, settings=tuple(settings))

    def _config(self, values: Mapping[str, Any]) -> Config:
        """The configuration with these values, and the settings of its components."""
        config = unflatten(values)
        defaults = _defaults(self, factories(config))
        return replace(config, settings=tuple((key, values.get(key, default)) for key, default in defaults.items()))

    def convert(self, name: str, value: Any) -> Any:
        """The value of a key, checked. Raises `ConfigError` for an unknown key or a wrong value."""
        self.check_key(name)
        kind = self.fields[name].type
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            if any(map(callable, value if isinstance(value, list) else [value])):
                remedy = '; give its name, or that of a plug-in as "file.py:function"' if name in KINDS else ""
                raise ConfigError(f"{name}: must be {describe_type(kind)}, got an object of Python{remedy}") from None
            is_nested = isinstance(value, list) and isinstance(next(iter(value), None), list)
            has_several = is_nested or (isinstance(value, list) and list_element(kind) is None)
            remedy = SWEEP_REMEDY.format(name) if has_several else ""
            width = " of 32 bits" if isinstance(value, int) and not -MAX_INT <= value <= MAX_INT else ""
            raise ConfigError(f"{name}: must be {describe_type(kind)}{width}, got {value!r}{remedy}") from None

    def reference(self, only: str | None = None) -> str:
        """Every key, or those of one section, with default, meaning and allowed values, as TOML that runs.

        Keys without a default are commented out. Raises `ConfigError` if there is no section `only`.
        """
        if only is not None and only not in self.headings:
            match = did_you_mean(nearest(only, self.headings))
            remedy = self.without_settings.get(only) or match or "; `fedsim config` prints all"
            raise ConfigError(f"SECTION: must be a section of the configuration, got {only}{remedy}")
        lines, section = [], ""
        for field in self.fields.values():
            if only is not None and field.section != only:
                continue
            if field.section != section:
                section = field.section
                lines += ["", f"# {self.headings[section]}", f"[{section}]"]
            last = field.name.rpartition(".")[2]
            setting = f"# {last} = ..." if field.default is None else f"{last} = {format_toml(field.default)}"
            values = "" if field.name in KINDS else f" ({describe_type(field.type)})"
            lines.append(f"{setting:<24}  # {field.meaning}{values}")
        lines = lines[1:] if lines[0] == "" else lines
        return "\n".join([*lines, *(() if only else ("", *SWEEP_HELP))]) + "\n"


@cache
def schema(plugins: tuple[Factory, ...] = ()) -> Schema:
    """The fixed keys, and the settings of the built-in components and of `plugins`."""
    fixed_sections = {field.section: None for field in FIXED.values()}
    headings = {section: inspect.getdoc(getattr(Config(), section)) or "" for section in fixed_sections if section}
    keys = dict(FIXED)
    owners: dict[str, Factory] = {}
    without_settings: dict[str, str] = {}
    for factory in [*built_in_factories(), *plugins]:
        settings = settings_of(factory)
        if not settings:
            if factory.section not in fixed_sections:
                remedy = ": annotate the parameters that are to be settings, and give them defaults"
                suffix = remedy if factory.file else ""
                without_settings[factory.section] = f"; {factory.section} has no settings{suffix}"
            continue
        owner = owners.setdefault(factory.section, factory)
        if factory.section in (*fixed_sections, *FIXED, *RESERVED) or owner.make is not factory.make:
            use = "a key or section of every configuration" if owner is factory else f"the section of {owner.name}"
            raise ConfigError(
                f"{factory.key}: {factory.name}: {factory.section} is {use} already; give the function another name"
            )
        headings[factory.section] = f"Settings of the {KINDS[factory.key].noun} {factory.name}."
        keys |= {field.name: field for field in settings}
    return Schema(keys, headings, without_settings)


@cache
def _defaults(schema: Schema, named: tuple[Factory, ...]) -> dict[str, Any]:
    """The settings of these components, in the order of the schema, with their defaults."""
    names = {field.name for factory in named for field in settings_of(factory)}
    kept = [field for field in schema.fields.values() if field.name in names]
    return {field.name: schema.convert(field.name, field.default) for field in kept}
