"""The paper's Table 2: test accuracy after the last round, mean and standard deviation over five seeds."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

AGGREGATORS = {"mkrum": "multi_krum"}  # names in the table -> fedsim's
CORRUPTIONS = {"clean": "none"}


@dataclass(frozen=True)
class PublishedAccuracy:
    """An entry of Table 2, with fedsim's names."""

    dataset: str
    """One of cifar10, femnist and shakespeare."""
    aggregator: str
    corruption: str
    fraction: float
    """Share of corrupted clients."""
    mean: float
    """In percent."""
    std: float
    """In percentage points, over five seeds."""


@cache
def published_settings() -> tuple[PublishedAccuracy, ...]:
    """All 105 entries of published.csv."""
    text = files("fedsim.paper").joinpath("published.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        PublishedAccuracy(
            row["dataset"],
            AGGREGATORS.get(row["aggregator"], row["aggregator"]),
            CORRUPTIONS.get(row["corruption"], row["corruption"]),
            float(row["fraction"]),
            float(row["accuracy_mean"]),
            float(row["accuracy_std"]),
        )
        for row in csv.DictReader(lines)
    )


def published_setting(dataset: str, aggregator: str, corruption: str, fraction: float) -> PublishedAccuracy | None:
    """The entry of Table 2 with these names, or None."""
    names = (dataset, aggregator, corruption, round(fraction, 6))
    return next((c for c in published_settings() if (c.dataset, c.aggregator, c.corruption, c.fraction) == names), None)
