"""Statements of the paper, with what is published beside what is measured."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

NOT_RUN = "not run"
Evidence = TypeVar("Evidence")  # what a statement is checked on


@dataclass(frozen=True)
class Claim:
    """A statement, and whether the run folder bears it out."""

    text: str  # the statement, with the number that decides
    published: str  # what the paper gives: a number, or where it says so
    measured: str
    holds: bool | None  # None: not run, or nothing to decide

    @property
    def was_run(self) -> bool:
        """Whether the run folder has the cells that the statement is about."""
        return self.measured != NOT_RUN

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.was_run:
            return "not run"
        if self.holds is None:
            return "-"
        return "holds" if self.holds else "fails"


class Measured(NamedTuple):
    """What came out, and whether it bears out the statement."""

    text: str
    holds: Any  # a bool, NumPy's too; None: nothing to decide


@dataclass(frozen=True)
class Statement(Generic[Evidence]):
    """A statement of the paper, and how it is checked."""

    text: str
    published: str
    measure: Callable[[Evidence], Measured | None]  # None: the run folder lacks what is needed

    def check(self, evidence: Evidence | None) -> Claim:
        """The claim on `evidence`; None: there is none."""
        measured = None if evidence is None else self.measure(evidence)
        if measured is None:
            return Claim(self.text, self.published, NOT_RUN, None)
        return Claim(self.text, self.published, measured.text, None if measured.holds is None else bool(measured.holds))


def check_all(statements: Iterable[Statement[Evidence]], evidence: Evidence | None) -> list[Claim]:
    """The claims of all `statements` on the same evidence."""
    return [statement.check(evidence) for statement in statements]


def count(claims: Iterable[Claim]) -> str:
    """For example "3 of 4 claims hold"; those that were not run are named apart."""
    claims = list(claims)
    decided = [claim for claim in claims if claim.holds is not None]
    num_missing = sum(not claim.was_run for claim in claims)
    text = f"{sum(bool(claim.holds) for claim in decided)} of {len(decided)} claims hold"
    return f"{text}, {num_missing} not run" if num_missing else text
