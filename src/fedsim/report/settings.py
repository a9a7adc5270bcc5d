"""What tells runs apart, beside the axes that have columns of their own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsim.aggregators import AGGREGATORS
from fedsim.keys import KEYS

Run = dict[str, Any]  # the configuration of a run by dotted key
Settings = tuple[tuple[str, Any], ...]  # (key, value)

AXES = ("server.aggregator", "corruption.kind", "corruption.fraction", "arfl.lam", "seed")  # columns of their own
IGNORED = ("name", "record.clients", "record.models")  # change nothing that a table or figure shows


def configuration(run: Run) -> Run:
    """A run of a manifest with every key of today, lists as tuples, so that values can be compared."""
    defaults = {name: key.default for name, key in KEYS.items()}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in (defaults | run).items()}


def identity(run: Run) -> tuple[Any, ...]:
    """The same for two runs if they are the same run."""
    return tuple(value for key, value in sorted(run.items()) if key not in IGNORED)


def data_set(run: Run) -> str:
    """The name of the run's data set: its own where it is one of tensorflow-datasets, or a file or folder."""
    if run["data.name"] == "tfds":
        return str(run["data.tfds_name"])
    if run["data.name"] in ("leaf", "arrays"):
        return Path(run["data.path"]).stem
    return str(run["data.name"])


def settings(runs: Sequence[Run]) -> list[Settings]:
    """For each run, the other keys that vary among the runs of its data set.

    A key of a rule's section counts among the runs of that rule, and what corrupted clients do among the runs that have
    some: elsewhere these keys are at their defaults, which say nothing.
    """
    keys = [key for key in runs[0] if key not in (*AXES, *IGNORED)]
    keys = [key for key in keys if len({run[key] for run in runs}) > 1]
    values: dict[tuple[Any, ...], set[Any]] = {}
    for run in runs:
        for key in keys:
            values.setdefault(_peers(key, run), set()).add(run[key])
    told = lambda key, run: applies(key, run) and len(values[_peers(key, run)]) > 1
    return [tuple((key, run[key]) for key in keys if told(key, run)) for run in runs]


def section(key: str) -> str:
    """The section of a dotted key."""
    return key.rpartition(".")[0]


def is_corrupted(run: Run) -> bool:
    """Whether the run has corrupted clients."""
    return bool(run["corruption.clients"]) or run["corruption.fraction"] > 0


def text(chosen: Settings) -> str:
    """For example "client.epochs=5, data.partition=iid"."""
    return ", ".join(f"{key}={value}" for key, value in chosen)


def applies(key: str, run: Run) -> bool:
    """Whether `key` says anything about `run`: not of another rule's section, nor of corrupted clients without any."""
    if section(key) in AGGREGATORS:
        return bool(section(key) == run["server.aggregator"])
    return is_corrupted(run) or not (section(key) == "attack" or key == "corruption.clients")


def _peers(key: str, run: Run) -> tuple[Any, ...]:
    """What the runs share among which `key` is looked at."""
    return key, data_set(run), applies(key, run)
