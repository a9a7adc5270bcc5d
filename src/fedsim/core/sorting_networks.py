"""Sorting networks, which compare the same rows whatever their values are.

Batcher: "Sorting networks and their applications", AFIPS 1968, https://doi.org/10.1145/1468075.1468121: the odd-even
network, in the form for any number of rows of Knuth, The Art of Computer Programming 3, Algorithm 5.2.2M (merge
exchange); and the bitonic one.
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.types import Array


def comparators(num_rows: int) -> Iterator[tuple[int, int]]:
    """The pairs (i, j), i < j, of rows whose comparison, one pair after another, sorts `num_rows` rows."""
    top = 1 << max(num_rows - 1, 0).bit_length() >> 1
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(num_rows - d) if i & p == r)
            if q == p:
                break
            q, r, d = q >> 1, p, q - p
        p >>= 1


def sort_by_comparators(rows: list[Array]) -> list[Array]:
    """Sorts K `rows` [c] by all comparators one by one; XLA fuses them into one loop over the columns."""
    for i, j in comparators(len(rows)):
        rows[i], rows[j] = jnp.minimum(rows[i], rows[j]), jnp.maximum(rows[i], rows[j])
    return rows


def sort_by_layers(keys: Array) -> Array:
    """Sorts the rows of `keys` [K, c] by a bitonic network, two layers at a time: one small loop, quick to compile."""
    num_rows, size = keys.shape
    padded = 1 << max(num_rows - 1, 1).bit_length()  # a single row would have no layers
    padding = jnp.full((padded - num_rows, size), np.iinfo(keys.dtype).max, keys.dtype)
    positions, layers = jnp.arange(padded), jnp.asarray(_layers(padded))

    def two_layers(i: Array, rows: Array) -> Array:
        block, *distances = layers[i]
        get_rows = lambda positions: rows.at[positions].get(mode="promise_in_bounds")
        after_first = lambda positions: _compare(get_rows, positions, distances[0], block)
        return _compare(after_first, positions, distances[1], block)

    return jax.lax.fori_loop(0, len(layers), two_layers, jnp.concatenate([keys, padding]))[:num_rows]


def _layers(num_rows: int) -> np.ndarray:
    """Pairs of layers [L, 3]: the size of the blocks that they sort, and the distances that they compare (0: none)."""
    powers = [1 << i for i in range(num_rows.bit_length())]
    distances = {block: [power for power in reversed(powers) if power < block] for block in powers}
    pairs = [(block, *pair) for block in powers for pair in zip_longest(*[iter(distances[block])] * 2, fillvalue=0)]
    return np.array(pairs, np.int32).reshape(-1, 3)


def _compare(get_rows: Callable[[Array], Array], positions: Array, distance: Array, block: Array) -> Array:
    """The rows at `positions` [K'] after a layer that compares each row of `get_rows` with the one `distance` away.

    Blocks are sorted in alternating directions, so that two adjacent ones form a bitonic sequence.
    """
    is_lower = ((positions & distance) == 0) == ((positions & block) == 0)
    rows, partners = get_rows(positions), get_rows(positions ^ distance)
    return jnp.where(is_lower[:, None], jnp.minimum(rows, partners), jnp.maximum(rows, partners))
