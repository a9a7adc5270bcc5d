"""Settings of a run folder by configuration, and their accuracies and weights by seed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsim.paper.client_history import ClientHistory, read_history
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.report.statistics import mean

NUM_LAST = 5  # evaluations


def find_settings(results: Results, values: dict[str, Any]) -> list[Setting]:
    """The settings whose runs have these values by dotted key."""
    return [setting for setting in results.settings if values.items() <= config(results, setting).items()]


def find_setting(results: Results, values: dict[str, Any]) -> Setting | None:
    """The first of `find_settings`, or None."""
    return next(iter(find_settings(results, values)), None)


def settings_by_value(results: Results, key: str, values: dict[str, Any]) -> dict[Any, Setting]:
    """For each value of `key`, in ascending order, the first setting of `find_settings`."""
    settings: dict[Any, Setting] = {}
    for setting in find_settings(results, values):
        if key in config(results, setting):
            settings.setdefault(config(results, setting)[key], setting)
    return dict(sorted(settings.items()))


def settings_by_lam(results: Results) -> dict[float, Setting]:
    """ARFL's settings by lambda in units of M, in ascending order."""
    settings = settings_by_value(results, "arfl.lam", {"server.aggregator": "arfl"})
    return {float(lam): setting for lam, setting in settings.items()}


def read_histories(results: Results, setting: Setting) -> list[ClientHistory]:
    """The client histories of a setting's runs, without those that have none."""
    histories = (read_history(results, run) for run in setting.runs)
    return [history for history in histories if history is not None]


def config(results: Results, setting: Setting) -> dict[str, Any]:
    """The configuration of a setting's first run, by dotted key; its runs differ only in the seed."""
    return results.runs[setting.runs[0]]


def final_accuracy(setting: Setting) -> float:
    """Mean test accuracy after the last round, in percent; NaN if no seed has a number."""
    return to_percent(mean(setting.accuracy[:, -1]))


def by_seed(setting: Setting, values: np.ndarray) -> dict[int, float]:
    """The `values` [S] of a setting's runs by seed."""
    return dict(zip(setting.seeds, values, strict=True))


def final_accuracies(setting: Setting) -> dict[int, float]:
    """Test accuracy after the last round by seed, in percent."""
    return by_seed(setting, 100 * setting.accuracy[:, -1])


def late_accuracies(setting: Setting) -> dict[int, float]:
    """Mean test accuracy over the last five evaluations by seed, in percent."""
    return by_seed(setting, 100 * setting.accuracy[:, -NUM_LAST:].mean(axis=1))


def paired_differences(left: Mapping[int, float], right: Mapping[int, float]) -> np.ndarray | None:
    """`left` minus `right`, by seed, over the common seeds; None if there are none."""
    common = [seed for seed in left if seed in right]
    return np.asarray([left[seed] - right[seed] for seed in common]) if common else None


def accuracy_differences(left: Setting, right: Setting) -> np.ndarray | None:
    """Differences of the final accuracies in percentage points, by common seed; None if there are none."""
    return paired_differences(final_accuracies(left), final_accuracies(right))


def late_corrupted_weight(setting: Setting) -> float:
    """The corrupted clients' share of the weight in the second half of the rounds, in percent; mean over seeds."""
    return to_percent(mean(late_corrupted_weights(setting)))


def late_corrupted_weights(setting: Setting) -> np.ndarray:
    """The same by seed [S], from 0 to 1; NaN where a seed has no number."""
    second_half = setting.rounds > setting.rounds[-1] / 2
    means = [mean(weights) for weights in setting.corrupted_weight[:, second_half]]
    return np.asarray([np.nan if value is None else value for value in means])


def to_percent(share: float | None) -> float:
    """Percentage; NaN for None."""
    return float(np.nan) if share is None else 100 * share
