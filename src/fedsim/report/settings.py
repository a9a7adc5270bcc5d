"""Settings: the runs that differ only in their split and their seed, with what was measured in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fedsim.report.final import LAST, Final
from fedsim.report.names import SweptValues
from fedsim.report.statistics import means_by_split
from fedsim.report.swept_values import Role

PERCENTILES = ("accuracy_p10", "accuracy_p50", "accuracy_p90")


class Threat(NamedTuple):
    """What corrupted and malicious clients do, whatever the share of the corrupted ones."""

    corruption: str
    attack: str
    attack_fraction: float | None = None
    """As in `Scenario`."""
    values: SweptValues = ()


class Scenario(NamedTuple):
    """Corruption and attack, and what varies of the data: a column of a table."""

    corruption: str
    """Kind of the corruption; "none" with a fraction above 0: an attack with clean data."""
    fraction: float
    """Share of the clients that is corrupted."""
    attack: str = "none"
    attack_fraction: float | None = None
    """Share of the clients that is malicious; None: the corrupted ones are, if there is an attack."""
    threat_values: SweptValues = ()
    """Swept values of the corruption and the attack."""
    data_values: SweptValues = ()
    """Swept values of the data and their partition."""

    @property
    def is_clean(self) -> bool:
        """Whether no client is corrupted or malicious."""
        return self.corruption == "none" and not self.fraction and self.attack_fraction is None

    @property
    def threat(self) -> Threat:
        """Corruption and attack without the share of corrupted clients."""
        return Threat(self.corruption, self.attack, self.attack_fraction, self.threat_values)

    @property
    def share(self) -> float:
        """Share of the clients that is corrupted or, if none is, malicious."""
        return self.fraction or self.attack_fraction or 0.0

    @property
    def threat_kind(self) -> Threat:
        """Corruption and attack without `share`."""
        return self.threat if self.fraction else self.threat._replace(attack_fraction=None)


class DataScenario(NamedTuple):
    """A scenario of a data set: a panel of a figure."""

    data: str
    scenario: Scenario

    def without(self, key: str) -> "DataScenario":
        """The scenario without the value of a swept key."""
        drop = lambda values: tuple(value for value in values if value[0] != key)
        threat, data = drop(self.scenario.threat_values), drop(self.scenario.data_values)
        return self._replace(scenario=self.scenario._replace(threat_values=threat, data_values=data))


@dataclass(frozen=True)
class SettingKey:
    """What distinguishes a setting from others."""

    data: str
    """Name of the data set."""
    aggregator: str
    corruption: str
    fraction: float
    attack: str
    attack_fraction: float | None
    """None: the corrupted clients attack, if any."""
    lam: float | None
    """None: the rule has no parameter of this name."""
    swept_values: SweptValues
    """All other keys that vary, with their values."""


@dataclass(frozen=True)
class Setting(SettingKey):
    """Runs that differ only in their split and their seed. Two settings are equal if their configurations are.

    Shapes: S runs, T evaluations. Measurements are NaN where rows have null.
    """

    splits: tuple[int, ...] = field(compare=False)
    """[S] `data.seed`, which draws the test split and the partition."""
    seeds: tuple[int, ...] = field(compare=False)
    """[S]"""
    runs: tuple[int, ...] = field(compare=False)
    """Positions [S] in `Results.runs`."""
    rounds: np.ndarray = field(compare=False)
    """[T]"""
    accuracy: np.ndarray = field(compare=False)
    """[S, T] from 0 to 1."""
    loss: np.ndarray = field(compare=False)
    """[S, T]"""
    validation_accuracy: np.ndarray = field(compare=False)
    """[S, T] from 0 to 1."""
    validation_loss: np.ndarray = field(compare=False)
    """[S, T]"""
    corrupted_weight: np.ndarray = field(compare=False)
    """[S, T] share of the weight that corrupted clients got since the evaluation before."""
    byzantine_excess: np.ndarray = field(compare=False)
    """[S, T] share of the rounds since the evaluation before with more corrupted clients than the rule's f."""
    backdoor_success: np.ndarray = field(compare=False)
    """[S, T] from 0 to 1."""
    accuracy_p10: np.ndarray = field(compare=False)
    """[S, T] percentile of the accuracy over clients, as are the next two."""
    accuracy_p50: np.ndarray = field(compare=False)
    accuracy_p90: np.ndarray = field(compare=False)
    diverged: np.ndarray = field(compare=False)
    """[S, T] bool."""
    roles: dict[str, Role] = field(compare=False)
    """Of the swept keys, by `swept_values.roles`."""
    final: Final = field(default=LAST, compare=False)
    """Which evaluations tables and figures show."""
    chosen: SweptValues = field(default=(), compare=False)
    """The values by which the setting was chosen among others."""

    @property
    def scenario(self) -> Scenario:
        """Corruption, attack, and what varies of the data."""
        values = self.values_of("threat"), self.values_of("data")
        return Scenario(self.corruption, self.fraction, self.attack, self.attack_fraction, *values)

    @property
    def data_scenario(self) -> DataScenario:
        """The scenario and its data set."""
        return DataScenario(self.data, self.scenario)

    def values_of(self, *roles: Role) -> SweptValues:
        """The swept values of these roles."""
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
    def draws(self) -> tuple[tuple[int, int], ...]:
        """Split and seed [S] of each run: runs of other settings with the same ones can be compared with it."""
        return tuple(zip(self.splits, self.seeds, strict=True))

    @property
    def has_diverged(self) -> np.ndarray:
        """Whether each run's test loss is not finite at the end or where its number is taken, [S]."""
        is_infinite = self.diverged & ~np.isfinite(self.loss)
        return is_infinite[:, -1] | np.take_along_axis(is_infinite, self.final_evaluations, axis=1).any(axis=1)

    @property
    def was_skipped(self) -> np.ndarray:
        """Whether in each other run no client had a weight since the evaluation before the last, [S]."""
        return self.diverged[:, -1] & ~self.has_diverged

    @property
    def num_diverged(self) -> int:
        """Runs that have diverged."""
        return int(self.has_diverged.sum())

    @property
    def num_skipped(self) -> int:
        """Runs that were skipped at the end, so that nothing changed."""
        return int(self.was_skipped.sum())

    @property
    def num_splits(self) -> int:
        """The number of different splits."""
        return len(set(self.splits))

    @property
    def _measured(self) -> dict[str, np.ndarray]:
        """The measurements [S, T] by the names of their fields."""
        return {name: a for name, a in vars(self).items() if isinstance(a, np.ndarray) and name != "rounds"}

    def select(self, positions: Sequence[int]) -> "Setting":
        """The setting with the runs at `positions` among its runs only."""
        measured: dict[str, Any] = {name: values[list(positions)] for name, values in self._measured.items()}
        pick = lambda values: tuple(values[position] for position in positions)
        return replace(self, splits=pick(self.splits), seeds=pick(self.seeds), runs=pick(self.runs), **measured)

    def mean_by_split(self) -> "Setting":
        """The setting with the mean over the seeds of each split in place of its runs; itself with one split."""
        return self if self.num_splits == 1 else self.per_split()

    def per_split(self) -> "Setting":
        """The setting with the mean over the seeds of each split in place of its runs, also with one split."""
        means: dict[str, Any] = {name: means_by_split(values, self.splits) for name, values in self._measured.items()}
        means["diverged"] = means["diverged"] > 0  # where any of the runs has
        return replace(self.select([self.splits.index(split) for split in dict.fromkeys(self.splits)]), **means)

    @property
    def final_evaluations(self) -> np.ndarray:
        """Positions [S, E] of the evaluations whose mean is shown; of equally good ones the first."""
        num_runs, num_evaluations = self.loss.shape
        if self.final.kind == "best":
            better = self.validation_accuracy if np.isfinite(self.accuracy).any() else -self.validation_loss
            return np.argmax(np.where(np.isnan(better), -np.inf, better), axis=1)[:, None]
        shown = np.arange(num_evaluations - self.final.number, num_evaluations)
        return np.broadcast_to(shown, (num_runs, self.final.number))

    @property
    def mean_byzantine_excess(self) -> float | None:
        """Share of all rounds in which more of a cohort were corrupted than f; None: the rule has no f."""
        shares = self.byzantine_excess[:, 1:].mean(axis=0)
        is_known = len(shares) > 0 and np.isfinite(shares).all()
        return float(np.average(shares, weights=np.diff(self.rounds))) if is_known else None


def data_sets(settings: Iterable[Setting]) -> list[str]:
    """The data sets of the settings, in the order of their first appearance."""
    return list(dict.fromkeys(setting.data for setting in settings))


def scenarios(settings: Sequence[Setting]) -> list[Scenario]:
    """Clean ones first, then by first appearance of the threat, then by fraction, then by that of the data's values."""
    threats = list(dict.fromkeys(setting.scenario.threat for setting in settings))
    data = list(dict.fromkeys(setting.scenario.data_values for setting in settings))
    order = lambda s: (not s.is_clean, threats.index(s.threat), s.fraction, data.index(s.data_values))
    return sorted({setting.scenario for setting in settings}, key=order)


def data_scenarios(settings: Sequence[Setting]) -> list[DataScenario]:
    """The scenarios of each data set."""
    present = {setting.data_scenario for setting in settings}
    every = [DataScenario(data, scenario) for data in data_sets(settings) for scenario in scenarios(settings)]
    return [data_scenario for data_scenario in every if data_scenario in present]
