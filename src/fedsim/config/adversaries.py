"""Adversaries: fixed, versioned lists of attacks, of which the worst counts for a rule.

A list is never changed, and neither are the settings of its attacks: another one gets another name.

Croce et al.: "RobustBench: a Standardized Adversarial Robustness Benchmark", NeurIPS 2021,
https://arxiv.org/abs/2010.09670, is the model.
"""

from collections.abc import Sequence
from typing import Any

from fedsim.config.registry import lookup, section_of
from fedsim.errors import ConfigError

KEY, ATTACK = "adversary", "attack.kind"
ADVERSARIES: dict[str, tuple[dict[str, list[Any]], ...]] = {
    "standard-1": (
        {ATTACK: ["sign_flip", "ipm", "alie", "min_max", "min_sum", "mimic", "gaussian", "fake_loss", "fake_counts"]},
        {ATTACK: ["fang"], "fang.against": ["trimmed_mean", "krum"]},
        {ATTACK: ["optimal_ipm"]},
        {ATTACK: ["optimal_alie"], "optimal_alie.sign": ["plus", "minus"]},
        {ATTACK: ["ascent"], "ascent.objective": ["distance", "drift", "loss"]},
    )
}
"""The attacks of each, as blocks of a sweep; all other settings have their defaults."""


def expand(name: Any, values: dict[str, Any], blocks: Sequence[dict[str, list[Any]]]) -> list[dict[str, list[Any]]]:
    """The `blocks` of a sweep, or a single run, against each attack of an adversary.

    Raises `ConfigError` if there is none of this name, or if `values` or `blocks` set what it fixes.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{KEY}: must be text, got {name!r}")
    members = lookup(KEY, name, ADVERSARIES)
    sections = {section_of(ATTACK, attack) for member in members for attack in member[ATTACK]}
    for key in (*values, *(key for block in blocks for key in block)):
        if key == ATTACK or key.rpartition(".")[0] in sections:
            raise ConfigError(f"{key}: must be left out with adversary = {name}, which sets it")
    return [block | member for block in blocks or [{}] for member in members]
