"""The types of settings: with bounds, as msgspec checks them, and in words."""

import math
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from fedsim.core.settings import MAX_INT, POSITIVE, Bounds

NOUNS = {int: "an integer", float: "a number", str: "text", bool: "true or false"}
SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def to_msgspec(annotation: Any, bounds: Bounds | None = None) -> Any:
    """The annotation as a type for msgspec: `Bounds` as its `Meta`, lists as tuples (hashable), and no arrays."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        bounds = next((note for note in notes if isinstance(note, Bounds)), bounds)
        meta = [note for note in notes if isinstance(note, msgspec.Meta)]
        return Annotated[(inner, *meta)] if meta else to_msgspec(inner, bounds)
    if get_origin(annotation) in (Union, types.UnionType):
        members = [to_msgspec(member, bounds) for member in get_args(annotation) if not _is_array(member)]
        return Union[tuple(members)]  # noqa: UP007
    if get_origin(annotation) is list:
        return tuple[to_msgspec(get_args(annotation)[0], bounds), ...]  # type: ignore[misc]
    if get_origin(annotation) is tuple:
        members = [member if member is ... else to_msgspec(member, bounds) for member in get_args(annotation)]
        return tuple[tuple(members)]  # type: ignore[misc]
    if annotation not in (int, float):
        return annotation
    limits = {} if bounds is None else {name: value for name, value in vars(bounds).items() if value is not None}
    if annotation is int:
        widest = {} if "lt" in limits else {"le": MAX_INT}  # msgspec takes one limit on each side
        widest |= {} if "gt" in limits else {"ge": -MAX_INT - 1}
        rounded = {"ge": math.ceil, "lt": math.ceil, "gt": math.floor, "le": math.floor}
        limits = widest | {name: rounded[name](value) for name, value in limits.items()}
    return Annotated[annotation, msgspec.Meta(**limits)] if limits else annotation


def _is_array(annotation: Any) -> bool:
    """Whether it is `jax.Array`, without importing JAX, which takes a second."""
    return getattr(annotation, "__module__", "") == "jax"


def describe_type(kind: Any) -> str:
    """The values of a type in words, for example "an integer >= 1"."""
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        metas = [note for note in arguments[1:] if isinstance(note, msgspec.Meta)]
        limits = [(SIGNS[name], getattr(meta, name)) for meta in metas for name in SIGNS]
        limits = [(sign, limit) for sign, limit in limits if limit not in (None, MAX_INT, -MAX_INT - 1)]
        bounds = ["> 0" if limit == POSITIVE["ge"] else f"{sign} {limit:g}" for sign, limit in limits]
        descriptions = [meta.description for meta in metas if meta.description]
        return " ".join(filter(None, [describe_type(arguments[0]), " and ".join(bounds), *descriptions]))
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(describe_type(member) for member in arguments if member is not type(None))
    if get_origin(kind) is Literal:
        return " or ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in arguments)
    if get_origin(kind) is tuple:
        return f"a list, each element {describe_type(arguments[0])}"
    return NOUNS.get(kind, str(kind))
