"""What a sweep varies: columns of the tables, and a name for each run."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import polars as pl

Run = Mapping[str, Any]  # a configuration by dotted key
# In tables under other names.
COLUMN_KEYS = ("name", "server.aggregator", "corruption.kind", "corruption.fraction", "seed")
MAX_CHARACTERS = 150  # of a name, which is that of a folder


def varying_keys(runs: Iterable[Run]) -> list[str]:
    """The keys that have several values among the runs that have them, in the order of their first appearance."""
    runs = list(runs)
    texts = lambda key: {repr(run[key]) for run in runs if key in run}
    return [key for key in dict.fromkeys(chain.from_iterable(runs)) if len(texts(key)) > 1]


def split_common(runs: Sequence[Run]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The keys that all runs have with the same value, and the other keys of each run."""
    shared = set(runs[0]).intersection(*runs).difference(varying_keys(runs))
    different_keys = dict.fromkeys(key for run in runs for key in run if key not in shared)
    common = {key: value for key, value in runs[0].items() if key in shared}
    return common, [{key: run[key] for key in different_keys if key in run} for run in runs]


def section_name(factory: str) -> str:
    """The section of a factory's settings: "tau_mean" for "my_rules.py:tau_mean" or "tau_mean (my_rules.py)"."""
    return factory.partition(" (")[0].rpartition(":")[2]


def lam_key(run: Run) -> str:
    """The key of the rule's lambda, such as "arfl.lam", whether the rule has one or not."""
    return f"{section_name(run['server.aggregator'])}.lam"


def swept_keys(runs: Sequence[Run]) -> list[str]:
    """The keys that vary among the runs, except those with columns of their own."""
    is_lam = lambda key: all("server.aggregator" in run and key == lam_key(run) for run in runs if key in run)
    return [key for key in varying_keys(runs) if key not in COLUMN_KEYS and not is_lam(key)]


def append_swept_columns(table: pl.DataFrame, runs: Sequence[Run]) -> pl.DataFrame:
    """The table, which has a column "run", with a column for each swept key; null: the key does not apply."""
    keys = swept_keys(runs) if "aggregator" in table.columns else [key for key in varying_keys(runs) if key != "name"]
    columns = (key_column(key, [run.get(key) for run in runs]) for key in keys)
    return table.with_columns(column.gather(table["run"]) for column in columns)


def key_column(key: str, values: Sequence[Any]) -> pl.Series:
    """Numbers as numbers; values that are neither numbers nor texts as texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pl.Series(key, values, pl.Float64, strict=False)
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        return pl.Series(key, values)
    return pl.Series(key, [None if value is None else _text(value) for value in values], pl.String)


def _text(value: Any) -> str:
    """For example "0.1", "64 32" or "fedavg"."""
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def run_names(runs: Sequence[Run], ids: Sequence[str]) -> tuple[str, ...]:
    """A name for each run: "arfl-shuffling0.3-ipm-lam10-seed2-client.epochs=5-3f2a91c0", with the start of its id."""
    keys = [key for key in swept_keys(runs) if key != "attack.kind"]
    return tuple(f"{_name(run, keys)}-{id_[:8]}" for run, id_ in zip(runs, ids, strict=True))


def _name(run: Run, keys: Sequence[str]) -> str:
    rule_lam = lam_key(run)
    kind, attack, lam = (str(run.get(key, "none")) for key in ("corruption.kind", "attack.kind", rule_lam))
    fraction = f"{run.get('corruption.fraction') or ''}"
    parts = [section_name(run["server.aggregator"]), section_name(kind) + fraction]
    parts += [section_name(attack)] if attack != "none" else []
    parts += [f"lam{lam}"] if lam != "none" else []
    parts += [f"seed{run['seed']}"]
    keys = [key for key in keys if key != rule_lam and run.get(key) is not None]
    parts += [f"{key}={_text(run[key]).rpartition(':')[2]}" for key in keys]
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "_", "-".join(parts))[:MAX_CHARACTERS]
