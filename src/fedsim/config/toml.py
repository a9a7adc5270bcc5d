"""Experiments from TOML files, dicts and the command line: one configuration, and `[[sweep]]` grids over any keys."""

import copy
import dataclasses
import hashlib
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.config import bundled
from fedsim.config.fields import DEFAULTS, FIXED, toml
from fedsim.config.reader import PAPER, Block, Reader
from fedsim.config.registry import Factory, beside, did_you_mean, find, lookup, nearest
from fedsim.config.resolve import Schema, schema
from fedsim.config.schema import NAME_KEYS, Config, named
from fedsim.errors import ConfigError, OverrideError

MAX_RUNS = 100_000
DEFAULT = "default"  # on a command line: the key at its default


@dataclass(frozen=True)
class Experiment:
    """A configuration and its sweep: each block is a grid, all blocks together are the runs."""

    values: dict[str, Any]  # by dotted key; keys that are not here are at their defaults
    sweep: tuple[Block, ...]
    schema: Schema
    commanded: frozenset[str] = dataclasses.field(
        default=frozenset(), compare=False
    )  # keys that the file was overridden by
    serves: frozenset[str] = dataclasses.field(
        default=frozenset(), compare=False
    )  # sections of all that the file names anywhere

    @property
    def name(self) -> str:
        """Of the run folder."""
        return str(self.values.get("name", "fedsim"))

    def points(self) -> Iterator[dict[str, Any]]:
        """The points of all grids in the order of the blocks, the first key of a block outermost."""
        for block in self.sweep or ({},):
            for point in itertools.product(*block.values()):
                yield self.values | dict(zip(block, point, strict=True))

    def runs(self) -> list[Config]:
        """The runs: `points` without keys that have no effect, equal ones once. `ConfigError` where one is wrong."""
        return list(dict.fromkeys(self.schema.resolve(values) for values in self.points()))

    def dump(self) -> str:
        """The experiment as TOML with every key resolved; `parse` of it is the same experiment."""
        named_anywhere = dict.fromkeys(one for values in self.points() for one in named(DEFAULTS | values))
        sections = {find(key, name).section for key, name in named_anywhere}
        kept = {n: field for n, field in self.schema.fields.items() if n in FIXED or field.section in sections}
        values = {name: self.values.get(name, field.default) for name, field in kept.items()}
        lines, section = [], ""
        for name, field in self.schema.fields.items():
            if values.get(name) is None:
                continue
            if field.section != section:
                section = field.section
                lines.append(f"\n[{section}]")
            lines.append(f"{name.rpartition('.')[2]} = {toml(values[name])}")
        for block in self.sweep:
            lines.append("\n[[sweep]]")
            lines += [f"{name} = {toml(values)}" for name, values in block.items()]
        return "\n".join(lines) + "\n"

    def digest(self) -> str:
        """Eight hexadecimal digits that change with any key."""
        return hashlib.sha256(self.dump().encode()).hexdigest()[:8]


