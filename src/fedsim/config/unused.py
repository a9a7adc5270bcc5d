"""Keys that a configuration sets although they have no effect on any run."""

from collections.abc import Sequence
from typing import Any

from fedsim.config.components import flatten
from fedsim.config.experiment import Experiment
from fedsim.config.fields import FIXED, Field
from fedsim.config.schema import Config
from fedsim.config.values import format_toml

NOT_CORRUPTED = "no clients are corrupted: set corruption.fraction"
NO_ATTACK = "there is no attack: set attack.kind"
REASONS = {
    "corruption.kind": NOT_CORRUPTED,
    "attack.kind": f"{NOT_CORRUPTED} or attack.fraction",
    "attack.fraction": NO_ATTACK,
    "attack.clients": NO_ATTACK,
    "client.epochs": "client.steps replaces it",
    "server.num_byzantine": "no rule or pre-aggregator takes it",
}
NO_CORRUPTION = "there is no corruption or attack, or corruption.fraction and corruption.clients are not set"


def unused_keys(experiment: Experiment, runs: Sequence[Config]) -> list[str]:
    """A message for each key that the file, an override or the sweep sets without effect on any of the runs."""
    given: dict[str, list[Any]] = {key: [value] for key, value in experiment.values.items()}
    for block in experiment.sweep:
        for key, values in block.items():
            given.setdefault(key, []).extend(values)
    resolved = [flatten(config) for config in runs]
    reasons = {key: _reason(experiment, key, values, runs, resolved) for key, values in given.items()}
    lines = [f"{key}: has no effect: {reason}" for key, reason in reasons.items() if reason]
    for block in experiment.sweep:
        repeated = [key for key, values in block.items() if len(set(map(repr, values))) < len(values)]
        lines += [f"sweep: {key} has a value twice" for key in repeated]
        lines += ["sweep: name cannot be swept: it names the run folder"] if "name" in block else []
    return lines


def _unmet_condition(field: Field, users: Sequence[dict[str, Any]]) -> str:
    """Why the setting has no effect on the runs that have it; "" if it has one, or is at its default."""
    condition = field.only_if
    if condition is None or all(run[field.name] == field.default for run in users):
        return ""
    other = f"{field.section}.{condition.name}"
    is_met = any(run.get(other) == condition.value for run in users)
    return "" if is_met else f"{other} is not {format_toml(condition.value)}"


def _reason(
    experiment: Experiment, key: str, values: Sequence[Any], runs: Sequence[Config], resolved: Sequence[dict[str, Any]]
) -> str:
    """Why the key has no effect; "" if it has one."""
    if key not in FIXED:
        section = key.rpartition(".")[0]
        is_named = section in experiment.named_sections and key not in experiment.overridden  # used by other presets
        users = [run for run in resolved if key in run]
        return _unmet_condition(experiment.schema.fields[key], users) if users or is_named else f"no run uses {section}"
    if key == "data.num_clients":
        return "the data set has its own clients" if all(run.data.partition == "natural" for run in runs) else ""
    if key == "engine.micro_batch":
        sizes = [value for value in values if isinstance(value, int)]
        largest = max(run.client.batch_size for run in runs)
        return f"the largest batch has {largest} examples" if sizes and min(sizes) > largest else ""
    if key.partition(".")[0] not in ("corruption", "attack") and key not in REASONS:
        return ""
    default = FIXED[key].default
    changed = [value for value in values if (tuple(value) if isinstance(value, list) else value) != default]
    if not changed or any(run[key] != default for run in resolved):
        return ""
    if key in ("corruption.fraction", "corruption.rounding") and any(run["corruption.clients"] for run in resolved):
        return "corruption.clients replaces it"
    if key == "attack.fraction" and any(run["attack.clients"] for run in resolved):
        return "attack.clients replaces it"
    return REASONS.get(key, NO_CORRUPTION)
