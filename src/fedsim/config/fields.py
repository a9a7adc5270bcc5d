"""The keys of a configuration, `section.name`: the fixed ones, and the settings that factories declare."""

import inspect
import types
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fedsim.config.kinds import KINDS
from fedsim.config.registry import Factory
from fedsim.config.schema import ONLY_IF, Config
from fedsim.config.sections import Role
from fedsim.config.values import format_toml
from fedsim.core.setting_types import NOUNS, to_msgspec
from fedsim.core.settings import Bounds, Limit, OnlyIf, Traced
from fedsim.errors import ConfigError


@dataclass(frozen=True)
class Field:
    """A key of the configuration."""

    name: str
    """The dotted key."""
    type: Any
    """The type that msgspec checks values against."""
    default: Any
    """The value of a run that does not set the key."""
    meaning: str
    """What the key sets, as a phrase."""
    is_traced: bool
    """Whether numbers are inputs of a compiled program, so that runs that differ in them share a program."""
    role: Role
    """What the key reaches."""
    limits: tuple[Limit, ...] = ()
    """Limits of a number of clients, given the size of the cohort."""
    only_if: tuple[OnlyIf, ...] = ()
    """Values of other keys, or properties of the run, without which this one has no effect."""

    @property
    def section(self) -> str:
        """The part before the last dot."""
        return self.name.rpartition(".")[0]


def _fixed_fields(values: Any, prefix: str = "", role: Role | None = None) -> dict[str, Field]:
    """The keys of a section, with their `values` by default."""
    result: dict[str, Field] = {}
    for name, annotation in get_type_hints(type(values), include_extras=True).items():
        default = getattr(values, name)
        if is_dataclass(default):
            result |= _fixed_fields(default, f"{name}.", get_args(annotation)[1])
        elif name != "settings":
            result[prefix + name] = _make_field(prefix + name, annotation, default, role)
    return result


def _make_field(name: str, annotation: Any, default: Any, role: Role | None, is_built_in_trace: bool = True) -> Field:
    notes = (*(annotation.__metadata__ if get_origin(annotation) is Annotated else ()), *ONLY_IF.get(name, ()))
    meaning = next((note for note in reversed(notes) if isinstance(note, str)), "")
    if name in KINDS:
        meaning += f" ({', '.join(KINDS[name].built_in)}, or a plug-in as file.py:function)"
    limits = tuple(note for note in notes if isinstance(note, Limit))
    meaning += "".join(f"; {limit.condition}" for limit in limits if limit.is_required)
    is_traced = is_built_in_trace and any(isinstance(note, Traced) or note is Traced for note in notes)
    section = name.rpartition(".")[0]
    only_if = tuple(note if note.reason else _with_reason(note, section) for note in notes if isinstance(note, OnlyIf))
    meaning += f"; no effect if {' or '.join(note.reason.partition(':')[0] for note in only_if)}" if only_if else ""
    role = next((note for note in notes if isinstance(note, Role)), role)
    assert role is not None, f"{name} has no role"
    return Field(name, to_msgspec(annotation), default, meaning, is_traced, role, limits, only_if)


def _with_reason(only_if: OnlyIf, section: str) -> OnlyIf:
    """The condition on another setting of the section, with its key."""
    name, value = f"{section}.{only_if.name}", format_toml(only_if.value)
    return replace(only_if, name=name, reason=f"{name} is {value if only_if.is_negated else f'not {value}'}")


def _is_plain(annotation: Any) -> bool:
    """Whether values of the type can be written in a configuration, and compared."""
    if get_origin(annotation) is Annotated:
        return _is_plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType, tuple):
        return all(_is_plain(member) for member in get_args(annotation))
    return get_origin(annotation) is Literal or annotation in (*NOUNS, type(None), ...)


@cache
def settings_of(factory: Factory) -> tuple[Field, ...]:
    """The settings of a factory: its annotated parameters that have a default."""
    result = []
    parameters = inspect.signature(factory.make).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    try:
        function = getattr(factory.make, "func", factory.make)  # of a `functools.partial`
        function = function.__init__ if inspect.isclass(function) else function
        annotations = get_type_hints(inspect.unwrap(function), include_extras=True) if defaults else {}
    except (NameError, TypeError) as error:
        raise ConfigError(f"{factory.key}: {factory.name}: its annotations cannot be read: {error}") from None
    for name, default in defaults.items():
        if get_origin(annotations.get(name)) is Annotated:
            key = f"{factory.section}.{name}"
            if not key.isascii():
                raise ConfigError(f"{factory.key}: {key}: must be ASCII, since it is a key of TOML files; rename it")
            default = tuple(default) if isinstance(default, list) else default
            is_built_in_trace = KINDS[factory.key].is_traced
            try:
                field = _make_field(key, annotations[name], default, FIXED[factory.key].role, is_built_in_trace)
            except ValueError as error:  # bounds that exclude each other
                raise ConfigError(f"{factory.key}: {key}: {error}") from None
            if not _is_plain(field.type):
                raise ConfigError(
                    f"{factory.key}: {key}: must be a number, text, bool, Literal, or a tuple of them, "
                    f"got {annotations[name].__origin__}; change its annotation"
                )
            if bare := next((note for note in annotations[name].__metadata__ if note in (Bounds, Limit, OnlyIf)), None):
                raise ConfigError(f"{factory.key}: {key}: {bare.__name__} must have arguments, such as Bounds(ge=0)")
            result.append(field)
            conditions = (note for note in annotations[name].__metadata__ if isinstance(note, OnlyIf))
            others = (condition.name for condition in conditions if not condition.reason)
            if unknown := next((other for other in others if other not in defaults), ""):
                raise ConfigError(f"{factory.key}: {key}: its OnlyIf must name another setting, got {unknown}")
    return tuple(result)


FIXED = _fixed_fields(Config())
assert ONLY_IF.keys() <= FIXED.keys()
DEFAULTS = {name: field.default for name, field in FIXED.items()}
