"""The metrics that are recorded at each evaluation, and how they are shown and compared."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.report.settings import PERCENTILES, Setting, data_sets
from fedsim.report.statistics import mean, split_means


@dataclass(frozen=True)
class Metric:
    """A number of each run at each evaluation. Shapes: S runs, T evaluations."""

    name: str
    """The field of `Setting`; also in the names of files."""
    title: str
    higher_is_better: bool = True
    is_percentage: bool = True
    """Whether it is recorded as 0 to 1 and shown in percent."""

    @property
    def column(self) -> str:
        """The column of rounds.parquet."""
        return f"test_{self.name}" if self.name in ("accuracy", "loss") else self.name

    @property
    def scale(self) -> float:
        """Factor from what is recorded to what is shown."""
        return 100.0 if self.is_percentage else 1.0

    @property
    def digits(self) -> int:
        """Decimals that are shown."""
        return 2 if self.is_percentage else 4

    @property
    def unit(self) -> str:
        """What follows the title."""
        return " (%)" if self.is_percentage else ""

    @property
    def label(self) -> str:
        """Title and unit."""
        return self.title + self.unit

    def recorded(self, setting: Setting) -> np.ndarray:
        """Values [S, T] as they were recorded."""
        values: np.ndarray = getattr(setting, self.name)
        return values

    def validation(self, setting: Setting) -> np.ndarray:
        """Values [S, T] as they were recorded on validation data."""
        values: np.ndarray = getattr(setting, f"validation_{self.name}")
        return values

    def final_recorded(self, setting: Setting) -> np.ndarray:
        """The value of each run that is shown, [S], as it was recorded."""
        return _final(self.recorded(setting), setting)

    def final(self, setting: Setting) -> np.ndarray:
        """The value of each run that is shown, [S], in the unit that is shown."""
        return _final(self.scale * self.recorded(setting), setting)

    def final_validation(self, setting: Setting) -> np.ndarray:
        """The same evaluations, [S], on validation data."""
        return _final(self.scale * self.validation(setting), setting)

    def final_by_split(self, setting: Setting) -> np.ndarray:
        """`final` by split [P], or by seed with one split: the units of means, deviations and intervals."""
        return split_means(self.final(setting), setting.splits)

    def final_mean(self, setting: Setting) -> float:
        """Mean of `final_by_split`; NaN if all runs have diverged."""
        value = mean(self.final_by_split(setting))
        return math.nan if value is None else value

    def score(self, setting: Setting) -> float:
        """`final_mean` with the sign that makes higher better; -inf if a run has diverged, so that this never wins."""
        value = self.final_mean(setting)
        return -math.inf if math.isnan(value) or setting.num_diverged else self.sign * value

    def badness(self, setting: Setting) -> tuple[int, float]:
        """Higher is worse, under an attack: the number of runs that have diverged, then the mean."""
        value = self.final_mean(setting)
        return setting.num_diverged, math.inf if math.isnan(value) else -self.sign * value

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.higher_is_better else -1

    def best(self, values: Iterable[float]) -> float:
        """The best of `values`; 0 of none."""
        return (max if self.higher_is_better else min)(values, default=0.0)


def _final(values: np.ndarray, setting: Setting) -> np.ndarray:
    shown: np.ndarray = np.take_along_axis(values, setting.final_evaluations, axis=1).mean(axis=1)
    return shown


ACCURACY = Metric("accuracy", "Test accuracy")
LOSS = Metric("loss", "Test loss", higher_is_better=False, is_percentage=False)
BACKDOOR = Metric("backdoor_success", "Backdoor success", higher_is_better=False)
METRICS = (
    ACCURACY,
    LOSS,
    Metric("validation_accuracy", "Validation accuracy"),
    Metric("validation_loss", "Validation loss", higher_is_better=False, is_percentage=False),
    Metric("corrupted_weight", "Weight of corrupted clients", higher_is_better=False),
    Metric("byzantine_excess", "Rounds with more corrupted clients than f", higher_is_better=False),
    BACKDOOR,
    *map(
        Metric,
        PERCENTILES,
        ("Accuracy, 10th percentile of clients", "Accuracy, median client", "Accuracy, 90th percentile of clients"),
    ),
)


def metrics_by_data(settings: Sequence[Setting]) -> dict[str, Metric]:
    """By data set: the test accuracy, or the test loss if no run has an accuracy, as in a regression."""
    with_accuracy = {setting.data for setting in settings if np.isfinite(setting.accuracy).any()}
    return {data: ACCURACY if data in with_accuracy else LOSS for data in data_sets(settings)}


def with_backdoor(settings: Iterable[Setting]) -> list[Setting]:
    """The settings that have a backdoor."""
    return [setting for setting in settings if np.isfinite(setting.backdoor_success).any()]


def with_metric(metric: Metric, settings: Sequence[Setting]) -> list[Setting]:
    """The settings on data sets that are compared by this metric."""
    metric_of = metrics_by_data(settings)
    return [setting for setting in settings if metric_of[setting.data] == metric]
