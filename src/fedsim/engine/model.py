"""The model of a configuration as a task: its shapes and outputs for a data set, cached as long as it exists."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import part
from fedsim.config.schema import Config
from fedsim.config.sections import Role
from fedsim.core import require
from fedsim.core.adapters import with_adapters
from fedsim.core.contracts import Task
from fedsim.core.module import as_linen
from fedsim.core.rewriting import for_backend
from fedsim.core.task import AUGMENTATIONS, classification, regression
from fedsim.core.types import FederatedDataset, Variables
from fedsim.engine import factories
from fedsim.errors import ConfigError, expand_user, import_extra, pip_install, reason

Value = TypeVar("Value")


def make_task(config: Config, dataset: FederatedDataset, backend: str | None = None) -> Task:
    """The run's model with its loss; `backend` as in `for_backend`. Raises `ConfigError` if it is no model."""
    task = _plain_task(config, dataset) if config.adapter.rank is None else _adapted_task(config, dataset)
    return for_backend(task, backend)


def _plain_task(config: Config, dataset: FederatedDataset) -> Task:
    model = factories.build(config, "model.name", config.model.name, dataset.spec)
    if isinstance(model, Task):
        for key, value, default in (
            ("client.augmentation", config.client.augmentation, "none"),
            ("engine.precision", config.engine.precision, "float32"),
            ("adapter.rank", config.adapter.rank, None),
        ):
            if value != default:
                raise ConfigError(f"{key}: must be {default!r} for {config.model.name}, a whole Task, got {value!r}")
        return model
    try:
        module = as_linen(model)
    except TypeError as error:
        expected = str(error).removeprefix("module: must be ")
        raise ConfigError(f"model.name: {config.model.name} must return a Task, {expected}") from None
    kind = classification if dataset.num_classes else regression
    dtype = jnp.dtype(config.engine.precision)
    return kind(module, dataset.train.x[0], AUGMENTATIONS[config.client.augmentation], dtype)


def read_base(path: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz or .safetensors file by name. Raises `ConfigError` if there are none."""
    file = expand_user(path)
    try:
        if file.suffix == ".safetensors":
            missing = f"adapter.base: needs the package safetensors; {pip_install('huggingface')} ({{error}})"
            return import_extra("safetensors.numpy", ConfigError, missing).load_file(file)
        with np.load(file) as loaded:
            return dict(loaded)
    except ConfigError:
        raise
    except Exception as error:  # of many types: of safetensors, too
        remedy = "" if file.exists() else "; train the base model first, or copy it there"
        raise ConfigError(f"adapter.base: {path} is no .npz or .safetensors file: {reason(error)}{remedy}") from None


@contextmanager
def model_errors(config: Config) -> Iterator[None]:
    """A context in which errors of the run's flax module become `ConfigError`s with its name."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("module: "):
            raise
        raise ConfigError(f"model.name: {config.model.name}{str(error).removeprefix('module')}") from None


def cached_by_program(*others: Callable[[Config], Hashable]) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Remembers `function(config, dataset, ...)` for each data set, program and value of `others`, of `config`.

    It must depend on keys of the role program and those in `others` only.
    """

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        values: WeakKeyDictionary[FederatedDataset, dict[Hashable, Value]] = WeakKeyDictionary()

        @wraps(function)
        def call(config: Config, dataset: FederatedDataset, *arguments: Hashable) -> Value:
            program = part(config, Role.PROGRAM), factories.plugins([config])
            key = (program, *(other(config) for other in others), *arguments)
            known = values.setdefault(dataset, {})
            if key not in known:
                known[key] = function(config, dataset, *arguments)
            return known[key]

        return call

    return decorate


@cached_by_program()
def _adapted_task(config: Config, dataset: FederatedDataset) -> Task:
    """The run's adapters; cached, since their base is a model that is initialized or read from a file."""
    task, adapter, rank = _plain_task(config, dataset), config.adapter, config.adapter.rank or 0
    base = read_base(adapter.base) if adapter.base else None
    try:
        return with_adapters(task, rank, adapter.alpha or rank, adapter.factors, adapter.whole, base)
    except ValueError as error:
        if not str(error).startswith("adapter."):
            raise  # of the model, which `model_shapes` explains
        raise ConfigError(str(error)) from None


@cached_by_program()
def model_shapes(config: Config, dataset: FederatedDataset) -> Variables:
    """Shapes and dtypes of the run's model. Raises `ConfigError` if the model does not take the data's inputs."""
    try:
        with model_errors(config):
            shapes: Variables = jax.eval_shape(make_task(config, dataset).init, jax.random.key(0))
    except (TypeError, ValueError, ZeroDivisionError) as error:
        shape, dtype = dataset.train.x.shape[1:], dataset.train.x.dtype
        is_for_users = ":" in config.model.name or str(error).startswith("x: ")  # others are of JAX or flax
        reason = f": {error}" if is_for_users else ""
        reason += "; of images, the last number is that of channels" if is_for_users and len(shape) == 3 else ""
        raise ConfigError(
            f"model.name: {config.model.name} does not take {dtype} inputs of shape {shape}{reason}"
        ) from None
    return shapes


@cached_by_program()
def check_targets(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if the model's outputs do not fit the data set's labels: their shape, or their classes."""
    model, model_task = model_shapes(config, dataset), make_task(config, dataset)
    x, y = (jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype) for a in (dataset.train.x, dataset.train.y))
    try:
        with model_errors(config):
            metrics = jax.eval_shape(model_task.metrics, model, x, y, jax.ShapeDtypeStruct((1,), bool))
            for name, pair in metrics.named.items():
                require.pair(pair, f"of metrics.named[{name!r}] (a sum, its divisor)")
                for part in pair:
                    require.shape(part, (), f"the sum and the divisor of metrics.named[{name!r}]")
    except ValueError as error:
        if ":" in config.model.name:
            raise
        raise ConfigError(f"model.name: {config.model.name} does not fit {dataset.name}: {error}") from None
    outputs = None if model_task.num_classes is None else model_task.num_classes()
    if dataset.num_classes and outputs is not None and outputs < dataset.num_classes:
        raise ConfigError(
            f"model.name: {config.model.name} must have at least {dataset.num_classes} outputs, one for each class of "
            f"{dataset.name}, got {outputs}; its argument spec has the number of classes"
        )


def num_params(config: Config, dataset: FederatedDataset) -> int:
    """Number of parameters of the run's model. Raises `ConfigError` as `model_shapes` does."""
    return sum(leaf.size for leaf in jax.tree.leaves(model_shapes(config, dataset).params))
