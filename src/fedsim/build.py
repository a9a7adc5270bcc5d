"""From a configuration to objects: the one place where names are looked up."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedsim.aggregators import AGGREGATORS
from fedsim.attacks import ATTACKS
from fedsim.config import Config, DataConfig, ModelConfig, check_clients, num_corrupted
from fedsim.corruption import CORRUPTIONS
from fedsim.datasets import arrays, digits, leaf, plane, prepared, sampling
from fedsim.datasets.partition import dirichlet, iid, natural, natural_test
from fedsim.datasets.raw import RawDataset, check, divide
from fedsim.errors import ConfigError
from fedsim.keys import lookup
from fedsim.layout import Layout
from fedsim.models import MLP, CharLSTM, Cifar10CNN, FemnistCNN
from fedsim.simulate import Simulation
from fedsim.task import AUGMENTATIONS, classification
from fedsim.types import Aggregator, Array, FederatedDataset, HParams, Task


def _tfds(name: str) -> RawDataset:
    if not name:
        raise ConfigError('data.tfds_name: which set of tensorflow-datasets? For example "mnist"')
    return prepared.load(name)


DATASETS: dict[str, Callable[[DataConfig], RawDataset]] = {
    "digits": lambda config: digits.load(config.seed),
    "plane": lambda config: plane.load(config.seed),
    "cifar10": lambda config: prepared.load("cifar10"),
    "femnist": lambda config: prepared.load("femnist"),
    "shakespeare": lambda config: prepared.load("shakespeare"),
    "arrays": lambda config: arrays.load(Path(config.path)),
    "leaf": lambda config: leaf.load(Path(config.path)),
    "tfds": lambda config: _tfds(config.tfds_name),
}

PARTITIONS: dict[str, Callable[[RawDataset, np.random.Generator, DataConfig], np.ndarray]] = {
    "iid": lambda raw, rng, config: iid(raw, config.num_clients, rng),
    "dirichlet": lambda raw, rng, config: dirichlet(
        raw, config.num_clients, rng, config.dirichlet_alpha, config.min_examples
    ),
    "natural": lambda raw, rng, config: natural(raw),
}

MODELS: dict[str, Callable[[ModelConfig, int], nn.Module]] = {
    "mlp": lambda config, num_classes: MLP(num_classes, config.hidden_sizes),
    "cifar10_cnn": lambda config, num_classes: Cifar10CNN(num_classes),
    "femnist_cnn": lambda config, num_classes: FemnistCNN(num_classes),
    "char_lstm": lambda config, num_classes: CharLSTM(num_classes, hidden_size=config.lstm_size),
}


def check_names(config: Config) -> None:
    """Raises `ConfigError` where a name is unknown, with the nearest right one."""
    tables: list[tuple[str, str, Mapping[str, Any]]] = [
        ("data.name", config.data.name, DATASETS),
        ("data.partition", config.data.partition, PARTITIONS),
        ("corruption.kind", config.corruption.kind, CORRUPTIONS),
        ("attack.kind", config.attack.kind, ATTACKS),
        ("model.name", config.model.name, MODELS),
        ("server.aggregator", config.server.aggregator, AGGREGATORS),
    ]
    for key, name, table in tables:
        lookup(key, name, table)


def check_fit(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` where the run does not fit the data set."""
    check_clients(config, dataset.num_clients)
    if config.corruption.kind == "noisy" and dataset.train.x.dtype not in (np.uint8, np.int8, np.float32):
        dtype = dataset.train.x.dtype
        raise ConfigError(f'corruption.kind: "noisy" is for images and texts; {dataset.name} has {dtype} inputs')
    if config.corruption.kind == "shift" and dataset.train.x.dtype != np.float32:
        raise ConfigError(f'corruption.kind: "shift" is for float inputs; {dataset.name} has {dataset.train.x.dtype}')
    if config.client.augmentation != "none" and dataset.train.x.ndim != 4:
        raise ConfigError(f"client.augmentation: for images; an input of {dataset.name} is {dataset.train.x.shape[1:]}")
    if config.corruption.fraction > 0 and num_corrupted(config, dataset.num_clients) == 0:
        fraction = config.corruption.fraction
        raise ConfigError(f"corruption.fraction: {fraction:g} of {dataset.num_clients} clients is nobody; raise it")


