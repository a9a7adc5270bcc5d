"""The data of a configuration: loaded, cleaned, sampled and partitioned; test examples with backdoors' triggers."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import component
from fedsim.config.schema import Config
from fedsim.core import require
from fedsim.core.types import Array, ClientData, FederatedDataset
from fedsim.datasets import sampling
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.federated import make_federated_dataset, to_raw, unseen_notes
from fedsim.datasets.partition import describe_natural_clients
from fedsim.datasets.scales import scale_notes
from fedsim.datasets.subsets import deduplicate, hold_out, make_long_tail
from fedsim.engine import build, factories


def load_dataset(config: Config, data_in_memory: FederatedDataset | None = None) -> FederatedDataset:
    """Loads the data set, or takes that in memory, and partitions it among its clients.

    Raises `ConfigError` or `DataError`.
    """
    data, split = config.data, int(config.data.seed)  # a number in every run
    rng = lambda stream: np.random.default_rng([split, stream])  # a stream of its own for each step
    is_natural = data.partition == "natural"
    load = lambda: factories.build(config, "data.name", data.name, split)
    raw = canonicalize(load() if data_in_memory is None else to_raw(data_in_memory), needs_test=False)
    notes = [*sampling.division_notes(raw, data)]
    raw = deduplicate(raw) if data.deduplicate else raw
    raw = make_long_tail(raw, data.long_tail, rng(5)) if data.long_tail < 1 else raw
    sample = sampling.sample_clients if is_natural and raw.client_ids is not None else sampling.subsample
    # Windows of text are split by time for validation, before others are left out or drawn.
    is_split_first = data.validation_fraction > 0 and sampling.num_overlapping(raw) > 0
    raw = sample(raw, replace(data, max_examples=None, num_train=None) if is_split_first else data, rng(2))
    streams, held_out = {"root_examples": 3, "validation_fraction": 4}, {}
    for key in reversed(streams) if is_split_first else streams:
        raw, held_out[key] = hold_out(raw, key, getattr(data, key), rng(streams[key]), is_natural, data)
    partition = factories.build(config, "data.partition", data.partition, raw, data.num_clients, rng(1))
    about = describe_natural_clients(raw) if is_natural else (None, (), data.num_clients)
    dataset = make_federated_dataset(raw, partition, *about)
    notes += [*raw.notes, *scale_notes(dataset), *unseen_notes(dataset)]
    root, validation = held_out["root_examples"], held_out["validation_fraction"]
    return replace(dataset, root=root, validation=validation, notes=tuple(notes))


def find_trigger(config: Config) -> Hashable | None:
    """The trigger of a run, as its corruption with the settings; None if that has none."""
    return None if build.corruption(config).trigger is None else component(config, "corruption.kind")


def make_backdoor_tests(
    configs: Sequence[Config], dataset: FederatedDataset
) -> tuple[ClientData, Array] | tuple[None, None]:
    """Test examples with the triggers of the runs `configs` on them, and the trigger [S] int32 of each run; 0: none.

    Those of trigger i are client i's, labeled with the target; client 0 has none. Examples whose label a trigger does
    not change are left out: they belong to the target class already. None if there is nothing to measure.
    """
    triggers = [find_trigger(config) for config in configs]
    config_of = {trigger: config for trigger, config in zip(triggers, configs, strict=True) if trigger is not None}
    xs, ys = [dataset.x_test[:0]], [dataset.y_test[:0]]
    for config in config_of.values():
        apply = build.corruption(config).trigger
        assert apply is not None
        triggered = apply(jnp.asarray(dataset.x_test), jnp.asarray(dataset.y_test), dataset.spec)
        triggered = require.pair(triggered, "of trigger (x, y)")
        require.like(triggered, (dataset.x_test, dataset.y_test), "the result of trigger")
        x, y = map(np.asarray, triggered)
        is_relabeled = (y != dataset.y_test).reshape(len(y), -1).any(axis=1)
        xs.append(x[is_relabeled])
        ys.append(y[is_relabeled])
    num_examples = np.asarray([len(y) for y in ys], np.int32)
    if not num_examples.any():
        return None, None
    offsets = np.concatenate([[0], np.cumsum(num_examples)[:-1]]).astype(np.int32)
    arrays = np.concatenate(xs), np.concatenate(ys), offsets, num_examples, np.zeros(len(num_examples), bool)
    id_of = {None: 0} | {trigger: 1 + position for position, trigger in enumerate(config_of)}
    trigger_ids = np.asarray([id_of[trigger] for trigger in triggers], np.int32)
    return ClientData(*arrays), trigger_ids  # type: ignore[arg-type, return-value]
