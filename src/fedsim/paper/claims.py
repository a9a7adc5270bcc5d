"""A statement of the paper with what is published beside what is measured."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A statement, and whether the run folder bears it out."""

    text: str  # what is said, with the number that decides
    published: str  # what the paper gives: a number, or where it says so
    measured: str
    holds: bool | None  # None: not run, or nothing to decide

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.holds is None:
            return "not run" if self.measured == NOT_RUN else "-"
        return "holds" if self.holds else "fails"


NOT_RUN = "not run"


def claim(text: str, published: str, measured: str, holds: Any) -> Claim:
    """A claim that was run; `holds` may be NumPy's bool."""
    return Claim(text, published, measured, None if holds is None else bool(holds))


def not_run(text: str, published: str) -> Claim:
    """A claim whose cells the run folder does not have."""
    return Claim(text, published, NOT_RUN, None)


def count(claims: Iterable[Claim]) -> str:
    """For example "3 of 4 claims hold"; those that were not run are named apart."""
    claims = list(claims)
    decided = [claim for claim in claims if claim.holds is not None]
    missing = sum(claim.measured == NOT_RUN for claim in claims)
    text = f"{sum(bool(claim.holds) for claim in decided)} of {len(decided)} claims hold"
    return text + f", {missing} not run" * bool(missing)
