"""The data set of a configuration: loaded, cleaned, sampled, with root and validation data held out, partitioned."""

from dataclasses import replace

import numpy as np

from fedsim.config.components import without_effect
from fedsim.config.schema import Config
from fedsim.core.types import FederatedDataset
from fedsim.datasets import sampling
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.deduplicate import deduplicate
from fedsim.datasets.federated import make_federated_dataset, to_raw, unseen_class_notes, unseen_client_notes
from fedsim.datasets.holdout import hold_out_root, hold_out_validation
from fedsim.datasets.partition import natural_test_clients
from fedsim.datasets.scales import scale_notes
from fedsim.engine import factories
from fedsim.errors import ConfigError


def load_dataset(config: Config, data_in_memory: FederatedDataset | None = None) -> FederatedDataset:
    """Loads the data set, or takes that in memory, and partitions it among its clients.

    Raises `ConfigError` or `DataError`.
    """
    data, split = config.data, int(config.data.seed)  # a number in every run
    is_natural = config.has_natural_clients
    for key, reason in without_effect(config).items():
        raise ConfigError(f"{key}: has no effect: {reason}")
    load = lambda: factories.build(config, "data.name", data.name, split)
    raw = canonicalize(load() if data_in_memory is None else to_raw(data_in_memory), needs_test=False)
    notes = [*sampling.default_split_notes(raw, data), *sampling.unused_client_notes(raw, data)]
    raw = deduplicate(raw) if data.deduplicate else raw
    sample = sampling.sample_clients if is_natural and raw.client_ids is not None else sampling.subsample
    raw = canonicalize(sample(raw, data, np.random.default_rng([split, 2])))
    rng = np.random.default_rng([split, 1])
    raw, root = hold_out_root(raw, data.root_examples, np.random.default_rng([split, 3]))
    validation_rng = np.random.default_rng([split, 4])
    raw, validation = hold_out_validation(raw, data.validation_fraction, validation_rng, is_natural)
    partition = factories.build(config, "data.partition", data.partition, raw, data.num_clients, rng)
    dataset = make_federated_dataset(raw, partition, natural_test_clients(raw) if is_natural else None)
    notes += [*raw.notes, *scale_notes(dataset), *unseen_class_notes(dataset), *unseen_client_notes(dataset)]
    return replace(dataset, root=root, validation=validation, notes=tuple(notes))
