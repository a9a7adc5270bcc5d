"""Corrupting the inputs of some clients alone, against corrupting the data of all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim import DataSpec
from fedsim.core.corrupt import corrupt, corrupt_inputs
from fedsim.corruption import backdoor, mix, noisy, shift, shuffling
from fedsim.testing.tiny import join_clients

NUM_EXAMPLES = np.asarray([17, 1, 40, 0, 23, 31, 8, 55, 12, 60])
OWNERS = np.repeat(np.arange(10, dtype=np.int32), NUM_EXAMPLES)
KEYS = jax.random.split(jax.random.key(2), 3)
CASES = {
    "noisy uint8 images": (noisy(), DataSpec("image", 5, (12, 12, 3), "uint8")),
    "noisy float images": (noisy(std=0.3), DataSpec("image", 5, (16, 16, 1), "float32")),
    "noisy texts": (noisy(), DataSpec("text", 80, (20,), "int8")),
    "backdoor": (backdoor(rate=0.7), DataSpec("image", 5, (9, 7, 1), "uint8")),
    "several": (
        mix(shuffling(), noisy(), backdoor(rate=0.7)),
        DataSpec("image", 5, (9, 7, 1), "uint8"),
    ),
}


def make_data(spec):
    rng = np.random.default_rng(0)
    shape = (len(OWNERS), *spec.shape)
    x = rng.random(shape) if spec.dtype == "float32" else rng.integers(0, 127, shape)
    y = rng.integers(0, 5, len(OWNERS))
    return join_clients(jnp.asarray(x, spec.dtype), jnp.asarray(y, jnp.int32), NUM_EXAMPLES)


@pytest.mark.parametrize("name", CASES)
def test_the_inputs_are_those_of_the_whole_corruption(name):
    """Bit for bit, mapped over runs, for clients in any order and with padding."""
    corruption, spec = CASES[name]
    data = make_data(spec)
    corrupt_runs = jax.jit(lambda data: jax.lax.map(lambda key: corrupt(corruption, key, data, spec, 6), KEYS))
    after = corrupt_runs(data)
    assert (np.asarray(after.x) != np.asarray(data.x)).any()
    change = lambda key, corrupted, *rows: corrupt_inputs(corruption, key, *rows, corrupted, spec)
    change_runs = jax.jit(jax.vmap(change, (0, 0, None, None, None)))
    for clients in ([9, 0, 5, 3, 2], range(10), [1]):
        positions = np.concatenate([np.flatnonzero(client == OWNERS) for client in clients]).astype(np.int32)
        padding = (0, len(OWNERS) + 5 - len(positions))  # to one length, of one program
        rows, owners = np.pad(positions, padding), np.pad(OWNERS[positions], padding, constant_values=10)
        x = change_runs(KEYS, after.corrupted, data.x[rows], rows, owners)
        np.testing.assert_array_equal(x[:, : len(positions)], after.x[:, positions])


def test_what_depends_on_the_inputs_of_all_clients_cannot_be_done_for_some():
    assert noisy(text_noise="replace").change_inputs is None
    assert shift().change_inputs is None
    assert mix(noisy(), shift()).change_inputs is None
    assert mix(noisy(), shuffling()).change_inputs is not None
