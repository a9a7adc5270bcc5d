"""The paper's Table 2: test accuracy after the last round, mean and standard deviation over five seeds."""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class PublishedAccuracy(NamedTuple):
    """An entry of Table 2."""

    mean: float
    """In percent."""
    std: float
    """In percentage points, over five seeds."""


@cache
def published_settings() -> dict[tuple[str, str, str, float], PublishedAccuracy]:
    """All 105 entries of published.csv by data set, aggregator, corruption and share of corrupted clients."""
    text = files("fedsim.paper").joinpath("published.csv").read_text(encoding="utf-8")
    entries = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        key = row["dataset"], row["aggregator"], row["corruption"], float(row["fraction"])
        entries[key] = PublishedAccuracy(float(row["accuracy_mean"]), float(row["accuracy_std"]))
    return entries


def published_setting(dataset: str, aggregator: str, corruption: str, fraction: float) -> PublishedAccuracy | None:
    """The entry of Table 2 with these names of fedsim, or None."""
    return published_settings().get((dataset, aggregator, corruption, round(fraction, 6)))
