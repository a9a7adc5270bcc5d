"""The margin by which a statement holds, over the seeds of one split, or over splits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.report.statistics import MIN_UNITS, half_width, no_test


@dataclass(frozen=True)
class Margin:
    """A number for each seed, positive where the statement holds, or for each seed whether it holds."""

    values: tuple[float, ...]
    """[S] numbers or bools; infinite if the run compared with has diverged, NaN if it has no number."""
    unit: str = ""
    over: str = "seed"
    """What the values are of: "seed", or "split", each with the mean of its seeds."""
    num_mixed: int = 0
    """Splits of which some seeds hold and others do not."""

    @classmethod
    def from_values(cls, values: Any, unit: str = "") -> "Margin":
        """Margin from a scalar or from values [S]."""
        return cls(tuple(np.atleast_1d(np.asarray(values)).tolist()), unit)

    def over_splits(self, splits: Sequence[int]) -> "Margin":
        """The margin with a value for each of the different `splits` [S]: the mean, or whether it holds for all seeds.

        A split in which runs have diverged has the smallest value of its seeds.
        """
        of_splits: dict[int, list[float]] = {}
        for split, value in zip(splits, self.values, strict=True):
            of_splits.setdefault(split, []).append(value)
        if self.is_boolean:
            num_mixed = sum(len(set(values)) > 1 for values in of_splits.values())
            return Margin(tuple(map(all, of_splits.values())), self.unit, "split", num_mixed)
        known = [[value for value in values if not np.isnan(value)] for values in of_splits.values()]
        summarize = lambda values: np.mean(values) if np.isfinite(values).all() else min(values)
        return Margin(tuple(float(summarize(values or [np.nan])) for values in known), self.unit, "split")

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are not NaN."""
        return tuple(value for value in self.values if not np.isnan(value))

    @property
    def num_seeds(self) -> int:
        """The number of seeds, or of splits, with a value."""
        return len(self.known)

    @property
    def is_preliminary(self) -> bool:
        """Whether there are too few seeds, or splits, for a useful interval."""
        return self.num_seeds < MIN_UNITS

    @property
    def is_boolean(self) -> bool:
        """Whether the values are bools."""
        return all(isinstance(value, bool) for value in self.values)

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.known))

    @property
    def half_width(self) -> float | None:
        """Half of the mean's 95 % t-interval; None: too few seeds, bools, or values that are not finite."""
        has_interval = not self.is_boolean and not self.is_preliminary and np.isfinite(self.known).all()
        return half_width(np.asarray(self.known)) if has_interval else None

    @property
    def holds(self) -> bool | None:
        """Whether the whole interval agrees, or every value if there is no interval; None: neither holds nor fails."""
        if self.half_width is not None:
            low, high = self.mean - self.half_width, self.mean + self.half_width
            return True if low >= 0 else False if high < 0 else None
        each = [value is True if self.is_boolean else value >= 0 for value in self.known]
        return True if all(each) else None if any(each) or self.num_mixed else False

    @property
    def text(self) -> str:
        """For example "+22.66 ± 3.10 points", of two seeds "+22.66 (+20.10, +25.22) points", or "4 of 5 seeds"."""
        if self.is_boolean:
            partly = f", {self.num_mixed} in part" if self.num_mixed else ""
            return f"{sum(self.known):g} of {self.num_seeds} {self.over}{'' if self.num_seeds == 1 else 's'}{partly}"
        digits = ".1e" if 0 < abs(self.mean) < 0.01 else ".2f"
        number, spread = f"{self.mean:+{digits}}", "" if self.half_width is None else f" ± {self.half_width:{digits}}"
        if not self.is_preliminary and no_test(np.asarray(self.known)):
            spread = f" (all {self.num_seeds} are equal)"
        if self.num_seeds == 2:
            spread = f" ({', '.join(f'{value:+{digits}}' for value in self.known)})"
        return f"{number}{spread} {self.unit}".rstrip()
