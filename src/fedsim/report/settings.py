"""What tells runs apart, beside the axes that have columns of their own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsim.config.fields import DEFAULTS
from fedsim.config.schema import NAME_KEYS, named
from fedsim.report.names import labels, section_of

Run = dict[str, Any]  # the configuration of a run by dotted key: the fixed keys, and the settings of what it names
Settings = tuple[tuple[str, Any], ...]  # (key, value)

# Columns of their own, with `lam_key`.
AXES = ("server.aggregator", "corruption.kind", "corruption.fraction", "attack.kind", "seed")
# They change nothing that a table or figure shows.
IGNORED = ("name", "record.clients", "record.models", "record.states", "record.data")
SHARED_F = "server.num_byzantine"  # told to everything that takes an f
OF_CORRUPTED = ("corruption", "attack")  # sections that say something about runs with corrupted clients only
DATA_OF_A_PATH = ("leaf", "arrays")  # data sets that are called as their file or folder


def configuration(run: Run) -> Run:
    """A run of a manifest with every fixed key of today, lists as tuples, so that values can be compared."""
    return {key: _hashable(value) for key, value in (DEFAULTS | run).items()}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def identity(run: Run) -> tuple[Any, ...]:
    """The same for two runs if they are the same run."""
    return tuple((key, value) for key, value in sorted(run.items()) if key not in IGNORED)


def with_labels(runs: Sequence[Run]) -> list[Run]:
    """The runs with the names of factories as they are shown (`names.labels`)."""
    shown = labels(name for run in runs for _, name in named(run))
    label = lambda value: shown[value] if isinstance(value, str) else tuple(shown[name] for name in value)
    return [run | {key: label(run[key]) for key in NAME_KEYS} for run in runs]


def data_set(run: Run) -> str:
    """The name of the run's data set: its own where it is one of tensorflow-datasets, or a file or folder."""
    name = str(run["data.name"])
    if name == "tfds":
        return str(run["tfds.name"])
    return Path(run[f"{name}.path"]).stem if name in DATA_OF_A_PATH else name


def lam_key(run: Run) -> str:
    """The setting `lam` of the run's rule, such as "arfl.lam"; a column of its own, whether the rule has it or not."""
    return f"{section_of(run['server.aggregator'])}.lam"


def settings(runs: Sequence[Run]) -> list[Settings]:
    """For each run, the other keys that vary among the runs of its data set about which they say something."""
    keys = [key for key in dict.fromkeys(key for run in runs for key in run) if key not in (*AXES, *IGNORED)]
    keys_of = [[key for key in keys if applies(key, run)] for run in runs]
    values: dict[str, dict[str, set[Any]]] = {}  # of each data set and key
    for run, own in zip(runs, keys_of, strict=True):
        of_data_set = values.setdefault(data_set(run), {})
        for key in own:
            of_data_set.setdefault(key, set()).add(run[key])
    shown = lambda key, run: len(values[data_set(run)][key]) > 1 and not (_is_lam(key, run) or is_told(key, run))
    return [tuple((key, run[key]) for key in own if shown(key, run)) for run, own in zip(runs, keys_of, strict=True)]


def is_told(key: str, run: Run) -> bool:
    """Whether `key` is an f that follows from `server.num_byzantine`."""
    return _is_f(key) and run[SHARED_F] is not None


def _is_f(key: str) -> bool:
    """Whether `key` is the f of one rule or pre-aggregator."""
    return key.endswith(".num_byzantine") and key != SHARED_F


def _is_lam(key: str, run: Run) -> bool:
    """Whether `key` is the run's lambda as a number, which has a column of its own."""
    return key == lam_key(run) and isinstance(run[key], int | float)


def applies(key: str, run: Run) -> bool:
    """Whether `key` says anything about `run`: not of what it does not name, nor of corrupted clients without any."""
    if key == SHARED_F and not any(_is_f(other) for other in run):
        return False
    return key in run and (is_corrupted(run) or section(key) not in OF_CORRUPTED)


def section(key: str) -> str:
    """The section of a dotted key."""
    return key.rpartition(".")[0]


def is_corrupted(run: Run) -> bool:
    """Whether the run has corrupted clients."""
    return bool(run["corruption.clients"]) or run["corruption.fraction"] > 0


def text(chosen: Settings) -> str:
    """For example "client.epochs=5, data.partition=iid"."""
    return ", ".join(f"{key}={value_text(key, value)}" for key, value in chosen)


def value_text(key: str, value: Any) -> str:
    """How the value of a key is shown."""
    is_list_of_names = key in NAME_KEYS and not isinstance(value, str)
    return (" + ".join(value) or "none") if is_list_of_names else f"{value}"
