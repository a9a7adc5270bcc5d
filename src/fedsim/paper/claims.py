"""Statements of the paper: the published value, the measured one, and whether the runs support the statement."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedsim.paper.seed_margin import Margin
from fedsim.report.statistics import MIN_UNITS

NOT_RUN = "not run"


@dataclass(frozen=True)
class Claim:
    """A statement with its published and measured values."""

    text: str
    """The statement, including the number that decides."""
    published: str
    """The paper's number, or the section that makes the statement."""
    measured: str
    margin: Margin | None
    """None: not run, or the statement cannot be decided."""

    @property
    def was_run(self) -> bool:
        """Whether the run folder has the settings that the statement is about."""
        return self.measured != NOT_RUN

    @property
    def holds(self) -> bool | None:
        """Whether the statement holds; None: undecided."""
        return None if self.margin is None else self.margin.holds

    @property
    def verdict(self) -> str:
        """For example "holds"; with one or two seeds any verdict is preliminary."""
        if self.margin is None:
            return "-" if self.was_run else NOT_RUN
        word = "open" if self.holds is None else "holds" if self.holds else "fails"
        return f"{word} (preliminary)" if self.margin.is_preliminary else word


class Measurement(NamedTuple):
    """A measured value, and the margin by which the statement holds."""

    text: str
    margin: Any = None
    """[S] numbers or bools by seed, positive or true where the statement holds; None: nothing to decide."""
    unit: str = ""


@dataclass(frozen=True)
class Statement:
    """A statement of the paper with the function that checks it."""

    text: str
    published: str
    measure: Callable[..., Measurement | None]
    """Returns None if the run folder lacks the required settings."""

    def check(self, *evidence: Any) -> Claim:
        """Checks the statement; it counts as not run if any of `evidence` is None."""
        measurement = None if any(each is None for each in evidence) else self.measure(*evidence)
        if measurement is None:
            return Claim(self.text, self.published, NOT_RUN, None)
        margin = None if measurement.margin is None else Margin.from_values(measurement.margin, measurement.unit)
        return Claim(self.text, self.published, measurement.text, margin if margin and margin.num_seeds else None)


def check_all(statements: Iterable[Statement], *evidence: Any) -> list[Claim]:
    """Checks all `statements` on the same evidence."""
    return [statement.check(*evidence) for statement in statements]


def summarize(claims: Iterable[Claim]) -> str:
    """For example "3 of 5 claims hold, 1 open (5 seeds), 1 not run"."""
    claims = list(claims)
    decided = [claim for claim in claims if claim.margin is not None]
    parts = [f"{sum(claim.holds is True for claim in decided)} of {len(decided)} claims hold"]
    if num_open := sum(claim.holds is None for claim in decided):
        parts.append(f"{num_open} open")
    if decided:
        parts[-1] += f" ({_format_seeds(decided)})"
    if num_missing := sum(not claim.was_run for claim in claims):
        parts.append(f"{num_missing} not run")
    return ", ".join(parts)


def _format_seeds(decided: Sequence[Claim]) -> str:
    """For example "5 seeds", "1 to 5 seeds", or "2 seeds: preliminary"."""
    numbers = sorted({claim.margin.num_seeds for claim in decided if claim.margin is not None})
    text = " to ".join(f"{number}" for number in sorted({numbers[0], numbers[-1]}))
    preliminary = ": preliminary" if numbers[-1] < MIN_UNITS else ""
    over = next(claim.margin.over for claim in decided if claim.margin is not None)
    return f"{text} {over}{'' if numbers[-1] == 1 else 's'}{preliminary}"


def first_margin(claims: Iterable[Claim]) -> str:
    """The first numeric margin, for example "+22.66 ± 3.10 points"; empty if there is none."""
    margins = (claim.margin for claim in claims if claim.margin is not None and not claim.margin.is_boolean)
    return next((margin.text for margin in margins), "")
