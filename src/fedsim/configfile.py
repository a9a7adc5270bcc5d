"""Experiments from TOML files and the command line: one configuration, and `[[sweep]]` grids over any of its keys."""

import contextlib
import hashlib
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from fedsim.config import Config, canonical
from fedsim.errors import ConfigError
from fedsim.keys import KEYS, check_key, did_you_mean, flatten, lookup, nearest, toml, unflatten

MAX_RUNS = 100_000
PAPER = "paper"  # the budget of a configuration as it stands
SECTIONS = {key.rpartition(".")[0] for key in KEYS} - {""}
Block = dict[str, list[Any]]  # dotted key -> values


@dataclass(frozen=True)
class Experiment:
    """A configuration and its sweep: each block is a grid, all blocks together are the runs."""

    base: Config
    sweep: tuple[Block, ...] = ()

    def points(self) -> Iterator[Config]:
        """The points of all grids in the order of the blocks, the first key of a block outermost."""
        values = flatten(self.base)
        for block in self.sweep or ({},):
            for point in itertools.product(*block.values()):
                yield unflatten(values | dict(zip(block, point, strict=True)))

    def runs(self) -> list[Config]:
        """The runs: `points` without keys that have no effect, equal ones once."""
        return list(dict.fromkeys(canonical(config) for config in self.points()))

    def dump(self) -> str:
        """The experiment as TOML with every key resolved; `parse` of it is the same experiment."""
        lines, section = [], ""
        for name, value in flatten(self.base).items():
            head, _, last = name.rpartition(".")
            if head != section:
                lines.append(f"\n[{head}]")
                section = head
            if value is not None:
                lines.append(f"{last} = {toml(value)}")
        for block in self.sweep:
            lines.append("\n[[sweep]]")
            lines += [f"{name} = {toml(values)}" for name, values in block.items()]
        return "\n".join(lines) + "\n"

    def digest(self) -> str:
        """Eight hexadecimal digits that change with any key."""
        return hashlib.sha256(self.dump().encode()).hexdigest()[:8]


def load(path: Path, overrides: Mapping[str, Any] | None = None, budget: str | None = None) -> Experiment:
    """The experiment in the file `path`; `overrides` and `budget` as in `parse`. A `ConfigError` names the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        siblings = {p.name: p for p in path.parent.glob("*.toml")} if path.parent.is_dir() else {}
        match = nearest(path.name, siblings)
        raise ConfigError(f"{path}: no such file{did_you_mean(str(siblings[match]) if match else None)}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem).lstrip(".-")[:100]
    try:
        return parse(text, overrides, name or "fedsim", budget)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse(
    text: str, overrides: Mapping[str, Any] | None = None, name: str = "fedsim", budget: str | None = None
) -> Experiment:
    """The experiment in TOML `text`. Of `overrides`, "key" fixes a key (in the sweep too), "sweep.key" sweeps over it.

    Values of overrides are strings as on a command line, or lists of them for "sweep.key". A `budget` is a table
    [budget.NAME] of the text: its keys win over those of the text, its [[budget.NAME.sweep]] replaces the sweep, and
    the experiment's name gets "-NAME" at its end. "paper", and None, are the text without them.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from None
    budgets = _budgets(document.pop("budget", {}))
    blocks = _blocks(document.pop("sweep", []), "sweep") or []
    values = {"name": name} | dict(_walk(document))
    if budget not in (None, PAPER):
        fixed, own_blocks = lookup("--budget", budget, budgets)
        values |= {"name": f"{values['name']}-{budget}"} | fixed
        blocks = [_without(block, fixed) for block in blocks] if own_blocks is None else own_blocks

    for key, given in (overrides or {}).items():
        target = key.removeprefix("sweep.")
        check_key(target)
        if target == key:
            values[key] = value_of(key, given)
            blocks = [_without(block, [key]) for block in blocks]
        else:
            axis = [value_of(target, one) for one in given]
            blocks = [block | {target: axis} for block in blocks or [{}]]

    num_points = sum(math.prod(len(values) for values in block.values()) for block in blocks)
    if num_points > MAX_RUNS:
        raise ConfigError(f"sweep: {num_points} runs are more than {MAX_RUNS}")
    return Experiment(unflatten(values), tuple(blocks))


def _blocks(tables: Any, name: str) -> list[Block] | None:
    """The blocks of a sweep called `name`; None where there is no sweep."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{name}: write [[{name}]], with double brackets, above each block")
    return [{key: _axis(key, value) for key, value in _walk(table)} for table in tables] or None


def _budgets(tables: Any) -> dict[str, tuple[dict[str, Any], list[Block] | None]]:
    """The keys that each budget fixes, and its sweep; all are checked, whichever is asked for."""
    budgets = {}
    for name, table in tables.items() if isinstance(tables, dict) else [("", tables)]:
        if not isinstance(table, dict) or name == PAPER:
            raise ConfigError("budget: write [budget.NAME], for example [budget.small], and its keys below")
        blocks = _blocks(table.pop("sweep", []), f"budget.{name}.sweep")
        budgets[name] = dict(_walk(table)), blocks
    return budgets


def _without(block: Block, keys: Iterable[str]) -> Block:
    return {key: values for key, values in block.items() if key not in keys}


def value_of(key: str, text: str) -> Any:
    """What `text` on a command line means for `key`: TOML, or a string as it stands."""
    if get_args(KEYS[key].type)[0] is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        with contextlib.suppress(ValueError):
            return float(text)  # .5, which is not TOML
        return text


def _walk(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of a TOML table; `ConfigError` at the first key that does not exist."""
    for name, value in table.items():
        key = prefix + name
        if key not in SECTIONS:
            check_key(key, SECTIONS if isinstance(value, dict) else ())
            yield key, value
        elif isinstance(value, dict):
            yield from _walk(value, key + ".")
        else:
            raise ConfigError(f"{key} is a section, not a key; write [{key}] and its keys below")


def _axis(key: str, value: Any) -> list[Any]:
    """The values of a key in a sweep: a list, or one value. A flat list is one value of a key that takes lists."""
    takes_list = get_origin(get_args(KEYS[key].type)[0]) is tuple
    if not isinstance(value, list) or (takes_list and not any(isinstance(v, list) for v in value)):
        return [value]
    if not value:
        raise ConfigError(f"sweep: {key} has no values")
    return value
