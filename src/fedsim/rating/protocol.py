"""What a rule is rated by: three presets of configs/rating.toml, run into one folder.

An attack is chosen on other splits than those on which the rule is then evaluated under it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsim.config import toml
from fedsim.config.adversaries import ADVERSARIES, ATTACK
from fedsim.config.experiment import Block, Experiment
from fedsim.report.keys import Run
from fedsim.report.results import Results

DATA_SETS: dict[str, dict[str, Any]] = {
    "digits": {},
    "mnist": {"data.name": "mnist", "client.steps": 5, "mlp.hidden_sizes": [32]},
}
"""The keys of each that are not as in the configuration."""
PARTITION, SHARE = "data.partition", "corruption.fraction"


def read(data: str, preset: str, overrides: Mapping[str, Any]) -> Experiment:
    """A preset of the protocol, with the rule and its settings in `overrides`."""
    changes = {**DATA_SETS[data], **overrides}
    return toml.read(Path("rating"), changes, preset, lambda key: f"--{key.replace('_', '-')}")


def against_worst(evaluation: Experiment, adversary: str, results: Results) -> Experiment:
    """`evaluation`, also under the attack that has the worst mean in `results` at each partition and share."""
    swept: Block = {}
    for block in evaluation.sweep:
        swept |= {key: values for key, values in block.items() if key != PARTITION}
    blocks = [attack | swept for attack in _worst_attacks(adversary, results)]
    return replace(evaluation, sweep=(*evaluation.sweep, *blocks))


def _worst_attacks(adversary: str, results: Results) -> list[Block]:
    """For each partition and share of malicious clients the keys of the attack with the worst mean, as a block."""
    cells: dict[tuple[Any, Any], list[Any]] = {}
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        cells.setdefault((run[PARTITION], run[SHARE]), []).append(setting)
    chosen = []
    for (partition, share), settings in cells.items():
        worst = results.worst(settings, results.metric(settings[0].data))
        if worst is not None:
            attack = attack_keys(adversary, results.runs[worst.runs[0]])
            chosen.append({PARTITION: [partition], SHARE: [share]} | attack)
    return chosen


def attack_keys(adversary: str, run: Run) -> Block:
    """The keys that tell the attack of a run from others of the adversary."""
    member = next(member for member in ADVERSARIES[adversary] if run[ATTACK] in member[ATTACK])
    return {key: [run[key]] for key in member}
