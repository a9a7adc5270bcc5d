"""A published number beside runs: the difference in pooled standard deviations, and a verdict."""

from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from fedsim.config.sections import NonNegativeFloat, PositiveInt
from fedsim.errors import ConfigError

AGREES, NEAR, DIFFERS = "agrees", "near", "differs"
MAX_AGREES, MAX_NEAR = 2.0, 4.0  # pooled standard deviations
MAX_NEAR_POINTS = 2.0


class Published(NamedTuple):
    """A mean over runs that others have made."""

    mean: Annotated[float, Meta(ge=-1e30, le=1e30)]
    std: NonNegativeFloat | None  # sample standard deviation over the runs; None: not known, as of a single run
    num_runs: PositiveInt | None = None  # None: as many as are compared with it
    rounding: NonNegativeFloat = 0.0  # half a unit of the mean's last digit

    @classmethod
    def parse(cls, reference: Any) -> "Published":
        """From the `reference` of a claim, with numbers of Python or NumPy. Raises `ConfigError` for anything else."""
        try:
            return msgspec.convert([n.item() if isinstance(n, np.generic) else n for n in reference], cls)
        except (TypeError, msgspec.ValidationError) as error:
            form = "(mean, standard deviation, number of runs, rounding), the second and third None if not known"
            raise ConfigError(f"reference: must be {form}, got {reference!r}") from error

    def __str__(self) -> str:
        """For example "93.20 ± 0.21"."""
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


class Comparison(NamedTuple):
    """A published number beside runs."""

    difference: str
    """Measured minus published, for example "-0.36 points, -1.4 sd"; without sd where none is known, or all are 0."""
    verdict: str
    """Agrees: within 2 pooled standard deviations; near: within 4, or within 2 points; else differs."""


def compare_published(values: np.ndarray, published: Published, unit: str) -> Comparison:
    """Compares `values` [P] of runs, by the variances that are known, weighted by their numbers of runs less one.

    Without any standard deviation nothing agrees: the points alone decide. The distance is that from the nearest number
    that is published so when rounded. If a value is not finite, its run has diverged, and nothing can agree.
    """
    if not np.isfinite(values).all():
        return Comparison("diverged", DIFFERS)
    ours, num_runs = mean_of_runs(values), published.num_runs or len(values)
    known = [(len(values) - 1, ours.std)] if ours.std is not None else []
    known += [(max(num_runs - 1, 1), published.std)] if published.std is not None else []
    weights, stds = np.asarray(known, float).reshape(-1, 2).T
    pooled = float(np.sqrt(np.average(stds**2, weights=weights))) if known else None
    difference = ours.mean - published.mean
    distance = abs(difference) - published.rounding - 1e-9
    is_within = lambda number: pooled is not None and distance <= number * pooled
    is_near = is_within(MAX_NEAR) or (unit == "points" and distance <= MAX_NEAR_POINTS)
    in_std = f", {difference / pooled:+.1f} sd" if pooled else ""
    verdict = AGREES if is_within(MAX_AGREES) else NEAR if is_near else DIFFERS
    return Comparison(f"{difference:+.2f} {unit}".strip() + in_std, verdict)


def mean_of_runs(values: np.ndarray) -> Published:
    """The mean of `values` [P], and their standard deviation if there are several."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Published(float(values.mean()), std, len(values))
