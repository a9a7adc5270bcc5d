"""Builds objects from configurations: the only place where names become what they name."""

import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.components import factories, settings_for, traced_settings
from fedsim.config.registry import Factory, find
from fedsim.config.schema import Config
from fedsim.core.branches import MethodFamily
from fedsim.core.contracts import Aggregator, Attack, ClientOptimizer, Corruption, PreAggregator, Task
from fedsim.core.method import Method, MethodFunction, client_sgd
from fedsim.core.options import CohortOptions, LossOptions, TrainingOptions
from fedsim.core.server import Server, make_server
from fedsim.core.simulation import Simulation
from fedsim.core.task import AUGMENTATIONS, classification, for_backend, regression
from fedsim.core.types import Array, FederatedDataset, HParams, Variables
from fedsim.datasets import sampling
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.deduplicate import deduplicate
from fedsim.datasets.federated import make_federated_dataset, to_raw, unseen_class_notes, unseen_client_notes
from fedsim.datasets.holdout import hold_out_root, hold_out_validation
from fedsim.datasets.partition import number_test_clients
from fedsim.engine.layout import Layout
from fedsim.errors import ConfigError, FedsimError

Value = TypeVar("Value")

MAX_MESSAGE_LENGTH = 300
MACHINE_ERRORS = (MemoryError, OSError, jax.errors.JaxRuntimeError)  # errors that plug-ins do not cause


def build(config: Config, key: str, name: str, *arguments: Any) -> Any:
    """Calls the factory `name` of `key` with `arguments` and its settings, on the host.

    Raises `ConfigError`, with the key, if the factory raises `ValueError` or a plug-in raises anything.
    """
    factory = find(key, name)
    try:
        return factory.make(*arguments, **settings_for(config, factory))
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


def _raise_as_plugin_error(factories: Iterable[Factory], error: Exception) -> NoReturn:
    """Raises a `ConfigError` that names the plug-in among `factories` that caused `error`; else `error` itself."""
    if isinstance(error, FedsimError):
        raise error
    plugins = list(dict.fromkeys(factory for factory in factories if factory.file is not None))
    files = {str(plugin.file): plugin.name.rpartition(":")[0] for plugin in plugins}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if not plugins or (isinstance(error, MACHINE_ERRORS) and not frames):
        raise error
    message = f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_MESSAGE_LENGTH]
    if frames:
        raise ConfigError(f"{files[frames[-1].filename]}, line {frames[-1].lineno}: {message}") from error
    names = ", ".join(f"{plugin.key}: {plugin.name}" for plugin in plugins)
    raise ConfigError(f"{names} failed: {message}; fedsim.testing has a check for it") from error


def build_traced(config: Config, key: str, name: str) -> Callable[..., Any]:
    """A function of `HParams` and more arguments that calls the factory inside a trace, with traced settings."""
    factory = find(key, name)
    settings, data = settings_for(config, factory), traced_settings(config)
    traced = {name: f"{factory.section}.{name}" for name in settings if f"{factory.section}.{name}" in data}
    static = {name: value for name, value in settings.items() if name not in traced}

    def make(hparams: HParams, *arguments: Any) -> Any:
        numbers = {name: hparams.settings[key] for name, key in traced.items()}
        return factory.make(*arguments, **static, **numbers)

    return make


def dataset(config: Config, data_in_memory: FederatedDataset | None = None) -> FederatedDataset:
    """Loads the data set, or takes that in memory, and partitions it among its clients.

    Raises `ConfigError` or `DataError`.
    """
    data = config.data
    is_natural = data.partition == "natural"
    if not is_natural and (keys := sampling.changed_keys(data, sampling.NATURAL_KEYS)):
        raise ConfigError(f'data.{keys[0]}: has an effect with data.partition = "natural" only')
    if is_natural and (keys := sampling.changed_keys(data, sampling.SUBSAMPLE_KEYS)):
        raise ConfigError(f'data.{keys[0]}: has no effect with data.partition = "natural"; use data.max_examples')
    load = lambda: build(config, "data.name", data.name, data.seed)
    raw = canonicalize(load() if data_in_memory is None else to_raw(data_in_memory), needs_test=False)
    notes = sampling.default_split_notes(raw, data)
    raw = deduplicate(raw) if data.deduplicate else raw
    sample = sampling.sample_clients if is_natural else sampling.subsample
    raw = canonicalize(sample(raw, data, np.random.default_rng([data.seed, 2])))
    rng = np.random.default_rng([data.seed, 1])
    raw, root = hold_out_root(raw, data.root_examples, np.random.default_rng([data.seed, 3]))
    validation_rng = np.random.default_rng([data.seed, 4])
    raw, validation = hold_out_validation(raw, data.validation_fraction, validation_rng, is_natural)
    partition = build(config, "data.partition", data.partition, raw, data.num_clients, rng)
    dataset = make_federated_dataset(raw, partition, number_test_clients(raw) if is_natural else None)
    notes += [*unseen_class_notes(dataset), *unseen_client_notes(dataset)]
    return replace(dataset, root=root, validation=validation, notes=tuple(notes))


