"""The configuration as a flat table of keys, written `section.name`: `fedsim config` prints them all."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from fedsim.config import Config, check_clients
from fedsim.errors import ConfigError


@dataclass(frozen=True)
class Key:
    """A key of the configuration."""

    name: str  # dotted
    type: Any
    default: Any
    meaning: str

    @property
    def choices(self) -> str:
        """What a key with a `Literal` type may be, for messages."""
        kind = get_args(self.type)[0]
        words = [f'"{v}"' for t in (kind, *get_args(kind)) if get_origin(t) is Literal for v in get_args(t)]
        return " or ".join(words if get_origin(kind) is Literal else ["a number", *words])


def keys(cls: type = Config, prefix: str = "") -> dict[str, Key]:
    """All keys by their dotted names, in order."""
    found: dict[str, Key] = {}
    hints, extras = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    default = cls()
    for f in fields(cls):
        if is_dataclass(hints[f.name]):
            found |= keys(hints[f.name], f"{f.name}.")
        else:
            meaning = extras[f.name].__metadata__[-1]
            found[prefix + f.name] = Key(prefix + f.name, extras[f.name], getattr(default, f.name), meaning)
    return found


KEYS = keys()


def flatten(config: Config) -> dict[str, Any]:
    """The configuration as {dotted key: value}."""
    values = {}
    for name in KEYS:
        section, _, last = name.rpartition(".")
        values[name] = getattr(getattr(config, section) if section else config, last)
    return values


def unflatten(values: Mapping[str, Any]) -> Config:
    """The configuration with `values` by dotted key, the others at their defaults; `ConfigError` where one is wrong."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        check_key(name)
        section, _, last = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[last] = value
    try:
        config = msgspec.convert(nested, Config)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        where = where.strip("`").removeprefix("$.")
        if what.startswith("Invalid enum value"):
            what = f"expected {KEYS[where].choices}, got {what.rpartition(' ')[2]}"
        raise ConfigError(f"{where}: {what[0].lower()}{what[1:]}") from None
    if config.data.partition != "natural":
        check_clients(config, config.data.num_clients)
    return config


def check_key(name: str, sections: Iterable[str] = ()) -> None:
    """Raises `ConfigError` with the nearest right name (of `sections` first) where there is no such key."""
    if name not in KEYS:
        raise ConfigError(f"unknown key {name}{did_you_mean(nearest(name, sections) or nearest_key(name))}")


def nearest_key(name: str) -> str | None:
    """The key most like `name`, if any is: the whole name, or else its last part."""
    last_parts = {key.rpartition(".")[2]: key for key in KEYS}
    match = nearest(name, KEYS)
    if match is None and (part := nearest(name.rpartition(".")[2], last_parts)):
        match = last_parts[part]
    return match


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` most like `name`, or None."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def did_you_mean(name: str | None) -> str:
    """The end of a message about a wrong name."""
    return f"; did you mean {name}?" if name else ""


def lookup(key: str, name: str, table: Mapping[str, Any]) -> Any:
    """`table[name]`, or a `ConfigError` that names the choices."""
    if name in table:
        return table[name]
    choices = "; choose from " + ", ".join(table) if table else "; there are none here"
    raise ConfigError(f'{key}: no "{name}"{did_you_mean(nearest(name, table)) or choices}')


def reference() -> str:
    """Every key with its default and meaning, as TOML that may be run; keys without a default are commented out."""
    lines, section = [], ""
    for key in KEYS.values():
        head, _, last = key.name.rpartition(".")
        if head != section:
            lines += ["", f"# {type(getattr(Config(), head)).__doc__}", f"[{head}]"]
            section = head
        setting = f"# {last} = ..." if key.default is None else f"{last} = {toml(key.default)}"
        lines.append(f"{setting:<24}  # {key.meaning}")
    return "\n".join([*lines, "", *SWEEP_HELP]) + "\n"


SWEEP_HELP = (
    "# A sweep: each [[sweep]] is a grid over any keys; all blocks together are the runs, equal runs once.",
    "# [[sweep]]",
    '# server.aggregator = ["fedavg", "arfl"]',
    "# seed = [0, 1, 2, 3, 4]",
)


def toml(value: Any) -> str:
    """A string, number, boolean or list in TOML."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise ConfigError(f"{value}: dates and times are no value of any key") from None
