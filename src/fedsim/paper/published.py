"""What the paper's Table 2 says: test accuracy after the last round, mean and standard deviation over five seeds."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

AGGREGATORS = {"mkrum": "multi_krum"}  # the table's word -> ours
CORRUPTIONS = {"clean": "none"}


@dataclass(frozen=True)
class Published:
    """A cell of Table 2, under our names."""

    dataset: str  # cifar10, femnist or shakespeare
    aggregator: str
    corruption: str
    fraction: float  # of the clients
    mean: float  # percent
    std: float  # percentage points, over five seeds


@cache
def cells() -> tuple[Published, ...]:
    """All 105 cells, from published.csv."""
    text = files("fedsim.paper").joinpath("published.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        Published(
            row["dataset"],
            AGGREGATORS.get(row["aggregator"], row["aggregator"]),
            CORRUPTIONS.get(row["corruption"], row["corruption"]),
            float(row["fraction"]),
            float(row["accuracy_mean"]),
            float(row["accuracy_std"]),
        )
        for row in csv.DictReader(lines)
    )


def cell(dataset: str, aggregator: str, corruption: str, fraction: float) -> Published | None:
    """The cell of Table 2 with these names, or None."""
    wanted = (dataset, aggregator, corruption, round(fraction, 6))
    return next((c for c in cells() if (c.dataset, c.aggregator, c.corruption, c.fraction) == wanted), None)
