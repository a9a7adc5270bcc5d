"""Test examples with backdoors' triggers."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import component
from fedsim.config.schema import Config
from fedsim.core.types import Array, ClientData, FederatedDataset
from fedsim.engine import build


class BackdoorTests(NamedTuple):
    """Test examples with backdoors' triggers on them, which measure the success of the backdoors."""

    examples: ClientData
    """Examples of other classes, labeled with the target; those of trigger i are client i's."""
    trigger_ids: Array
    """The trigger [S] of each run, int32; 0 means no trigger, and client 0 has no examples."""


def find_trigger(config: Config) -> Hashable | None:
    """The trigger of a run, as its corruption with the settings; None if that has none."""
    return None if build.corruption(config).trigger is None else component(config, "corruption.kind")


def make_backdoor_tests(configs: Sequence[Config], dataset: FederatedDataset) -> BackdoorTests | None:
    """The test set once for each different trigger of the runs `configs`; None if there is nothing to measure.

    Examples whose label the trigger does not change are left out: they belong to the target class already.
    """
    triggers = [find_trigger(config) for config in configs]
    config_of = {trigger: config for trigger, config in zip(triggers, configs, strict=True) if trigger is not None}
    xs, ys = [dataset.x_test[:0]], [dataset.y_test[:0]]
    for config in config_of.values():
        apply = build.corruption(config).trigger
        assert apply is not None
        x, y = map(np.asarray, apply(jnp.asarray(dataset.x_test), jnp.asarray(dataset.y_test), dataset.spec))
        is_relabeled = (y != dataset.y_test).reshape(len(y), -1).any(axis=1)
        xs.append(x[is_relabeled])
        ys.append(y[is_relabeled])
    num_examples = np.asarray([len(y) for y in ys], np.int32)
    if not num_examples.any():
        return None
    offsets = np.concatenate([[0], np.cumsum(num_examples)[:-1]]).astype(np.int32)
    arrays = np.concatenate(xs), np.concatenate(ys), offsets, num_examples, np.zeros(len(num_examples), bool)
    id_of = {None: 0} | {trigger: 1 + position for position, trigger in enumerate(config_of)}
    trigger_ids = np.asarray([id_of[trigger] for trigger in triggers], np.int32)
    return BackdoorTests(ClientData(*arrays), trigger_ids)  # type: ignore[arg-type]
