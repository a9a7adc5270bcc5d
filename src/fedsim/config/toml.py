"""Experiments from TOML files and tables, with overrides."""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedsim.config import adversaries, bundled
from fedsim.config.components import forget_plugins
from fedsim.config.experiment import Block, Experiment
from fedsim.config.fields import FIXED, Field
from fedsim.config.kinds import KINDS
from fedsim.config.registry import did_you_mean, find, lookup, nearest, resolve_path, section_of, split_names
from fedsim.config.resolve import Schema, schema
from fedsim.config.values import DEFAULT, WHERE, Sweep, list_element, option_of, to_plain
from fedsim.errors import ConfigError

MAX_RUNS = 100_000
PRESET = "preset"
PAPER = "paper"  # the preset that stands for the configuration without any preset
CLAIMS = "report.claims"


def read(
    source: Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    preset: str | None = None,
    option: Callable[[str], str] = option_of,
    where: str = WHERE,
) -> Experiment:
    """The experiment in a file, in the bundled file of that name, or in tables; the rest as in `parse`.

    Its errors, also those of its runs, name the source of the value. That of an override's own value begins with
    `where`. Any other names the file, and the `option` of each override, or of the preset, without which there is no
    such error.
    """
    if isinstance(source, Mapping):
        file, make = "", partial(parse, source)
    else:
        path = bundled.located(source)
        file, make = str(path), partial(parse, _read_text(path), name=default_name(path), folder=path.parent)
    changes = dict(overrides or {})

    def explain(error: ConfigError, check: Callable[[Experiment], Any] = Experiment.runs) -> ConfigError:
        message = str(error)
        if re.split("[:;] ", message.removeprefix("unknown key "))[0] in changes:
            return ConfigError(f"{where}{message}")

        def fails(without: str) -> bool:
            kept = {key: value for key, value in changes.items() if key != without}
            try:
                check(make(kept, preset=None if without == PRESET else preset))
            except ConfigError as other:
                return str(other) == message
            return False

        causes = list(dict.fromkeys(option(key) for key in changes if not fails(key)))
        is_of_preset = preset and not message.startswith(PRESET) and not fails(PRESET)
        causes += [f"{option(PRESET)} {preset}"] if is_of_preset else []
        place = f"{file}{' with ' * bool(causes)}{' and '.join(causes)}".strip()
        return ConfigError(f"{place}: {message}" if place else message)

    try:
        return replace(make(changes, preset=preset), explain=explain)
    except ConfigError as error:
        raise explain(error, lambda experiment: None) from None


