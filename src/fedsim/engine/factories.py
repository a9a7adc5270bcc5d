"""Builds what configurations name for a run, on the host or inside a trace; errors of plug-ins get their names."""

import traceback
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import jax
import optax

from fedsim.config.components import factories, settings_for, traced_settings
from fedsim.config.registry import Factory, find, split_names
from fedsim.config.schema import Config
from fedsim.core.contracts import Aggregator, Algorithm, Attack, PreAggregator
from fedsim.core.corrupt import Corruption
from fedsim.core.require import type_name
from fedsim.core.types import HParams
from fedsim.errors import ConfigError, FedsimError, describe_os_error, expand_user

MAX_MESSAGE_LENGTH = 300
TRACED = "a number that is traced, as Traced settings and reports are;"
LEAVE_OUT = "or leave Traced out of the setting's annotation"
TRACER_MESSAGES = {
    jax.errors.TracerBoolConversionError: f"`if` or `while` on {TRACED} use jnp.where, {LEAVE_OUT}",
    jax.errors.TracerArrayConversionError: f"NumPy on {TRACED} use jax.numpy",
    jax.errors.NonConcreteBooleanIndexError: f"a mask as an index of {TRACED} use jnp.where",
    jax.errors.TracerIntegerConversionError: f"an index or `range` from {TRACED} use jax.numpy, {LEAVE_OUT}",
    jax.errors.ConcretizationTypeError: f"`int`, `float` or a shape from {TRACED} use jax.numpy, {LEAVE_OUT}",
}
CONTRACTS: dict[str, tuple[Any, str]] = {
    "data.name": (object, ""),
    "data.partition": (object, ""),
    "corruption.kind": (Corruption, "check_corruption"),
    "attack.kind": (Attack, "check_attack"),
    "model.name": (object, "check_task"),
    "client.algorithm": (Algorithm, "check_algorithm"),
    "client.optimizer": (optax.GradientTransformation, ""),
    "client.schedule": (object, ""),
    "server.aggregator": (Aggregator, "check_aggregator"),
    "server.weighting": (Aggregator, "check_aggregator"),
    "server.pre_aggregators": (PreAggregator, "check_pre_aggregator"),
    "server.optimizer": (optax.GradientTransformation, ""),
    "server.schedule": (object, ""),
}
"""What a plug-in must return (object: that is checked where it is used), and its check in `fedsim.testing`."""
MACHINE_ERRORS = (MemoryError, OSError, jax.errors.JaxRuntimeError)  # errors that plug-ins do not cause


def corruptions_of(config: Config) -> tuple[Factory, ...]:
    """The factories that `corruption.kind` names."""
    return tuple(find("corruption.kind", name) for name in split_names("corruption.kind", config.corruption.kind))


def build(config: Config, key: str, name: str, *arguments: Any) -> Any:
    """Calls the factory `name` of `key` with `arguments` and its settings, on the host.

    Raises `ConfigError`, with the key, if the factory raises `ValueError` or a plug-in raises anything.
    """
    factory = find(key, name)
    try:
        return _require_kind(factory, factory.make(*arguments, **settings_for(config, factory)))
    except Exception as error:
        if isinstance(error, ValueError) and factory.file is None:
            raise ConfigError(f"{key}: {name}: {error}") from None
        _raise_as_plugin_error([factory], error)


@contextmanager
def plugin_errors(configs: Iterable[Config]) -> Iterator[None]:
    """A context in which errors caused by plug-ins of `configs` become `ConfigError`s with the plug-in and its line."""
    try:
        yield
    except Exception as error:
        _raise_as_plugin_error((factory for config in configs for factory in factories(config)), error)


def _raise_as_plugin_error(candidates: Iterable[Factory], error: Exception) -> NoReturn:
    """Raises a `ConfigError` that names the plug-in among `candidates` that caused `error`; else `error` itself."""
    if isinstance(error, FedsimError):
        raise error
    plugins = list(dict.fromkeys(factory for factory in candidates if factory.file is not None))
    files = {str(plugin.file): plugin.name.rpartition(":")[0] for plugin in plugins}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if not plugins or (isinstance(error, MACHINE_ERRORS) and not frames):
        raise error
    explained = (text for kind, text in TRACER_MESSAGES.items() if isinstance(error, kind))
    text = next(explained, " ".join(str(error).split()))
    message = (text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}")[
        :MAX_MESSAGE_LENGTH
    ]
    if frames:
        raise ConfigError(f"{files[frames[-1].filename]}, line {frames[-1].lineno}: {message}") from error
    names = ", ".join(f"{plugin.key}: {plugin.name}" for plugin in plugins)
    checks = ", ".join(filter(None, dict.fromkeys(CONTRACTS[plugin.key][1] for plugin in plugins)))
    remedy = f"; fedsim.testing has {checks}" if checks else ""
    raise ConfigError(f"{'one of ' if len(plugins) > 1 else ''}{names} failed: {message}{remedy}") from error


def _require_kind(factory: Factory, component: Any) -> Any:
    """The component. Raises `ConfigError` if a plug-in has returned one of another kind."""
    expected, _ = CONTRACTS[factory.key]
    if factory.file is not None and not isinstance(component, expected):
        got = type(component).__name__
        raise ConfigError(f"{factory.key}: {factory.name} must return {type_name(expected)}, got {got}")
    return component


def build_traced(config: Config, key: str, name: str, hparams: HParams, *arguments: Any) -> Any:
    """As `build`, inside a trace, where traced settings are those of `hparams`; errors stay as they are."""
    factory = find(key, name)
    settings, traced = settings_for(config, factory), traced_settings(config)
    keys = {setting: f"{factory.section}.{setting}" for setting in settings}
    numbers = {setting: hparams.settings[full] for setting, full in keys.items() if full in traced}
    return _require_kind(factory, factory.make(*arguments, **settings | numbers))


def plugins(configs: Iterable[Config]) -> frozenset[Factory]:
    """All plug-ins that `configs` name; equal if their code is."""
    return frozenset(factory for config in configs for factory in factories(config) if factory.file is not None)


def plugin_files(configs: Collection[Config]) -> dict[str, str]:
    """{name: digest} of the files of all plug-ins, and of arrays, that `configs` name."""
    digests = {plugin.name: plugin.digest or "" for plugin in sorted(plugins(configs), key=lambda plugin: plugin.name)}
    bases = sorted({config.adapter.base for config in configs} - {""})
    return digests | {base: _base_digest(base) for base in bases}


def model_files(config: Config) -> dict[str, tuple[str, str]]:
    """{key: (name, digest)} of the files that the model is from: its plug-in, and the arrays that it starts with."""
    model, base = find("model.name", config.model.name), config.adapter.base
    files = {"model.name": (model.name, model.digest)} if model.digest else {}
    return files | ({"adapter.base": (base, _base_digest(base))} if base else {})


def _base_digest(path: str) -> str:
    try:
        return f"{zlib.crc32(expand_user(path).read_bytes()):08x}"
    except OSError as error:
        raise ConfigError(f"adapter.base: {describe_os_error(error)}; restore it") from None
