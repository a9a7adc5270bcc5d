"""Names of rules, attacks, data sets and scenarios as tables and figures show them."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedsim.config.kinds import KINDS

if TYPE_CHECKING:
    from fedsim.report.settings import Scenario

SweptValues = tuple[tuple[str, Any], ...]  # (key, value)

BUILT_IN = {name for kind in KINDS.values() for name in kind.built_in}
SPELLED = {  # rules that are not shown as `_capital`
    "fedavg": "FedAvg",
    "rfa": "RFA",
    "multi_krum": "Multi-Krum",
    "cfl": "CFL",
    "arfl": "ARFL",
    "dnc": "DnC",
    "fltrust": "FLTrust",
    "mda": "MDA",
    "smea": "SMEA",
    "caf": "CAF",
    "autogm": "AutoGM",
    "signguard": "SignGuard",
    "foolsgold": "FoolsGold",
    "flame": "FLAME",
    "faba": "FABA",
    "monna": "MoNNA",
    "lfighter": "LFighter",
}
ATTACKS = {
    "ipm": "IPM",
    "alie": "ALIE",
    "optimal_ipm": "Optimal IPM",
    "optimal_alie": "Optimal ALIE",
    "min_max": "Min-Max",
    "min_sum": "Min-Sum",
}
DATA_SETS = {
    "digits": "Digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "emnist": "EMNIST",
    "femnist": "FEMNIST",
    "shakespeare": "Shakespeare",
}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].replace("_", " ")


AGGREGATORS = {name: SPELLED.get(name, _capital(name)) for name in KINDS["server.aggregator"].built_in}

TAKEN = BUILT_IN.union(*(names.values() for names in (AGGREGATORS, ATTACKS, DATA_SETS)), map(_capital, BUILT_IN))
"""Names of built-in components, and how they are shown: those that no factory of a user's file gets alone."""


def short(name: str) -> str:
    """A factory's name without its file: "tau_mean" for "my_rules.py:tau_mean"."""
    return name.rpartition(":")[2]


def labels(names: Iterable[str]) -> dict[str, str]:
    """How each factory is shown: "mean", or "mean (my_rules.py)" if another or a built-in one is shown as the same."""
    different = set(names)
    number = Counter(map(short, different))
    is_unique = lambda name: ":" not in name or (number[short(name)] == 1 and short(name) not in TAKEN)
    return {
        name: short(name) if is_unique(name) else f"{short(name)} ({name.rpartition(':')[0]})" for name in different
    }


def aggregator_name(aggregator: str) -> str:
    """For example "Multi-Krum"."""
    return AGGREGATORS.get(aggregator, short(aggregator))


def data_name(data: str) -> str:
    """For example "CIFAR-10"."""
    return DATA_SETS.get(data, short(data))


def join(*parts: str) -> str:
    """The parts that are not empty, with commas between."""
    return ", ".join(filter(None, parts))


def scenario_name(scenario: "Scenario") -> str:
    """For example "Clean", or "Shuffling 30 %"."""
    return " ".join(filter(None, scenario_parts(scenario)))


def scenario_parts(scenario: "Scenario") -> tuple[str, str]:
    """For example ("Clean", ""), ("Shuffling", "30 %"), ("ALIE", "20 %, dirichlet.alpha=0.1")."""
    threat = scenario.threat
    values = format_values((*threat.values, *scenario.data_values))
    if scenario.is_clean:
        return "Clean", values
    is_apart = threat.attack_fraction is not None and not scenario.fraction
    share = "" if is_apart else percent(scenario.fraction)
    return threat_name(*threat._replace(values=())), join(share, values)


def threat_name(kind: str, attack: str = "none", attack_fraction: float | None = None, values: SweptValues = ()) -> str:
    """Corruption and attack, for example "Shuffling", "Shuffling + Fake loss", or "Shuffling + ALIE by 10 %".

    The last has malicious clients that are a set of their own, with that share of the clients.
    """
    by = "" if attack_fraction is None else f" by {percent(attack_fraction)}"
    parts = [] if kind == "none" else [_capital(short(kind))]
    parts += [] if attack == "none" else [ATTACKS.get(attack, _capital(short(attack))) + by]
    return join(" + ".join(parts) or "Attack", format_values(values))


def format_number(value: float) -> str:
    """For example "0.1", "1e+06" or "1000001"."""
    return f"{value:g}" if float(f"{value:g}") == value else f"{value:.12g}"


def percent(fraction: float) -> str:
    """For example "30 %"."""
    return f"{100 * fraction:.3g} %"


def count(number: int, noun: str) -> str:
    """For example "1 run" or "15 runs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """For example "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def format_values(values: SweptValues) -> str:
    """For example "client.epochs=5, data.partition=iid"."""
    is_list = lambda key, value: key in KINDS and not isinstance(value, str)
    text = lambda key, value: " + ".join(value or ()) or "none" if is_list(key, value) else str(value)
    return ", ".join(f"{key}={text(key, value)}" for key, value in values)


def file_part(text: str) -> str:
    """The text as a part of a file's name."""
    return re.sub(r"[^\w.=-]+", "-", text)
