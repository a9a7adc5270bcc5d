"""What the keys of runs are part of: the rule, the scenario, or the draw; and which of them vary."""

from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedsim.config.components import component_names, flatten
from fedsim.config.fields import DEFAULTS
from fedsim.config.kinds import KINDS
from fedsim.config.registry import section_of, split_names
from fedsim.config.roles import LATER, NOT_IN_IDS
from fedsim.config.schema import Config, is_byzantine_count
from fedsim.report.names import SweptValues, labels
from fedsim.runs.folder import StoredRun
from fedsim.runs.sweep import lam_key, section_name, split_common, varying_keys

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment

Run = dict[str, Any]  # the configuration of a run by dotted key: the fixed keys, and the settings of what it names
Role = Literal["rule", "pre-aggregator", "training", "data", "threat"]

# Keys with fields of their own in `Setting`, as has `lam_key`.
SETTING_KEYS = (
    "server.aggregator",
    "corruption.kind",
    "corruption.fraction",
    "attack.kind",
    "attack.fraction",
    "data.seed",
    "seed",
)
# Sections and components whose keys have a role; all other keys are of the training.
ROLES: dict[Role, tuple[str, ...]] = {
    "rule": ("server.aggregator", "server.weighting", "server.layerwise"),
    "pre-aggregator": ("server.pre_aggregators",),
    "data": ("data", "data.name", "data.partition"),
    "threat": ("corruption", "attack", "corruption.kind", "attack.kind"),
}
WEIGHTING = "server.weighting"
SHARED_F = "server.num_byzantine"  # applies to everything that has an f
CORRUPTION_SECTIONS = ("corruption", "attack")  # apply to runs with corrupted or malicious clients only
DATA_FROM_PATH = ("leaf", "arrays", "images", "table", "huggingface")  # named after their file or folder


def configuration(run: Run) -> Run:
    """A stored run with every key, also of later versions, and tuples instead of lists: its values can be compared."""
    full = DEFAULTS | run | {key: hashable(value) for key, value in run.items() if isinstance(value, list)}
    sections = {section_of(*component) for component in component_names(full)}
    return full | {key: value for key, value in LATER.items() if key not in full and section(key) in sections}


def hashable(value: Any) -> Any:
    """Tuples instead of lists."""
    return tuple(map(hashable, value)) if isinstance(value, list) else value


def identities(runs: Sequence[StoredRun]) -> list[Hashable]:
    """For each run what identifies it in all folders: its id or, of fedsim 0.3, its keys that not all of them share."""
    _, different = split_common([run.keys for run in runs])
    keys = [tuple((key, value) for key, value in sorted(of.items()) if key not in NOT_IN_IDS) for of in different]
    known: dict[Hashable, Hashable] = {}
    has_id = lambda run: len(run.id) > len("00000")  # which is a position
    return [known.setdefault(of, run.id if has_id(run) else of) for run, of in zip(runs, keys, strict=True)]


def with_labels(runs: Sequence[Run]) -> list[Run]:
    """The runs with the names of factories as they are shown (`names.labels`)."""
    shown = labels(name for _, name in _components(runs))
    if all(name == label for name, label in shown.items()):
        return list(runs)

    join = lambda key, value: "+".join(shown[name] for name in split_names(key, value))
    label = lambda key, value: join(key, value) if isinstance(value, str) else tuple(shown[name] for name in value)
    return [run | {key: label(key, run[key]) for key in KINDS if run[key] is not None} for run in runs]


def _components(runs: Sequence[Run]) -> set[tuple[str, str]]:
    """The factories that the runs name: pairs of key and name."""
    choices = {tuple((key, run[key]) for key in KINDS) for run in runs}
    return {name for choice in choices for name in component_names(dict(choice))}


def data_set(run: Run) -> str:
    """The name of the run's data set; for data from tensorflow-datasets or from a path, the name there."""
    if run.get("arrays.path") == "":  # given as arrays, which no key describes
        return "data in memory"
    name = str(run["data.name"])
    if name == "tfds":
        return str(run["tfds.name"])
    return Path(run[f"{name}.path"]).stem if name in DATA_FROM_PATH else name


def data_keys(run: Run) -> tuple[tuple[str, Hashable], ...]:
    """What determines the run's data, except their content."""
    sections = ("data", section_name(run["data.name"]), section_name(run["data.partition"]))
    return tuple(pair for pair in sorted(run.items()) if section(pair[0]) in sections and pair[0] not in NOT_IN_IDS)


def planned(experiment: "Experiment", stored: Iterable[StoredRun]) -> list[Config]:
    """The runs of an experiment; clients that it lists by name have their numbers in the data of the stored runs."""
    names = cache(lambda: {data_keys(run.keys): run.group.record.client_names for run in stored})
    return experiment.runs(lambda config: names().get(data_keys(configuration(flatten(config)))))


def swept_values(runs: Sequence[Run]) -> list[SweptValues]:
    """For each run, the keys that apply to it and vary among the runs of its data set, with their values."""
    candidates = [key for key in varying_keys(runs) if key not in (*NOT_IN_IDS, *SETTING_KEYS)]
    applied = [{key: run[key] for key in candidates if applies(key, run)} for run in runs]
    by_data: dict[str, list[Run]] = {}
    for run, values in zip(runs, applied, strict=True):
        by_data.setdefault(data_set(run), []).append(values)
    varying = {data: {*varying_keys(of_data)} for data, of_data in by_data.items()}

    def is_shown(key: str, run: Run) -> bool:
        is_lam = key == lam_key(run) and isinstance(run[key], int | float)
        return key in varying[data_set(run)] and not is_lam and not is_shared_f(key, run)

    return [
        tuple((key, value) for key, value in values.items() if is_shown(key, run))
        for run, values in zip(runs, applied, strict=True)
    ]


def setting_keys(runs: Sequence[Run]) -> dict[str, Role]:
    """What each key of the runs is part of. Data and threat are the scenario, in which rules are compared.

    Splits and seeds (`SETTING_KEYS`) are draws of a setting, whatever their role here.
    """
    own = {key: role for role, keys in ROLES.items() for key in keys}  # of sections, too
    components = _components(runs)
    sections = own | {section_name(name): own[key] for key in own for of, name in components if of == key}
    by_key = dict.fromkeys(chain.from_iterable(runs))
    return {key: own.get(key) or sections.get(section(key), "training") for key in by_key}


def is_shared_f(key: str, run: Run) -> bool:
    """Whether `key` is an f that takes its value from `server.num_byzantine`."""
    return is_byzantine_count(key) and run[SHARED_F] is not None


def applies(key: str, run: Run) -> bool:
    """Whether `key` has an effect on `run`: keys of corruptions have none without corrupted clients."""
    if key == SHARED_F and not any(map(is_byzantine_count, run)):
        return False
    is_corrupted = bool(run["corruption.clients"]) or run["corruption.fraction"] > 0
    is_attacked = bool(run["attack.clients"]) or run["attack.fraction"] is not None
    return key in run and (is_corrupted or is_attacked or section(key) not in CORRUPTION_SECTIONS)


def section(key: str) -> str:
    """The section of a dotted key."""
    return key.rpartition(".")[0]
