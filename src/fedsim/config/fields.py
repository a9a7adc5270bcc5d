"""A key of a configuration, written `section.name`: the fixed ones, and those that a factory's annotations give."""

import inspect
import json
import types
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import jax
import msgspec

from fedsim.config.registry import BUILT_IN, Factory
from fedsim.config.schema import Config
from fedsim.core.settings import Bounds, Traced
from fedsim.errors import ConfigError


@dataclass(frozen=True)
class Field:
    """A key of the configuration."""

    name: str  # dotted
    type: Any  # as msgspec checks it
    default: Any
    meaning: str
    is_traced: bool  # a number here is data: runs that differ in it share a program

    @property
    def section(self) -> str:
        """The part before the last dot."""
        return self.name.rpartition(".")[0]

    @property
    def choices(self) -> str:
        """What a key with a `Literal` type may be, for messages."""
        kind = get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type
        words = [f'"{v}"' for t in (kind, *get_args(kind)) if get_origin(t) is Literal for v in get_args(t)]
        return " or ".join(words if get_origin(kind) is Literal else ["a number", *words])


def _fixed_fields(cls: type = Config, prefix: str = "") -> dict[str, Field]:
    """The keys that are there whatever is named."""
    found: dict[str, Field] = {}
    hints, annotated = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    default = cls()
    for f in fields(cls):
        name = prefix + f.name
        if is_dataclass(hints[f.name]):
            found |= _fixed_fields(hints[f.name], f"{f.name}.")
        elif name != "settings":
            found[name] = _field(name, annotated[f.name], getattr(default, f.name))
    return found


def _field(name: str, annotation: Any, default: Any) -> Field:
    notes = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    meaning = next((note for note in reversed(notes) if isinstance(note, str)), "")
    if name in BUILT_IN:
        meaning += f" ({', '.join(BUILT_IN[name])}; or your own, as file.py:factory)"
    is_traced = any(isinstance(note, Traced) or note is Traced for note in notes)
    return Field(name, _checked(annotation), default, meaning, is_traced)


def _checked(annotation: Any, bounds: Bounds | None = None) -> Any:
    """The type as msgspec checks it: `Bounds` hold for the numbers in it, and an array is no value of a file."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        bounds = next((note for note in notes if isinstance(note, Bounds)), bounds)
        meta = [note for note in notes if isinstance(note, msgspec.Meta)]
        plain = _checked(inner, bounds)
        return Annotated[(plain, *meta)] if meta else plain
    if get_origin(annotation) in (Union, types.UnionType):
        members = [_checked(member, bounds) for member in get_args(annotation) if member is not jax.Array]
        return Union[tuple(members)]  # noqa: UP007
    if get_origin(annotation) is tuple:
        members = [member if member is ... else _checked(member, bounds) for member in get_args(annotation)]
        return tuple[tuple(members)]  # type: ignore[misc]
    if annotation in (int, float):
        limits = {} if bounds is None else {k: v for k, v in vars(bounds).items() if v is not None}
        if annotation is int:
            widest = {} if "lt" in limits else {"le": 2**31 - 1}  # msgspec takes one limit a side
            widest |= {} if "gt" in limits else {"ge": -(2**31)}
            limits = widest | {k: int(v) for k, v in limits.items()}
        return Annotated[annotation, msgspec.Meta(**limits)] if limits else annotation
    return annotation


def settings_of(factory: Factory) -> list[Field]:
    """The keys of a factory's section: its annotated parameters that have a default."""
    found = []
    try:
        annotations = get_type_hints(factory.make, include_extras=True)
    except (NameError, TypeError):
        annotations = {}
    for name, parameter in inspect.signature(factory.make).parameters.items():
        if parameter.default is not parameter.empty and get_origin(annotations.get(name)) is Annotated:
            found.append(_field(f"{factory.section}.{name}", annotations[name], parameter.default))
    return found


FIXED = _fixed_fields()


def toml(value: Any) -> str:
    """A string, number, boolean or list in TOML."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise ConfigError(f"{value}: dates and times are no value of any key") from None
