"""What a rule is rated by: three presets of configs/rating.toml, run into one folder.

An attack is chosen on other splits than those on which the rule is then evaluated under it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsim.config import bundled, toml
from fedsim.config.adversaries import ADVERSARIES, ATTACK
from fedsim.config.experiment import Block, Experiment
from fedsim.config.registry import section_of
from fedsim.config.schema import Config, is_byzantine_count
from fedsim.config.values import Sweep, option_of
from fedsim.errors import ConfigError
from fedsim.report.keys import Run
from fedsim.report.names import aggregator_name, format_values, join, short
from fedsim.report.results import Results
from fedsim.report.settings import Setting

DATA_SETS: dict[str, dict[str, Any]] = {
    "digits": {},
    "mnist": {"data.name": "mnist", "client.steps": 5, "mlp.hidden_sizes": [32], "record.losses": False},
}
"""The keys of each that are not as in the configuration."""
EVALUATED_ON: dict[str, tuple[int, ...]] = {"mnist": (60, 61, 62, 63, 64)}
"""The splits of each that are not those of the preset evaluation."""
RULE, PARTITION, SHARE = "server.aggregator", "data.partition", "corruption.fraction"
MIXING = "server.pre_aggregators"
RULE_KEYS = MIXING, "server.weighting", "server.layerwise", "server.num_byzantine"


def read(data: str, preset: str, keys: Mapping[str, Any]) -> Experiment:
    """A preset of the protocol for the rule that `keys` define."""
    folder = bundled.folder() or Path()
    splits = {"seed": Sweep(EVALUATED_ON[data])} if preset == "evaluation" and data in EVALUATED_ON else {}
    return toml.read(folder / "rating.toml", {**DATA_SETS[data], **splits, **keys}, preset)


def clean_run(data: str, keys: Mapping[str, Any], num_byzantine: int, num_clients: int | None = None) -> Config:
    """A run of the rule without attacks; it assumes `num_byzantine` of `num_clients` (None: as in the protocol)."""
    others = {key: value for key, value in keys.items() if not key.endswith("num_byzantine")}
    sizes = {} if num_clients is None else {"data.num_clients": num_clients, "server.cohort_size": num_clients}
    return read(data, "evaluation", {**others, **sizes, "server.num_byzantine": num_byzantine, "seed": 0}).runs()[0]


def check_keys(data: str, keys: Mapping[str, Any]) -> None:
    """Raises `ConfigError` if `keys` define no rule, or set what the protocol fixes."""
    for key, value in keys.items():
        if isinstance(value, Sweep):
            raise ConfigError(f"--sweep.{key}: must be one value; give several rules as arguments, or rate one by one")
    others = {key: value for key, value in keys.items() if not is_byzantine_count(key)}
    server = read(data, "evaluation", others).runs()[0].server
    rules, mixing = filter(None, (server.aggregator, server.weighting)), server.pre_aggregators
    sections = {section_of(RULE, rule) for rule in rules} | {section_of(MIXING, name) for name in mixing}
    for key, value in keys.items():
        if key != RULE and key not in RULE_KEYS and key.rpartition(".")[0] not in sections:
            raise ConfigError(
                f"{option_of(key)}: must be a setting of the rule, since the protocol fixes all else; `fedsim run "
                "rating` runs a part of it with any key"
            )
        if is_byzantine_count(key):
            raise ConfigError(f"{option_of(key)}: must be left out; use --server.num-byzantine {value}")


def name_of(keys: Mapping[str, Any]) -> str:
    """How the rule is shown, with the settings that were given."""
    rule, settings = str(keys[RULE]), tuple((key, value) for key, value in keys.items() if key != RULE)
    name = f"{short(rule)} ({rule.rpartition(':')[0]})" if ":" in rule else aggregator_name(rule)
    return join(name, format_values(settings))


def against_worst(evaluation: Experiment, adversary: str, results: Results) -> Experiment:
    """`evaluation`, also under the worst attack in `results` at each partition and share: that of the lowest mean."""
    swept: Block = {}
    for block in evaluation.sweep:
        swept |= {key: values for key, values in block.items() if key != PARTITION}
    cells: dict[tuple[Any, Any], list[Setting]] = {}
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        cells.setdefault((run[PARTITION], run[SHARE]), []).append(setting)
    blocks = []
    for (partition, share), settings in cells.items():
        worst = min(settings, key=lambda setting: results.mean(setting, results.metric(setting)))
        attack = attack_keys(adversary, results.runs[worst.runs[0]])
        blocks.append(swept | {PARTITION: [partition], SHARE: [share]} | attack)
    return replace(evaluation, sweep=(*evaluation.sweep, *blocks))


def attack_keys(adversary: str, run: Run) -> Block:
    """The keys that tell the attack of a run from others of the adversary."""
    member = next(member for member in ADVERSARIES[adversary] if run[ATTACK] in member[ATTACK])
    return {key: [run[key]] for key in member}
