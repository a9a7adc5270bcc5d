"""What a factory says of its settings: bounds, and whether a sweep over one compiles once.

A factory is a function that makes a rule, an attack, a model and so on. Its annotated keyword parameters are its
settings, and the keys of its section in a configuration:

    def my_rule(*, tau: Annotated[Scalar, Traced(gt=0), "clipping radius"] = 1.0) -> Aggregator: ...
"""

from dataclasses import dataclass
from typing import TypeAlias

import jax

Scalar: TypeAlias = jax.Array | float  # a number, or the traced array [] that stands for it in a compiled program


@dataclass(frozen=True)
class Bounds:
    """The numbers that a setting may be: at least `ge`, more than `gt`, at most `le`, less than `lt`."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


@dataclass(frozen=True)
class Traced(Bounds):
    """Marks a number that does not shape the program: it is data, and a sweep over it compiles once."""


POSITIVE = {"ge": 1e-30, "le": 1e30}  # as float32 neither 0 nor infinite
