"""The evaluations of a run whose mean tables and figures show."""

from dataclasses import dataclass
from typing import Literal

from fedsim.errors import ConfigError


@dataclass(frozen=True)
class Final:
    """The last evaluation, the mean of the last `number`, or the one of the best validation value."""

    kind: Literal["last", "mean", "best"] = "last"
    number: int = 1

    def __str__(self) -> str:
        """The command line's form."""
        return f"mean:{self.number}" if self.kind == "mean" else self.kind


LAST = Final()


def parse(text: str | Final) -> Final:
    """Parses "last", "mean:N" or "best". Raises `ConfigError` for anything else."""
    if isinstance(text, Final):
        return text
    kind, _, number = str(text).partition(":")
    if text in ("last", "best"):
        return Final("last" if text == "last" else "best")
    if kind == "mean" and number.isdecimal() and int(number) > 0:
        return Final("mean", int(number))
    raise ConfigError(f"--final: must be last, best or mean:N, such as mean:5, got {text}")
