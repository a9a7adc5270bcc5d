"""Corrupted labels and inputs of data that stay on the host, bit for bit those of `engine.inputs`."""

from collections.abc import Hashable, Sequence
from functools import partial

import jax
import numpy as np

from fedsim.config.clients import num_corrupted
from fedsim.config.components import positions_by
from fedsim.config.roles import corruption_config
from fedsim.config.schema import Config
from fedsim.core.corrupt import corrupt_inputs
from fedsim.core.types import Array, ClientData, DataSpec, HParams
from fedsim.engine import build, factories
from fedsim.engine.inputs import by_corruption, in_order, make_run_inputs, run_keys


def corrupt_labels(configs: Sequence[Config], data: ClientData, spec: DataSpec) -> list[np.ndarray]:
    """The labels [M] of each run, on the host; runs with equal ones share the array."""
    labels, num_clients = [np.asarray(data.y)] * len(configs), data.num_examples.shape[0]
    draws = [(corruption_config(config), config.seed, num_corrupted(config, num_clients)) for config in configs]
    for (corruption, *_), positions in positions_by(draws).items():
        if "y" in build.corruption(corruption).changed_fields:
            one, hparams = [configs[positions[0]]], HParams()
            corrupted = np.asarray(make_run_inputs(one, hparams, data, spec, frozenset({"y"})).changes["y"])[0]
            for position in positions:
                labels[position] = corrupted
    return labels


def corrupt_buffers(
    configs: Sequence[Config],
    x: np.ndarray,
    positions: np.ndarray,
    owners: np.ndarray,
    corrupted: Array,
    spec: DataSpec,
) -> Array:
    """The corrupted inputs [B, C, *feature] of the examples that are gathered for each of the runs `configs` [B].

    The runs are spread evenly over D buffers `x` [D, C, *feature], which hold the examples at `positions` [D, C] of the
    training data, of the clients `owners` [D, C]; owner N marks padding. `corrupted` is [B, N].
    """
    keys, _ = run_keys(np.asarray([config.seed for config in configs], np.int32))
    buffers = np.arange(len(configs)) * len(x) // len(configs)
    runs_of = by_corruption(configs)
    parts = []
    for config, members in runs_of.items():
        runs = keys[np.asarray(members)], corrupted[np.asarray(members)], buffers[members]
        named = factories.corruptions_of(config)
        parts.append(_corrupt_buffers(named, config, spec, runs, (x, positions, owners)))
    return in_order(parts, runs_of)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _corrupt_buffers(
    named: Hashable, config: Config, spec: DataSpec, runs: tuple[Array, ...], buffers: tuple[Array, ...]
) -> Array:
    """The inputs of runs (keys, corrupted, positions of their buffers), run by run, as in `_corrupt_runs`."""
    corruption = build.corruption(config)

    def corrupt_run(run: tuple[Array, ...]) -> Array:
        key, corrupted, buffer = run
        x, positions, owners = (a[buffer] for a in buffers)
        return corrupt_inputs(corruption, key, x, positions, owners, corrupted, spec)

    return jax.lax.map(corrupt_run, runs)
