"""Values of keys: plain Python values, sweeps over several, and words of a command line; short forms of keys."""

import contextlib
import json
import math
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from fedsim.errors import ConfigError

DEFAULT = "default"  # as an override, or in a sweep: the default of the key
KEYS = {
    "aggregator": "server.aggregator",
    "attack": "attack.kind",
    "batch_size": "client.batch_size",
    "cohort_size": "server.cohort_size",
    "corruption": "corruption.kind",
    "data": "data.name",
    "epochs": "client.epochs",
    "fraction": "corruption.fraction",
    "learning_rate": "client.learning_rate",
    "lr": "client.learning_rate",
    "model": "model.name",
    "num_clients": "data.num_clients",
    "num_rounds": "server.num_rounds",
    "partition": "data.partition",
    "rounds": "server.num_rounds",
}
"""Keys that have a short form, as an option of the command line and in suggestions."""
WHERE = "on the command line: "  # the start of messages about values of options


@dataclass(frozen=True)
class Sweep:
    """Values of one key, each of which is run."""

    values: tuple[Any, ...]


def sweep(values: Iterable[Any]) -> Sweep:
    """Several values of a key, in overrides or tables for `fedsim.load`: each of them is run.

    >>> rules = fedsim.sweep(["fedavg", "median"])
    >>> len(fedsim.load({}, server__aggregator=rules, seed=fedsim.sweep([0, 1, 2])).runs())
    6

    A plain list is one value of a key that takes a list; so this is one network with two hidden layers:

    >>> len(fedsim.load({}, mlp__hidden_sizes=[64, 32]).runs())
    1
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigError(f"sweep: must get several values, such as sweep([0, 1]), got {values!r}")
    return Sweep(tuple(values))


def option_of(key: str) -> str:
    """The option of the command line that sets a key."""
    return f"--{key.replace('_', '-')}"


class Word(str):
    """A word of a command line: text, or TOML where its key takes other values than text."""

    __slots__ = ()


def format_word(value: Any) -> str:
    """A value as a word of a command line (`Word`)."""
    return value if isinstance(value, str) else format_toml(value)


def to_plain(value: Any, of_key: Callable[[str, Any], Any] = lambda key, value: value, key: str = "") -> Any:
    """A copy of `value` that contains plain Python values in place of arrays, NumPy scalars, tuples and paths.

    `of_key(key, value)` replaces each value of nested tables; `key` is dotted.
    """
    if isinstance(value, Sweep):
        return Sweep(tuple(to_plain(inner, of_key, key) for inner in value.values))
    if isinstance(value, Mapping):
        return {name: to_plain(inner, of_key, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [to_plain(inner, of_key, key) for inner in value]
    if isinstance(value, Path):
        return of_key(key, str(value))
    return of_key(key, value.tolist() if hasattr(value, "tolist") else value)


def parse_words(value: Any, kind: Any) -> Any:
    """`value` with its words parsed for a key of the type `kind`; for a list type, one word is a list of one.

    "default" stays as it is.
    """
    element = list_element(kind)
    if isinstance(value, Word) and element is not None and value != DEFAULT:
        parsed = _parse_word(value, Any)
        return parsed if isinstance(parsed, list) else [_parse_word(value, element)]
    if isinstance(value, list):
        return [_parse_word(inner, element or kind) for inner in value]
    return _parse_word(value, kind)


def _parse_word(value: Any, kind: Any) -> Any:
    if not isinstance(value, Word) or _without_metadata(kind) is str:
        return str(value) if isinstance(value, Word) else value
    members = _members(kind)
    if value in members:  # such as the text "inf"
        return str(value)
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, KeyError, RecursionError):
        parsed = str(value)
        with contextlib.suppress(ValueError):
            parsed = float(value)  # .5, which is not TOML
    return str(value) if str in members and not isinstance(parsed, int | str) else parsed


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, and the values of its literals."""
    kind = _without_metadata(kind)
    if get_origin(kind) is Literal:
        return get_args(kind)
    is_union = get_origin(kind) in (Union, types.UnionType)
    return tuple(chain.from_iterable(map(_members, get_args(kind)))) if is_union else (kind,)


def list_element(kind: Any) -> Any:
    """The type of the elements of a list type; None for any other type."""
    kind = _without_metadata(kind)
    return get_args(kind)[0] if get_origin(kind) is tuple else None


def _without_metadata(kind: Any) -> Any:
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


def to_toml(values: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]]) -> str:
    """TOML of values by dotted key, those of a section one after another, and of the blocks of a sweep."""
    lines = []
    for section, keys in groupby(values, key=lambda key: key.rpartition(".")[0]):
        lines += [f"\n[{section}]"] if section else []
        lines += [f"{key.rpartition('.')[2]} = {format_toml(values[key])}" for key in keys]
    for block in blocks:
        lines += ["\n[[sweep]]", *(f"{key} = {format_toml(swept)}" for key, swept in block.items())]
    return "\n".join(lines) + "\n"


def format_toml(value: Any) -> str:
    """A string, number, boolean or list in TOML."""
    if value is None:
        return f'"{DEFAULT}"'  # TOML has no null
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf, -inf and nan, as TOML writes them
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise ConfigError(f"{value}: must be text, a number, true, false or a list of them") from None