def num_params(config: Config, dataset: FederatedDataset) -> int:
    """Parameters of the run's model; `ConfigError` where it does not take the data."""
    try:
        params = jax.eval_shape(task(config, dataset).init, jax.random.key(0))
    except (TypeError, ValueError, ZeroDivisionError):
        shape, dtype = dataset.train.x.shape[1:], dataset.train.x.dtype
        raise ConfigError(f"model.name: {config.model.name} does not take {dtype} inputs of shape {shape}") from None
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def dataset(config: DataConfig) -> FederatedDataset:
    """The data set, loaded and divided among its clients."""
    is_natural = config.partition == "natural"
    if not is_natural and (keys := sampling.asked(config)):
        raise ConfigError(f'data.{keys[0]}: has an effect with data.partition = "natural" only')
    if is_natural and (keys := sampling.asked(config, sampling.DRAWN_KEYS)):
        raise ConfigError(f'data.{keys[0]}: has no effect with data.partition = "natural"; use data.max_examples')
    raw = lookup("data.name", config.name, DATASETS)(config)
    sample = sampling.sample if is_natural else sampling.draw_examples
    raw = check(sample(raw, config, np.random.default_rng([config.seed, 2])))
    rng = np.random.default_rng([config.seed, 1])
    owner = lookup("data.partition", config.partition, PARTITIONS)(raw, rng, config)
    return divide(raw, owner, natural_test(raw) if is_natural else None)


def aggregator(config: Config) -> Callable[[HParams], Aggregator]:
    """The rule, as a function of what a sweep varies."""
    name = config.server.aggregator
    factory = lookup("server.aggregator", name, AGGREGATORS)
    if name == "arfl":
        return lambda hparams: factory(lam=hparams.lam)
    settings = asdict(getattr(config, name)) if hasattr(config, name) else {}
    return lambda hparams: factory(**settings)


def client_sgd(learning_rate: Array | float, clip: float | None) -> optax.GradientTransformation:
    """The clients' SGD, with each element of a gradient clipped to [-clip, clip] if given."""
    sgd = optax.sgd(learning_rate)
    return sgd if clip is None else optax.chain(optax.clip(clip), sgd)


def task(config: Config, dataset: FederatedDataset) -> Task:
    """The run's model with its loss."""
    module = lookup("model.name", config.model.name, MODELS)(config.model, dataset.num_classes)
    dtype = jnp.dtype(config.engine.precision)
    return classification(module, dataset.train.x[0], AUGMENTATIONS[config.client.augmentation], dtype)


def simulation(config: Config, dataset: FederatedDataset, layout: Layout | None = None) -> Simulation:
    """The training run; without a `layout` the whole cohort and whole batches in lockstep."""
    layout = layout or Layout(client_width=config.server.cohort_size)
    make_attack = lookup("attack.kind", config.attack.kind, ATTACKS)
    scale = config.attack.scale
    return Simulation(
        task=task(config, dataset),
        aggregator=aggregator(config),
        cohort_size=config.server.cohort_size,
        batch_size=config.client.batch_size,
        max_count=dataset.max_count,
        epochs=config.client.epochs,
        client_optimizer=partial(client_sgd, clip=config.client.clip),
        server_optimizer=optax.sgd(config.server.learning_rate, config.server.momentum or None),
        attack=make_attack() if scale is None else make_attack(scale),
        dropout_rate=config.client.dropout_rate,
        client_width=layout.client_width,
        micro_batch=layout.micro_batch,
        client_axis=layout.client_axis,
        record_losses=config.record.losses,
    )
