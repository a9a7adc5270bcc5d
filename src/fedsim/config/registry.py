"""From the name of a component to its factory: a built-in one, or a plug-in from a user's file or module."""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fedsim.config.kinds import KINDS, NAMES
from fedsim.errors import ConfigError, FedsimError

_imported: dict[Path, str] = {}  # digests of plug-in modules that were imported by their dotted names

SIMILAR = 0.65  # share of equal characters of a suggestion: one or two typing errors


@dataclass(frozen=True)
class Factory:
    """The factory of a component."""

    key: str
    """The key under which the component is named, such as `server.aggregator`."""
    name: str
    """The name as it is written there."""
    section: str
    """The section of its settings (`section_of`)."""
    make: Callable[..., Any]
    """The function itself."""
    file: Path | None = None
    """The file of a plug-in; None for a built-in factory."""
    digest: str | None = None
    """Digest of the plug-in's file as it was imported."""


@cache
def find(key: str, name: str) -> Factory:
    """The factory that `name` stands for under `key`. Raises `ConfigError` if there is none.

    A plug-in's file is not read again until `components.forget_plugins`, so a run ends with the code it began with.
    """
    if ":" in name:
        return find_plugin(key, name)
    module, _, function = lookup(key, name, KINDS[key].built_in).partition(":")
    return Factory(key, name, section_of(key, name), getattr(importlib.import_module(module), function))


def split_names(key: str, value: str) -> list[str]:
    """The components that a value under `key` names: several corruptions as "shuffling+noisy", of all others one."""
    return value.split("+") if key == "corruption.kind" else [value]


def section_of(key: str, name: str) -> str:
    """The section of a component's settings: the built-in name with its kind's prefix, or a plug-in's function name."""
    return name.rpartition(":")[2] if ":" in name else f"{KINDS[key].prefix}{name}"


def find_plugin(key: str, name: str) -> Factory:
    """The function `name`, "file.py:function" or "module:function", as its file is now. Raises `ConfigError`."""
    location, _, function = name.rpartition(":")
    module = _import_plugin(key, location)
    make = getattr(module, function, None)
    if not callable(make):
        functions = [other for other, value in vars(module).items() if callable(value) and not other.startswith("_")]
        remedy = did_you_mean(nearest(function, functions))
        remedy = remedy if make is None else f", but a value of this name: {type(make).__name__}; write `def` around it"
        raise ConfigError(f"{key}: {location} has no function {function}{remedy}")
    try:
        inspect.signature(make)
        has_source = inspect.isroutine(make) or inspect.isclass(make)
        source = inspect.getsourcefile(inspect.unwrap(make)) if has_source else None
        file = Path(source or module.__file__ or "")
        content = file.read_bytes()
    except (TypeError, ValueError, AttributeError, OSError):  # a function of C, or of Python's own frozen modules
        raise ConfigError(f"{key}: {name}: must be a function or class that is written in Python") from None
    if location.endswith(".py"):  # the module's name ends in the digest of the code that was executed
        return Factory(key, name, section_of(key, name), make, file, module.__name__.rpartition("_")[2])
    digest = _digest(content)
    if _imported.setdefault(file, digest) != digest:
        raise ConfigError(f"{key}: {file} has changed since it was imported; restart Python")
    return Factory(key, name, section_of(key, name), make, file, digest)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def built_in_factories() -> list[Factory]:
    """All built-in factories."""
    return [find(key, name) for key, kind in KINDS.items() for name in kind.built_in]


def resolve_path(name: str, folder: Path) -> str:
    """The name of a plug-in whose file is in `folder` but not in the working directory, with its path; others as is."""
    location, colon, function = name.rpartition(":")
    path = Path(location)
    if not colon or path.suffix != ".py" or path.exists() or not (folder / path).exists():
        return name
    return f"{folder / path}:{function}"


def _import_plugin(key: str, location: str) -> ModuleType:
    """Imports a file, or a module by its dotted name; it, and what it imports, may be in the working directory."""
    try:
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        if not location.endswith(".py"):
            return importlib.import_module(location)
        path = Path(location).absolute()
        if not path.is_file():
            raise ConfigError(f"{key}: {location}: no such file")
        name = f"fedsim_file_{path.stem}_{_digest(str(path).encode())}_{_digest(path.read_bytes())}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None, path
            assert spec.loader is not None, path
            sys.modules[name] = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(sys.modules[name])
            except BaseException:
                del sys.modules[name]
                raise
        return sys.modules[name]
    except FedsimError:
        raise
    except Exception as error:  # anything that a plug-in's module may raise on import
        raise ConfigError(f"{key}: {location} cannot be imported: {type(error).__name__}: {error}") from None


def nearest(name: str, names: Iterable[str], similarity: float = SIMILAR) -> str | None:
    """The most similar of `names`, first of those that end in this; None if none is similar.

    Capitals and dashes in front of options do not count.
    """
    wanted, bare = name.lstrip("-").lower(), {other.lstrip("-").lower(): other for other in names}
    if wanted in bare:
        return bare[wanted]
    longer = [other for other in bare if other.endswith(f"_{wanted}")] if similarity <= SIMILAR else []
    matches = difflib.get_close_matches(wanted, longer or bare, 1, 0.0 if longer else similarity)
    return bare[matches[0]] if matches else None


def did_you_mean(name: str | None) -> str:
    """The remedy of a message about an unknown name."""
    return f"; did you mean {name}?" if name else ""


def lookup(key: str, name: str, table: Mapping[str, Any]) -> Any:
    """`table[name]`. Raises `ConfigError` with the nearest name, or all names, if there is none."""
    if name in table:
        return table[name]
    synonym = NAMES.get(name.lower().replace("-", "_").replace(" ", "_"))
    match = synonym if synonym in table else nearest(name, table)
    names = f"one of {', '.join(table)}" if table else "left out, since this configuration defines none"
    expected = "a known name" if match else f'{names} or a plug-in "file.py:function"' if key in KINDS else names
    raise ConfigError(f'{key}: must be {expected}, got "{name}"{did_you_mean(match)}')
