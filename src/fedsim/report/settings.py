"""Settings: the runs that differ only in their split and their seed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from fedsim.report.keys import Role, Run, data_set, setting_keys, swept_values
from fedsim.report.names import SweptValues
from fedsim.runs.sweep import lam_key

# What distinguishes a setting from others: the first fields of `Setting`.
SettingKey = tuple[str, str, str, float, str, float | None, float | None, SweptValues]


class Threat(NamedTuple):
    """What corrupted and malicious clients do, whatever the share of the corrupted ones."""

    corruption: str  # "none" with a fraction above 0: an attack with clean data
    attack: str = "none"
    attack_fraction: float | None = None
    """Share of the clients that is malicious; None: the corrupted ones are, if there is an attack."""
    values: SweptValues = ()


class Scenario(NamedTuple):
    """Threat and data: a column of a table, a panel of a figure."""

    threat: Threat
    fraction: float  # share of the clients that is corrupted
    data_values: SweptValues = ()
    data: str = ""

    @property
    def is_clean(self) -> bool:
        return not self.share

    @property
    def share(self) -> float:
        """Share of the clients that is corrupted or, if none is, malicious."""
        return self.fraction or self.threat.attack_fraction or 0.0

    @property
    def threat_kind(self) -> Threat:
        """The threat without `share`."""
        return self.threat if self.fraction else self.threat._replace(attack_fraction=None)

    def without(self, key: str) -> "Scenario":
        """The scenario without the value of a swept key."""
        drop = lambda values: tuple(value for value in values if value[0] != key)
        threat = self.threat._replace(values=drop(self.threat.values))
        return self._replace(threat=threat, data_values=drop(self.data_values))


@dataclass(frozen=True)
class Setting:
    """Runs that differ only in their split and their seed. Two settings are equal if their configurations are."""

    data: str
    aggregator: str
    corruption: str
    fraction: float
    attack: str
    attack_fraction: float | None  # as in `Threat`
    lam: float | None  # None: the rule has no parameter of this name
    swept_values: SweptValues  # all other keys that vary
    position: int = field(compare=False)
    """In the column "setting" of `Results.table`."""
    draws: tuple[tuple[int, int], ...] = field(compare=False)
    """Split (`data.seed`) and seed of each run: those of other settings with the same ones can be compared with it."""
    runs: tuple[int, ...] = field(compare=False)  # positions in `Results.runs`
    rounds: tuple[int, ...] = field(compare=False)  # after which its runs were evaluated
    roles: dict[str, Role] = field(compare=False)  # of all keys: `keys.setting_keys`
    chosen: SweptValues = field(default=(), compare=False)
    """The values by which the setting was chosen among others."""

    @cached_property
    def scenario(self) -> Scenario:
        threat = Threat(self.corruption, self.attack, self.attack_fraction, self.values_of("threat"))
        return Scenario(threat, self.fraction, self.values_of("data"), self.data)

    def values_of(self, *roles: Role) -> SweptValues:
        return tuple(value for value in self.swept_values if self.roles[value[0]] in roles)

    @property
    def row_values(self) -> SweptValues:
        """The swept values that name a rule in tables: all but those of the scenario."""
        return self.values_of("rule", "pre-aggregator", "training")

    @property
    def shared_values(self) -> SweptValues:
        """The swept values of the training, which other rules have as well."""
        return self.values_of("pre-aggregator", "training")

    @property
    def splits(self) -> list[int]:
        return list(dict.fromkeys(split for split, _ in self.draws))

    def select(self, is_kept: Callable[[tuple[int, int]], bool]) -> "Setting":
        """The setting with the runs whose draw is kept."""
        draws, runs = zip(*(pair for pair in zip(self.draws, self.runs, strict=True) if is_kept(pair[0])), strict=True)
        return replace(self, draws=draws, runs=runs)


def settings_of(runs: Sequence[Run], num_clients: Sequence[int | None]) -> list[Setting]:
    """The settings of the runs, without rounds; `num_clients` of each, None: as configured."""
    roles, members = setting_keys(runs), dict[SettingKey, list[int]]()
    # The share of corrupted clients and the number of all in the first split; splits may differ if clients are listed.
    sizes: dict[tuple[Any, ...], tuple[float, int]] = {}
    for run, (config, values, number) in enumerate(zip(runs, swept_values(runs), num_clients, strict=True)):
        data, lam = data_set(config), config.get(lam_key(config))
        listed, malicious = config["corruption.clients"], config["attack.clients"]
        fraction, num = config["corruption.fraction"], number or config["data.num_clients"]
        swept_data = [value for value in values if roles[value[0]] == "data"]
        of_run = len(listed) / num or fraction, num
        share, total = sizes.setdefault((data, listed, malicious, fraction, *swept_data), of_run)
        malicious_share = len(malicious) / total if malicious else config["attack.fraction"]
        threat = config["corruption.kind"], share, config["attack.kind"], malicious_share
        lam = float(lam) if isinstance(lam, int | float) else None
        members.setdefault((data, config["server.aggregator"], *threat, lam, values), []).append(run)
    draws = [(config["data.seed"], config["seed"]) for config in runs]
    return [
        Setting(*key, position, tuple(map(draws.__getitem__, of)), tuple(of), (), roles)
        for position, (key, of) in enumerate(members.items())
    ]


def rows_of(table: pl.DataFrame, settings: Iterable[Setting]) -> pl.DataFrame:
    """The rows of `Results.table` that belong to the settings."""
    return table.filter(pl.col("setting").is_in([setting.position for setting in settings]))


def data_sets(settings: Iterable[Setting]) -> list[str]:
    """The data sets of the settings, in the order of their first appearance."""
    return list(dict.fromkeys(setting.data for setting in settings))


def scenarios(settings: Sequence[Setting]) -> list[Scenario]:
    """By data set, clean ones first, by first appearance of the threat, by fraction, by that of the data's values."""
    first = lambda values: list(dict.fromkeys(values))
    different = first(setting.scenario for setting in settings)
    data, threats = first(s.data for s in different), first(s.threat for s in different)
    values = first(s.data_values for s in different)
    place = lambda s: (data.index(s.data), not s.is_clean, threats.index(s.threat), s.fraction)
    return sorted(different, key=lambda s: (*place(s), values.index(s.data_values)))
