"""Errors that users can fix. The command line prints them as one line, without a traceback."""

import importlib
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOAD_ERRORS = (
    OSError, ValueError, EOFError, AttributeError, TypeError, SyntaxError, NotImplementedError,
    MemoryError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What NumPy raises for a broken .npy or .npz file."""

MAX_REASON = 200  # characters


class FedsimError(Exception):
    """Base class. The message is one line, `KEY: must be ..., got VALUE; remedy` where a key is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


@contextmanager
def python_options() -> Iterator[None]:
    """In the block, errors name arguments of `fedsim.run` in place of the command's options: force=True for --force."""
    argument = lambda match: match[0] if not match[1] else "out" if match[1] == "out" else f"{match[1]}=True"
    try:
        yield
    except FedsimError as error:
        message = re.sub("`.*?`|--(out|force|allow-mismatch)", argument, str(error))
        error.args = (message.replace("allow-mismatch=", "allow_mismatch="),)
        raise


def reason(error: Exception) -> str:
    """The start of an error's message; of one of the system, such as "Permission denied", without its number."""
    system = error.strerror if isinstance(error, OSError) else None
    return (system or (str(error).strip().splitlines() or [type(error).__name__])[0])[:MAX_REASON]


def describe_os_error(error: OSError) -> str:
    """The file and what the system says of it, such as "runs/a: Read-only file system"."""
    return f"{error.filename}: {reason(error)}" if error.filename else reason(error)


class ConfigError(FedsimError):
    """A configuration that cannot be run."""


class DataError(FedsimError):
    """Data that cannot be used."""


class RunFolderError(FedsimError):
    """A run folder that cannot be read or written."""


def expand_user(path: str) -> Path:
    """The path, with the home folder in place of `~`. Raises `ConfigError` if there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: no such home folder; write the whole path, or ~/ for your own") from None


def pip_install(extra: str) -> str:
    """The command that adds what an extra needs. `fedsim` alone is another project's distribution."""
    return f"pip install 'fedsim-jax[{extra}]'"


def import_extra(module: str, kind: type[FedsimError], message: str) -> Any:
    """Imports a module that only some features need; if it is missing, raises `message`, with the {error} in it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise kind(message.format(error=error)) from None