def corruption(config: Config) -> Corruption:
    """The corruption of the run's clients."""
    return build(config, "corruption.kind", config.corruption.kind)


def corruption_factory(config: Config) -> Factory:
    """The factory of the corruption; equal if its code is."""
    return find("corruption.kind", config.corruption.kind)


def cached_by_model(
    *others: Callable[[Config], Hashable],
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Remembers `function(config, dataset, ...)` for each model, data set and value of `others`, functions of `config`.

    It must depend on no other keys.
    """

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        values: WeakKeyDictionary[FederatedDataset, dict[Hashable, Value]] = WeakKeyDictionary()

        @wraps(function)
        def call(config: Config, dataset: FederatedDataset, *arguments: Hashable) -> Value:
            factory = find("model.name", config.model.name)
            settings = tuple(sorted(settings_for(config, factory).items()))
            keys = [other(config) for other in others]
            key = (factory, settings, config.client.augmentation, config.engine.precision, *keys, *arguments)
            known = values.setdefault(dataset, {})
            if key not in known:
                known[key] = function(config, dataset, *arguments)
            return known[key]

        return call

    return decorate


def task(config: Config, dataset: FederatedDataset, backend: str | None = None) -> Task:
    """The run's model with its loss; `backend` as in `classification`. Raises `ConfigError` if it is no model."""
    model = build(config, "model.name", config.model.name, dataset.spec)
    if isinstance(model, Task):
        for key, value, default in (
            ("client.augmentation", config.client.augmentation, "none"),
            ("engine.precision", config.engine.precision, "float32"),
        ):
            if value != default:
                raise ConfigError(f"{key}: must be {default!r} for {config.model.name}, a whole Task, got {value!r}")
        return for_backend(model, backend)
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"model.name: {config.model.name} must return a flax.linen module or a Task, got {type(model).__name__}; "
            "convert an nnx module with flax.nnx.bridge.to_linen(Class, arguments)"
        )
    kind = classification if dataset.spec.targets == "classes" else regression
    dtype = jnp.dtype(config.engine.precision)
    return kind(model, dataset.train.x[0], AUGMENTATIONS[config.client.augmentation], dtype, backend)


def client_optimizer(config: Config, hparams: HParams) -> ClientOptimizer:
    """The clients' SGD."""
    return client_sgd(hparams, config.client.clip)


def schedule(config: Config) -> Callable[[HParams, Array], HParams]:
    """A function of (hparams, rounds completed []) that returns `hparams` with the learning rates of the next round."""
    names = {"client.schedule": config.client.schedule, "server.schedule": config.server.schedule}
    client, server = (build_traced(config, key, name) for key, name in names.items())
    num_rounds = config.server.num_rounds

    def scheduled(hparams: HParams, round: Array) -> HParams:
        return hparams._replace(
            learning_rate=client(hparams, num_rounds)(hparams.learning_rate, round),
            server_learning_rate=server(hparams, num_rounds)(hparams.server_learning_rate, round),
        )

    return scheduled


def server(config: Config) -> Callable[[HParams], Server]:
    """Builds the run's rule behind its pre-aggregators and weighting, inside the trace."""
    make_parts = _aggregation(config)
    return lambda hparams: make_server(*make_parts(hparams))


def _aggregation(config: Config) -> Callable[[HParams], tuple[Aggregator, list[PreAggregator], Aggregator | None]]:
    """Builds the run's rule, its pre-aggregators and its weighting."""
    rule = _build_rule(config, "server.aggregator", config.server.aggregator)
    name = config.server.weighting
    weighting = _build_rule(config, "server.weighting", name) if name else lambda hparams: None
    stages = [build_traced(config, "server.pre_aggregators", name) for name in config.server.pre_aggregators]
    return lambda hparams: (
        rule(hparams),
        [pre_aggregator(hparams) for pre_aggregator in stages],
        weighting(hparams),
    )


def attack(config: Config) -> Callable[[HParams], Attack]:
    """Builds the run's attack, inside the trace."""
    return build_traced(config, "attack.kind", config.attack.kind)


