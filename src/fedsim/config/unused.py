"""Keys that a configuration sets although they have no effect on any run."""

from collections.abc import Sequence
from typing import Any

from fedsim.config.components import flatten, unmet
from fedsim.config.experiment import Experiment
from fedsim.config.fields import FIXED
from fedsim.config.kinds import KINDS
from fedsim.config.registry import did_you_mean
from fedsim.config.roles import NOT_IN_IDS
from fedsim.config.schema import Config
from fedsim.config.values import DEFAULT


def unused_keys(experiment: Experiment, runs: Sequence[Config]) -> list[str]:
    """A message for each key that the file, an override or the sweep sets without effect on any of the runs."""
    given: dict[str, list[Any]] = {key: [value] for key, value in experiment.values.items()}
    for block in experiment.sweep:
        for key, values in block.items():
            given.setdefault(key, []).extend(values)
    reasons = {key: _reason(experiment, key, values, runs) for key, values in given.items()}
    lines = [f"{key}: has no effect: {reason}" for key, reason in reasons.items() if reason]
    for block in experiment.sweep:
        repeated = [key for key, values in block.items() if len(set(map(repr, values))) < len(values)]
        lines += [f"sweep: {key} has a value twice" for key in repeated]
        ignored = [key for key, values in block.items() if key in NOT_IN_IDS and len(values) > 1]
        lines += [f"sweep: {key} changes no results, so each run is computed once" for key in ignored]
        rounds = {*block.get("server.num_rounds", ())} - {DEFAULT, *(run.server.num_rounds for run in runs)}
        lines += [f"sweep: server.num_rounds: {number} rounds are part of the longer runs" for number in sorted(rounds)]
    return lines


def _reason(experiment: Experiment, key: str, values: Sequence[Any], runs: Sequence[Config]) -> str:
    """Why the key has no effect; "" if it has one."""
    uses = lambda key: [run for run in runs if key in FIXED or key in dict(run.settings)]
    if not (users := uses(key)):
        section = key.rpartition(".")[0]
        is_named = section in experiment.named_sections and key not in experiment.overridden  # used by other presets
        of_other_kind = next((name for kind in KINDS.values() if uses(name := f"{kind.prefix}{key}")), None)
        return "" if is_named else f"no run uses {section}{did_you_mean(of_other_kind)}"
    runs = users
    if key == "engine.micro_batch":
        sizes = [value for value in values if isinstance(value, int)]
        largest = max(config.client.batch_size for config in runs)
        return f"the largest batch has {largest} examples" if sizes and min(sizes) > largest else ""
    field = experiment.schema.fields[key]
    changed = [value for value in values if (tuple(value) if isinstance(value, list) else value) != field.default]
    if not changed or not field.only_if:
        return ""
    if any(flatten(run)[key] != field.default and not unmet(field, run) for run in runs):
        return ""
    known = {unmet(field, run) for run in runs}
    reasons = [condition.reason for condition in field.only_if]
    return next((reason for reason in reasons if reason in known), reasons[-1])
