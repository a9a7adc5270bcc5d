"""The cells of an experiment: runs that differ in their seed alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fedsim.report.final import LAST, Final
from fedsim.report.names import scenario_name
from fedsim.report.settings import Run, Settings
from fedsim.runs.folder import RunFolder

PERCENTILES = ("accuracy_p10", "accuracy_p50", "accuracy_p90")


class Scenario(NamedTuple):
    """What is wrong with the clients: a column of a table."""

    corruption: str  # its kind; "none" with a fraction above 0: an attack with clean data
    fraction: float  # of the clients that is corrupted
    attack: str = "none"  # its kind


class Place(NamedTuple):
    """A scenario of a data set: a panel of a figure."""

    data: str
    scenario: Scenario


@dataclass(frozen=True)
class Setup:
    """What the runs of a cell have in common."""

    data: str  # name of the data set
    aggregator: str
    corruption: str
    fraction: float
    attack: str
    lam: float | None  # None: the rule has no setting of this name
    settings: Settings  # whatever else varies, (key, value)

    @property
    def scenario(self) -> Scenario:
        """What is wrong with the clients."""
        return Scenario(self.corruption, self.fraction, self.attack)

    @property
    def place(self) -> Place:
        """The scenario and its data set."""
        return Place(self.data, self.scenario)


@dataclass(frozen=True, eq=False)
class Cell(Setup):
    """Runs that differ in their seed alone. Arrays: S runs, T evaluations. Equal, also as a key, by its `Setup`."""

    seeds: tuple[int, ...]  # [S]
    runs: tuple[int, ...]  # [S] positions in `Results.runs`
    rounds: np.ndarray  # [T]
    accuracy: np.ndarray  # [S, T] 0 to 1, NaN where null
    loss: np.ndarray  # [S, T] NaN where null
    validation_accuracy: np.ndarray  # [S, T] NaN where null
    validation_loss: np.ndarray  # [S, T] NaN where null
    corrupted_weight: np.ndarray  # [S, T], NaN where null
    above_f: np.ndarray  # [S, T] share of the rounds before with more corrupted clients than f, NaN where null
    backdoor_success: np.ndarray  # [S, T] 0 to 1, NaN where there is no backdoor
    percentiles: np.ndarray  # [3, S, T] of the accuracy over clients, NaN where null
    diverged: np.ndarray  # [S, T] bool
    final: Final = LAST  # what of a run is shown
    chosen: Settings = ()  # by which it was chosen among others

    @property
    def num_diverged(self) -> int:
        """Runs that are diverged at the end."""
        return int(self.diverged[:, -1].sum())

    @property
    def final_evaluations(self) -> np.ndarray:
        """Positions [S, E] of the evaluations whose mean is shown; of equally good ones the first."""
        num_runs, number = self.loss.shape
        if self.final.kind == "best":
            better = self.validation_accuracy if np.isfinite(self.accuracy).any() else -self.validation_loss
            return np.argmax(np.where(np.isnan(better), -np.inf, better), axis=1)[:, None]
        return np.broadcast_to(np.arange(number - self.final.number, number), (num_runs, self.final.number))

    @property
    def share_above_f(self) -> float | None:
        """The share of all rounds in which more of a cohort were corrupted than f; None: the rule takes none."""
        shares = self.above_f[:, 1:].mean(axis=0)
        is_known = len(shares) > 0 and np.isfinite(shares).all()
        return float(np.average(shares, weights=np.diff(self.rounds))) if is_known else None


@dataclass(frozen=True)
class Choice:
    """What was chosen for a rule."""

    cell: Cell  # the first that it is for
    where: Scenario | float  # the scenario, or the share of corrupted clients, whatever the attack
    values: Settings
    num_values: int  # that there were
    test: float  # what the test set shows, of the worst scenario
    best_test: float  # what it would show if it had been chosen by
    optimism: float  # how much better that is

    @property
    def place(self) -> str:
        """For example "20 %" or "ALIE 20 %"."""
        return f"{100 * self.where:.3g} %" if isinstance(self.where, float) else scenario_name(self.where)


@dataclass(frozen=True)
class Chosen:
    """All that was chosen, and how."""

    keys: tuple[str, ...]
    by: str  # "validation" or "test"
    per: str  # "cell" or "worst"
    choices: tuple[Choice, ...]

    @property
    def sentence(self) -> str:
        """For a caption."""
        on = "validation data" if self.by == "validation" else "the test set itself, which flatters"
        per = "one value for the worst attack at each share" if self.per == "worst" else "each scenario by itself"
        return f"{', '.join(self.keys)}: chosen on {on}, {per}."


@dataclass(frozen=True)
class Results:
    """Run folders, read."""

    folders: tuple[RunFolder, ...]
    manifests: tuple[dict[str, Any], ...]
    runs: tuple[Run, ...]  # the configuration of each run by dotted key
    sources: tuple[tuple[int, int], ...]  # of each run: the position of its folder, and its own in that
    cells: list[Cell]
    clients: pa.Table  # clients.parquet of all folders; `run` is a position in `runs`
    num_repeated: int  # runs that were left out, because a folder before had them
    chosen: Chosen | None = None  # None: all cells are there
    incomplete: tuple[str, ...] = ()  # a sentence for each folder that is not complete

    @property
    def manifest(self) -> dict[str, Any]:
        """The first folder's."""
        return self.manifests[0]


def is_clean(scenario: Scenario) -> bool:
    """Whether nobody is corrupted."""
    return scenario.corruption == "none" and not scenario.fraction


def data_sets(cells: Iterable[Setup]) -> list[str]:
    """The data sets of the cells, as they come."""
    return list(dict.fromkeys(cell.data for cell in cells))


def scenarios(cells: Sequence[Setup]) -> list[Scenario]:
    """The scenarios of the cells: clean first, then as they come, by fraction."""
    kinds = list(dict.fromkeys((cell.corruption, cell.attack) for cell in cells))
    kind = lambda scenario: kinds.index((scenario.corruption, scenario.attack))
    order = lambda scenario: (not is_clean(scenario), kind(scenario), scenario.fraction)
    return sorted({cell.scenario for cell in cells}, key=order)


def places(cells: Sequence[Setup]) -> list[Place]:
    """The places of the cells: by data set, then by scenario."""
    different = {cell.place for cell in cells}
    every = [Place(data, scenario) for data in data_sets(cells) for scenario in scenarios(cells)]
    return [place for place in every if place in different]