def method(config: Config) -> MethodFunction:
    """Training, attack and aggregation of a round."""
    aggregation, make_attack = _aggregation(config), attack(config)
    algorithm = build_traced(config, "client.algorithm", config.client.algorithm)
    optimizer, scheduled = build_traced(config, "server.optimizer", config.server.optimizer), schedule(config)

    def make(hparams: HParams, round: Array) -> Method:
        hparams = scheduled(hparams, round)
        aggregator, pre_aggregators, weighting = aggregation(hparams)
        return Method(
            aggregator=aggregator,
            client_optimizer=client_optimizer(config, hparams),
            algorithm=algorithm(hparams),
            attack=make_attack(hparams),
            pre_aggregators=pre_aggregators,
            server_optimizer=optimizer(hparams, hparams.server_learning_rate),
            weighting=weighting,
        )

    return make


def _build_rule(config: Config, key: str, name: str) -> Callable[[HParams], Aggregator]:
    """Builds the rule, whose `ValueError`s at tracing become `ConfigError`s with the key; those of plug-ins stay."""
    make = build_traced(config, key, name)

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except ValueError as error:
                raise ConfigError(f"{key}: {name}: {error}") from error

        return call

    def make_rule(hparams: HParams) -> Aggregator:
        rule: Aggregator = make(hparams)
        return rule if ":" in name else rule._replace(init=wrap(rule.init), aggregate=wrap(rule.aggregate))

    return make_rule


def simulation(
    config: Config,
    dataset: FederatedDataset,
    layout: Layout | None = None,
    make_method: MethodFunction | MethodFamily | None = None,
    max_num_examples: int | None = None,
) -> Simulation:
    """The simulation of a run; without a `layout`, the whole cohort and whole batches in lockstep.

    A family of runs gives its own `make_method` and the number of examples of the largest client of all its data sets.
    """
    layout = layout or Layout(client_width=config.server.cohort_size, backend=jax.default_backend())
    client = config.client
    return Simulation(
        task=task(config, dataset, layout.backend),
        method=make_method or method(config),
        cohort=CohortOptions(
            config.server.cohort_size,
            client.dropout_rate,
            layout.client_width,
            layout.client_axis,
            layout.buffer_clients,
        ),
        training=TrainingOptions(
            client.batch_size,
            max_num_examples or dataset.max_num_examples,
            client.epochs,
            client.steps,
            layout.micro_batch,
        ),
        losses=LossOptions(client.loss_at, config.record.losses),
    )


def hparams(config: Config) -> HParams:
    """The numbers that are data for the run's program."""
    client = config.client
    rates = client.learning_rate, config.server.learning_rate
    return HParams(*rates, dict(traced_settings(config)), client.momentum, client.weight_decay)


def plugins(configs: Iterable[Config]) -> frozenset[Factory]:
    """All plug-ins that `configs` name; equal if their code is."""
    return frozenset(factory for config in configs for factory in factories(config) if factory.file is not None)


def plugin_files(configs: Iterable[Config]) -> dict[str, str]:
    """{name: digest} of the files of all plug-ins that `configs` name."""
    return {plugin.name: plugin.digest or "" for plugin in sorted(plugins(configs), key=lambda plugin: plugin.name)}


@cached_by_model()
def model_shapes(config: Config, dataset: FederatedDataset) -> Variables:
    """Shapes and dtypes of the run's model. Raises `ConfigError` if the model does not take the data's inputs."""
    try:
        shapes: Variables = jax.eval_shape(task(config, dataset).init, jax.random.key(0))
    except (TypeError, ValueError, ZeroDivisionError) as error:
        shape, dtype = dataset.train.x.shape[1:], dataset.train.x.dtype
        is_for_users = ":" in config.model.name or str(error).startswith("x: ")  # others are of JAX or flax
        reason = f": {error}" if is_for_users else ""
        raise ConfigError(
            f"model.name: {config.model.name} does not take {dtype} inputs of shape {shape}{reason}"
        ) from None
    return shapes


@cached_by_model()
def check_targets(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if the model's outputs do not fit the shape of the data set's labels."""
    model, model_task = model_shapes(config, dataset), task(config, dataset)
    x, y = (jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype) for a in (dataset.train.x, dataset.train.y))
    try:
        jax.eval_shape(model_task.metrics, model, x, y, jax.ShapeDtypeStruct((1,), bool))
    except ValueError as error:
        if ":" in config.model.name:
            raise
        raise ConfigError(f"model.name: {config.model.name} does not fit {dataset.name}: {error}") from None


@cached_by_model()
def num_outputs(config: Config, dataset: FederatedDataset) -> int | None:
    """Number of classes that the run's model distinguishes; None if it is unknown."""
    num_classes = task(config, dataset).num_classes
    return None if num_classes is None else num_classes()


def num_params(config: Config, dataset: FederatedDataset) -> int:
    """Number of parameters of the run's model. Raises `ConfigError` as `model_shapes` does."""
    return sum(leaf.size for leaf in jax.tree.leaves(model_shapes(config, dataset).params))
