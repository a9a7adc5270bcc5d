"""Annotations of a factory's settings: bounds, and whether a sweep over one compiles once.

A factory is a function that builds a rule, an attack, a model and so on. Its annotated keyword parameters are its
settings, and the keys of its section in a configuration:

    def my_rule(*, tau: Annotated[Scalar, Traced(gt=0), "clipping radius"] = 1.0) -> Aggregator: ...

A rule's setting that counts clients may have a `Limit`, the largest count that a cohort allows. A setting that another
one switches on has `OnlyIf`, so that users who set it in vain are warned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fedsim.core.types import Scalar


POSITIVE = {"ge": 1e-30, "le": 1e30}  # as float32 neither 0 nor infinite
MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class Bounds:
    """Bounds of a numeric setting."""

    ge: float | None = None
    """At least this."""
    gt: float | None = None
    """More than this."""
    le: float | None = None
    """At most this."""
    lt: float | None = None
    """Less than this."""


@dataclass(frozen=True)
class Traced(Bounds):
    """Marks a number that does not shape the program: it is data, and a sweep over it compiles once."""


@dataclass(frozen=True)
class OnlyIf:
    """Marks a setting that has an effect only if the factory's setting `name` has this `value`, or another one if
    `is_negated`.

    For a key of every configuration, `name` is another key or a property of a run.
    """

    name: str
    """The other setting."""
    value: Any = True
    """Its value."""
    reason: str = ""
    """Why there is no effect with another value, with a remedy after a colon."""
    is_error: bool = False
    """Whether it is an error to set the key without effect."""
    is_negated: bool = False
    """Whether all values but `value` give it an effect."""


@dataclass(frozen=True)
class Limit:
    """The largest value of a setting that counts clients, in a cohort of K; 0 is always allowed.

    >>> Limit("2 f < K", lambda k: (k - 1) // 2).check("num_byzantine", 5, num_rows=10)
    Traceback (most recent call last):
    ...
    ValueError: num_byzantine: must be at most 4 for a cohort of 10 (2 f < K), got 5
    """

    condition: str
    """For messages, such as "2 f < K"."""
    largest: Callable[[Any], Any]
    """`(K) -> largest value`, for an integer or a traced array K; a negative value means 0."""
    is_required: bool = True
    """Whether a larger value is refused; otherwise the rule runs, but its authors guarantee nothing."""
    of: Literal["cohort", "clients"] = "cohort"
    """Whether K counts the clients of a cohort, or all clients of the data set."""

    def check(self, name: str, value: "Scalar | None", num_rows: int, rows: str = "") -> None:
        """Raises `ValueError` if `value` exceeds the limit for K = `num_rows`; None and traced values pass.

        Messages call the setting `name` and the K rows `rows` ("a cohort of K" or "K clients" by default).
        """
        import jax

        largest = max(self.largest(num_rows), 0)
        if value is None or isinstance(value, jax.core.Tracer) or float(value) <= largest:
            return
        rows = rows or (f"a cohort of {num_rows}" if self.of == "cohort" else f"{num_rows} clients")
        verb, remark = ("must", "") if self.is_required else ("should", "; the authors guarantee nothing beyond")
        raise ValueError(f"{name}: {verb} be at most {largest} for {rows} ({self.condition}), got {value:g}{remark}")