def read(path: Path, overrides: Mapping[str, Any] | None = None, budget: str | None = None) -> Experiment:
    """The experiment in the file `path`, or in fedsim's own of that name; `overrides` and `budget` as in `parse`.

    A `ConfigError` names the file; it is an `OverrideError`, which does not, for the value of one of `overrides`.
    """
    path = bundled.located(path)
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows writes a byte-order mark
    except FileNotFoundError:
        siblings = {p.name: p for p in path.parent.glob("*.toml")} if path.parent.is_dir() else {}
        match = nearest(path.name, siblings)
        known = str(siblings[match]) if match else nearest(str(path), bundled.names())
        raise ConfigError(f"{path}: no such file{did_you_mean(known)}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem).lstrip(".-")[:100]
    try:
        return parse(text, overrides, name or "fedsim", budget, path.parent)
    except ConfigError as error:
        key = str(error).partition(": ")[0]
        is_given = key in {given.removeprefix("sweep.") for given in overrides or {}}
        raise (OverrideError(str(error)) if is_given else ConfigError(f"{path}: {error}")) from None


def parse(
    text: str,
    overrides: Mapping[str, Any] | None = None,
    name: str = "fedsim",
    budget: str | None = None,
    folder: Path = Path(),
) -> Experiment:
    """The experiment in TOML `text`; the rest as in `from_tables`."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from None
    return from_tables(tables, overrides, name, budget, folder)


def from_tables(
    tables: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    name: str = "fedsim",
    budget: str | None = None,
    folder: Path = Path(),
) -> Experiment:
    """The experiment in nested `tables`. Of `overrides`, "key" fixes a key (in the sweep too), "sweep.key" sweeps it.

    Values of overrides are strings as on a command line, or lists of them for "sweep.key" and for a key that takes a
    list; the string "default" takes a key back. A `budget` is a table
    [budget.NAME]: its keys win over the others, its [[budget.NAME.sweep]] replaces the sweep, and the experiment's name
    gets "-NAME" at its end. "paper", and None, are the tables without them. A user's own files are looked for in the
    working directory, then in `folder`. Raises `ConfigError` where anything is wrong.
    """
    document = copy.deepcopy(dict(tables))
    given = dict(overrides or {})
    reader = Reader(schema(_own_factories(document, given, folder)), folder)

    budgets = reader.budgets(document.pop("budget", {}))
    blocks = reader.blocks(document.pop("sweep", []), "sweep") or []
    values = {"name": name} | dict(reader.walk(document))
    if budget not in (None, PAPER):
        fixed, own_blocks = lookup("--budget", budget, budgets)
        values |= {"name": f"{values['name']}-{budget}"} | fixed
        blocks = [_without(block, fixed) for block in blocks] if own_blocks is None else own_blocks
    for key, text in given.items():
        target = key.removeprefix("sweep.")
        reader.schema.check(target)
        if target == key:
            values.pop(key, None)
            if text != DEFAULT:
                values[key] = reader.value(key, text)
            blocks = [_without(block, [key]) for block in blocks]
        else:
            axis = [reader.value(target, one) for one in text]
            blocks = [block | {target: axis} for block in blocks or [{}]]

    num_points = sum(math.prod(len(values) for values in block.values()) for block in blocks)
    if num_points > MAX_RUNS:
        raise ConfigError(f"sweep: {num_points} runs are more than {MAX_RUNS}")
    commanded = frozenset(key.removeprefix("sweep.") for key in given)
    experiment = Experiment(values, tuple(map(_by_section, blocks)), reader.schema, commanded, _served(tables))
    experiment.schema.resolve(next(experiment.points()))  # the others are checked when the runs are made
    return experiment


def _served(value: Any, key: str = "") -> frozenset[str]:
    """The sections of all that tables name, in any sweep or budget."""
    if isinstance(value, Mapping):
        return frozenset().union(*(_served(inner, f"{key}.{name}") for name, inner in value.items()))
    if isinstance(value, list | tuple):
        return frozenset().union(*(_served(inner, key) for inner in value))
    is_name = isinstance(value, str) and ".".join(key.split(".")[-2:]) in NAME_KEYS
    return frozenset([value.rpartition(":")[2]] if is_name else [])


def _own_factories(document: Any, overrides: Mapping[str, Any], folder: Path) -> tuple[Factory, ...]:
    """Every factory of the user's own that is named anywhere."""
    texts: dict[tuple[str, str], None] = {}

    def collect(value: Any, key: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                collect(inner, f"{key}.{name}")
        elif isinstance(value, list | tuple):
            for inner in value:
                collect(inner, key)
        elif isinstance(value, str) and ":" in value:
            target = ".".join(key.split(".")[-2:])
            is_list = value.lstrip().startswith("[")  # on a command line
            for name in re.split(r"[\s,\[\]\"']+", value) if is_list else [value]:
                if target in NAME_KEYS and ":" in name:
                    texts[target, beside(name, folder)] = None

    collect(document, "")
    collect(dict(overrides), "")
    return tuple(find(key, name) for key, name in texts)


def _by_section(block: Block) -> Block:
    """The block with the keys of a section one behind the other, as TOML has them: so runs keep their order in it."""
    groups: dict[str, Block] = {}
    for key, values in block.items():
        groups.setdefault(key.rpartition(".")[0] or key, {})[key] = values
    return {key: values for group in groups.values() for key, values in group.items()}


def _without(block: Block, keys: Iterable[str]) -> Block:
    return {key: values for key, values in block.items() if key not in keys}
