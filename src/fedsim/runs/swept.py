"""What tells the runs of an experiment apart: columns of its tables, and a name for each run."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

Run = Mapping[str, Any]  # a configuration by dotted key
OTHERS = ("name", "server.aggregator", "corruption.kind", "corruption.fraction", "seed")  # in tables under other names
MOST_CHARACTERS = 150  # of a name, which is that of a folder


def swept(runs: Sequence[Run]) -> list[str]:
    """The keys that have several values among the runs that have them, but for those with columns of their own."""
    values: dict[str, set[str]] = {}
    for run in runs:
        for key, value in run.items():
            values.setdefault(key, set()).add(repr(value))
    of_rules = {_lam_key(run) for run in runs}
    return [key for key, different in values.items() if len(different) > 1 and key not in (*OTHERS, *of_rules)]


def with_swept(table: pa.Table, runs: Sequence[Run]) -> pa.Table:
    """The table, which has a column "run", with a column for each swept key."""
    for key, column in columns(runs).items():
        table = table.append_column(key, column.take(table["run"]))
    return table


def columns(runs: Sequence[Run]) -> dict[str, pa.Array]:
    """The value of each swept key in each of the runs; null: it says nothing of the run."""
    return {key: _column([run.get(key) for run in runs]) for key in swept(runs)}


def _column(values: Sequence[Any]) -> pa.Array:
    """Numbers as numbers, what is neither number nor text as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pa.array(values, pa.float64())
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        return pa.array(values)
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    """For example "0.1", "64 32" or "fedavg"."""
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def run_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """A name for each run: "00012-arfl-shuffling0.3-ipm-lam10-seed2-client.epochs=5"."""
    keys = [key for key in swept(runs) if key != "attack.kind"]
    return tuple(_name(position, run, keys) for position, run in enumerate(runs))


def _name(position: int, run: Run, keys: Sequence[str]) -> str:
    kind, attack, lam = (str(run.get(key, "none")) for key in ("corruption.kind", "attack.kind", _lam_key(run)))
    fraction = f"{run.get('corruption.fraction') or ''}"
    parts = [f"{position:05}", _short(run["server.aggregator"]), _short(kind) + fraction]
    parts += [_short(attack)] if attack != "none" else []
    parts += [f"lam{lam}"] if lam != "none" else []
    parts += [f"seed{run['seed']}"]
    parts += [f"{key}={_short(_text(run[key]))}" for key in keys if run.get(key) is not None]
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "_", "-".join(parts))[:MOST_CHARACTERS]


def _lam_key(run: Run) -> str:
    return f"{_short(str(run.get('server.aggregator')))}.lam"


def _short(name: str) -> str:
    return name.rpartition(":")[2]