def _read_text(path: Path) -> str:
    """The text of a configuration. Raises `ConfigError` if there is none, with the nearest name."""
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows writes a byte-order mark
    except FileNotFoundError:
        siblings = {p.name: p for p in path.parent.glob("*.toml")} if path.parent.is_dir() else {}
        match = nearest(path.name, siblings)
        known = str(siblings[match]) if match else nearest(str(path), bundled.names())
        raise ConfigError(f"{path}: no such file{did_you_mean(known)}{_bundled(path, known)}") from None
    except IsADirectoryError:
        remedy = (
            f"`fedsim report {path}` shows the runs of a run folder, whose configurations are in {path / 'configs'}"
        )
        raise ConfigError(f"{path}: must be a configuration, got a folder; {remedy}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def _bundled(path: Path, match: str | None) -> str:
    """The remedy for the `path` of a configuration that is neither a file nor bundled: names that contain it first."""
    if path.suffix == ".toml":
        return ""
    names = sorted(bundled.names(), key=lambda name: path.name not in name)
    return " `fedsim list` lists all" if match else f"; `fedsim list` describes the bundled ones: {', '.join(names)}"


def default_name(path: Path) -> str:
    """The name of the experiment in the file `path`, unless it sets one."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem).lstrip(".-")[:100] or "fedsim"


def parse(
    source: str | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    name: str = "fedsim",
    preset: str | None = None,
    folder: Path = Path(),
) -> Experiment:
    """The experiment in TOML, or in nested tables, in which a `Sweep` in place of a value is swept.

    `overrides` by dotted key win over values, sweep and preset: a value fixes its key, a `Sweep` sweeps it, and
    "default" restores its default. A `preset` is a table [preset.NAME]: its keys win over the others, its
    [[preset.NAME.sweep]] replaces the sweep, and "-NAME" is appended to the experiment's name; "paper" and None are the
    tables without any preset. Files of plug-ins are searched for in the working directory, then in `folder`. Raises
    `ConfigError` for an unknown key or a wrong value.
    """
    try:
        tables = tomllib.loads(source) if isinstance(source, str) else source
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise ConfigError(f"not valid TOML: {error}") from None
    forget_plugins()
    named: dict[tuple[str, str], None] = {}

    def name_component(key: str, value: Any) -> Any:
        """Adds the component that a value names, in any sweep or preset, to `named`; the name with a path."""
        kind = ".".join(key.split(".")[-2:])
        if kind not in KINDS or not isinstance(value, str):
            return value
        names = [resolve_path(name, folder) for name in split_names(kind, value)]
        named.update(((kind, name), None) for name in names)
        return "+".join(names)

    document, changes = to_plain(tables, name_component), to_plain(overrides or {})
    sections = frozenset(section_of(key, word) for key, word in named)
    restored = {key for key, value in changes.items() if value == DEFAULT}
    changes = {key: schema().read_value(key, value) if key in FIXED else value for key, value in changes.items()}
    changes = to_plain(changes, name_component)
    keys = schema(tuple(find(key, word) for key, word in named if ":" in word))

    presets = document.pop(PRESET, {})
    if not isinstance(presets, dict) or not all(isinstance(presets[key], dict) and key != PAPER for key in presets):
        raise ConfigError("preset: must be written [preset.NAME], such as [preset.small], with its keys below")
    presets = {key: _read(keys, table, f"preset.{key}.sweep") for key, table in presets.items()}
    values, blocks = _merge({"name": name}, [], *_read(keys, document, "sweep"))
    if preset not in (None, PAPER):
        name = f"{values['name']}-{preset}"
        values, blocks = _merge(values | {"name": name}, blocks, *lookup(PRESET, str(preset), presets))
    for key in changes:
        keys.check_key(key)
    values, blocks = _merge(values, blocks, {key: keys.read_value(key, value) for key, value in changes.items()}, None)
    values = {key: value for key, value in values.items() if key not in restored}
    for key in (CLAIMS, adversaries.KEY):
        if any(key in block for block in blocks):
            raise ConfigError(f"{key}: must have one value, since it is of the whole experiment")
    if (adversary := values.pop(adversaries.KEY, None)) is not None:
        blocks = adversaries.expand(adversary, values, blocks)

    for key, swept in ((key, swept) for block in blocks for key, swept in block.items()):
        if not swept:
            raise ConfigError(f"{key}: must have at least one value in a sweep, got []")
    num_points = sum(math.prod(map(len, block.values())) for block in blocks)
    if num_points > MAX_RUNS:
        raise ConfigError(f"sweep: must have at most {MAX_RUNS} runs, got {num_points}")
    claims = values.pop(CLAIMS, None)
    if claims is not None and not (isinstance(claims, str) and ":" in claims):
        raise ConfigError(f'{CLAIMS}: must be "file.py:function", got "{claims}"')
    claims = claims and bundled.portable(resolve_path(claims, folder))
    experiment = Experiment(
        values, tuple(map(_by_section, blocks)), keys, frozenset(changes), sections, claims, adversary
    )
    experiment = experiment.with_natural_clients()
    keys.resolve(next(experiment.points()))  # `runs` checks the others
    return experiment


def _read(keys: Schema, tables: dict[str, Any], name: str) -> tuple[dict[str, Any], list[Block] | None]:
    """The values in `tables`, and the blocks of their sweep, which is called `name`; None if there are none."""
    blocks = tables.pop("sweep", [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ConfigError(f"{name}: must be written [[{name}]], with double brackets, above each block")
    sweep = [{key: _axis(keys.fields[key], value) for key, value in keys.read(block)} for block in blocks]
    return dict(keys.read(tables)), sweep or None


def _axis(field: Field, value: Any) -> list[Any]:
    """The values of a key in a block: a list, or one value. A flat list is one value of a key that takes a list."""
    if isinstance(value, Sweep):
        return list(value.values)
    is_nested = isinstance(value, list) and any(isinstance(inner, list) for inner in value)
    return value if isinstance(value, list) and (is_nested or not list_element(field.type)) else [value]


def _merge(
    values: dict[str, Any], blocks: list[Block], new: dict[str, Any], new_blocks: list[Block] | None
) -> tuple[dict[str, Any], list[Block]]:
    """With `new` values, which fix or sweep their keys, and with `new_blocks`, which replace all `blocks`."""
    axes = {key: list(value.values) for key, value in new.items() if isinstance(value, Sweep)}
    fixed = {key: value for key, value in new.items() if key not in axes}
    unfixed = [{key: block[key] for key in block if key not in fixed} for block in blocks]
    blocks = unfixed if new_blocks is None else new_blocks
    merge = lambda block: block | axes if new_blocks is None else block | axes | block  # which keeps the order of keys
    return values | fixed, list(map(merge, blocks or [{}])) if axes else blocks


def _by_section(block: Block) -> Block:
    """The block with the keys of each section together, as TOML writes them, so that a dump keeps the order of runs."""
    groups: dict[str, Block] = {}
    for key, values in block.items():
        groups.setdefault(key.rpartition(".")[0] or key, {})[key] = values
    return {key: values for group in groups.values() for key, values in group.items()}
