"""Public factories in Python: their settings are checked as in configurations, and what they build knows them."""

import inspect
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fedsim.core.settings import MAX_INT, Limit, Traced


@dataclass(frozen=True)
class Built:
    """What built a component; the attribute `built` of a rule's `aggregate`, and of a pre-aggregator."""

    make: Callable[..., Any]
    fixed: dict[str, Any]
    """Settings that shape a program."""
    traced: dict[str, Any]
    """The others: `Traced` ones, except integers and those with a `Limit`, which are checked in a trace."""
    others: tuple[Any, ...]
    """The other functions of the rule; if some are not those, `_replace` has changed it. The attribute's own function
    is left out, since a cycle is freed late."""

    @staticmethod
    def of(component: Any) -> "Built | None":
        """What built this rule or pre-aggregator; None for a plug-in."""
        function = getattr(component, "aggregate", component)
        built = getattr(function, "built", None)
        return built if isinstance(built, Built) and built.others == _others(component, function) else None


def _others(component: Any, function: Any) -> tuple[Any, ...]:
    return tuple(other for other in component if other is not function) if isinstance(component, tuple) else ()


def check_factories(namespace: dict[str, Any]) -> None:
    """Makes the public factories in a package's `globals()` check their settings, as configurations do.

    A setting that violates its annotation raises `ValueError`. Traced settings pass, and numbers become Python's.
    """
    for name, make in list(namespace.items()):
        if isinstance(make, types.FunctionType):
            parameters = inspect.signature(make).parameters.values()
            if _annotations(make) or not any(parameter.default is parameter.empty for parameter in parameters):
                namespace[name] = _checked(make, namespace["__name__"], name)


def _checked(make: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
    @wraps(make)
    def checked(*arguments: Any, **settings: Any) -> Any:
        kinds = _annotations(make)
        settings = {name: _check(name, kinds[name], v) if name in kinds else v for name, v in settings.items()}
        component = make(*arguments, **settings)
        function: Any = getattr(component, "aggregate", component)
        if isinstance(function, types.FunctionType) and not arguments:
            traced = {name: v for name, v in settings.items() if _is_traced(kinds.get(name), v)}
            fixed = {name: v for name, v in settings.items() if name not in traced}
            vars(function)["built"] = Built(make, fixed, traced, _others(component, function))
        return component

    checked.__module__, checked.__qualname__ = module, name  # where `pickle` looks for it
    return checked


@cache
def _annotations(make: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(make, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}


def _is_traced(annotation: Any, value: Any) -> bool:
    import jax

    has = lambda kind: any(isinstance(note, kind) for note in get_args(annotation))
    return isinstance(value, jax.core.Tracer) or (isinstance(value, float) and has(Traced) and not has(Limit))


def _check(name: str, annotation: Any, value: Any) -> Any:
    """`value`, a number as Python's. Raises `ValueError` if it violates the annotation; traced values pass."""
    import jax
    import msgspec

    from fedsim.core.setting_types import describe_type, to_msgspec

    if isinstance(value, jax.core.Tracer):
        return value
    kind, number = to_msgspec(annotation), value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(number, float) and number.is_integer() and abs(number) <= MAX_INT:
        number = int(number)
    try:
        result = msgspec.convert(number, kind)
    except msgspec.ValidationError:
        result = math.nan
    if result != result:
        raise ValueError(f"{name}: must be {describe_type(kind)}, got {number!r}".replace("\n", " "))
    return result
