"""Annotations of a factory's settings: bounds, and whether a sweep over one compiles once.

A factory is a function that builds a rule, an attack, a model and so on. Its annotated keyword parameters are its
settings, and the keys of its section in a configuration:

    def my_rule(*, tau: Annotated[Scalar, Traced(gt=0), "clipping radius"] = 1.0) -> Aggregator: ...

A rule's setting that counts clients may have a `Limit`, the largest count that a cohort allows. A setting that another
one switches on has `OnlyIf`, so that users who set it in vain are warned.
"""

import inspect
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from fedsim.core.types import Scalar


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
    """Marks a setting that has an effect only if the factory's setting `name` has this `value`."""

    name: str
    """The other setting."""
    value: Any
    """Its value."""


@dataclass(frozen=True)
class Limit:
    """The largest value of a rule's setting that counts clients, in a cohort of K; 0 is always allowed.

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

        Messages call the setting `name` and the K rows `rows` ("a cohort of K" by default).
        """
        import jax

        largest = max(self.largest(num_rows), 0)
        if value is None or isinstance(value, jax.core.Tracer) or float(value) <= largest:
            return
        rows = rows or f"a cohort of {num_rows}"
        verb, remark = ("must", "") if self.is_required else ("should", "; the authors guarantee nothing beyond")
        raise ValueError(f"{name}: {verb} be at most {largest} for {rows} ({self.condition}), got {value:g}{remark}")


POSITIVE = {"ge": 1e-30, "le": 1e30}  # as float32 neither 0 nor infinite
MAX_INT = 2**31 - 1
SIGNS = {"ge": (">=", operator.ge), "gt": (">", operator.gt), "le": ("<=", operator.le), "lt": ("<", operator.lt)}


@dataclass(frozen=True)
class Built:
    """What built a component; the attribute `built` of a rule's `aggregate`, and of a pre-aggregator."""

    component: Any
    make: Callable[..., Any]
    settings: dict[str, Any]


def check_factories(namespace: dict[str, Any]) -> None:
    """Makes the public factories in a package's `globals()` check their settings, as configurations do.

    A setting that violates its annotation raises `ValueError`. Traced settings pass, and numbers become Python's.
    """
    for name in namespace["__all__"]:
        make = namespace[name]
        if isinstance(make, types.FunctionType):
            parameters = inspect.signature(make).parameters.values()
            if annotations(make) or not any(parameter.default is parameter.empty for parameter in parameters):
                namespace[name] = _checked(make, namespace["__name__"])


def _checked(make: Callable[..., Any], module: str) -> Callable[..., Any]:
    @wraps(make)
    def checked(*arguments: Any, **settings: Any) -> Any:
        kinds = annotations(make)
        settings = {name: _check(name, kinds[name], v) if name in kinds else v for name, v in settings.items()}
        component = make(*arguments, **settings)
        function: Any = getattr(component, "aggregate", component)
        if isinstance(function, types.FunctionType) and not arguments:
            vars(function)["built"] = Built(component, make, settings)
        return component

    checked.__module__ = module  # where `pickle` looks for it
    return checked


@cache
def annotations(make: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a factory's settings."""
    hints = get_type_hints(make, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}


def _check(name: str, annotation: Any, value: Any) -> Any:
    """`value`, a number as Python's. Raises `ValueError` if it violates the annotation; traced values pass."""
    import jax

    if isinstance(value, jax.core.Tracer):
        return value
    kind, *notes = get_args(annotation)
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
    bounds = next((vars(note) for note in notes if isinstance(note, Bounds)), {})
    limits = {sign: limit for sign, limit in bounds.items() if limit is not None}
    if int in members:
        limits.setdefault("le", MAX_INT)
    result = value.item() if getattr(value, "ndim", None) == 0 else value
    if not isinstance(result, int | float) or isinstance(result, bool):
        is_right = type(result) in members or result in choices
    else:
        result = float(result) if float in members or result % 1 != 0 else int(result)
        is_right = type(result) in members and all(SIGNS[sign][1](result, limit) for sign, limit in limits.items())
    if is_right and result == result:  # not NaN
        return result
    limits = {sign: limit for sign, limit in limits.items() if limit != MAX_INT}
    numbers = [noun for number, noun in ((int, "an integer"), (float, "a number")) if number in members]
    within = " and ".join(
        "> 0" if limit == POSITIVE["ge"] else f"{SIGNS[s][0]} {limit:g}" for s, limit in limits.items()
    )
    words = [f"{noun} {within}".strip() for noun in numbers] + [repr(choice) for choice in choices]
    words += [
        word for member, word in ((bool, "True or False"), (str, "text"), (type(None), "None")) if member in members
    ]
    raise ValueError(f"{name}: must be {' or '.join(words)}, got {value!r}".replace("\n", " "))
