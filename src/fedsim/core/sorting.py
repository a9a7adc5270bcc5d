"""Values sorted over the clients of a cohort, parameter by parameter.

`jnp.sort` over the short first axis of [K, d] is slow on a CPU: it sorts each of the d columns separately. A sorting
network compares whole rows instead. Which rows it compares does not depend on the values, so there is no branch, and
the rows of all runs in lockstep are sorted together.

It compares integers in the order of the values: the minimum of two integers is one instruction, but that of two floats,
either of which may be NaN, takes several.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsim.core.sorting_networks import sort_by_comparators, sort_by_layers
from fedsim.core.types import Array

MAX_FUSED_ROWS = {"cpu": 64}
"""Rows that are sorted in one fused loop; for more, XLA needs seconds to compile it."""
MAX_FUSED_ROWS_DEFAULT = 32
"""The same on other backends."""
LAYERED_CHUNK = {"cpu": 1024}
"""Columns that are sorted at a time by layers: as many as fit into a core's cache."""
FUSED_CHUNK = {"cpu": 1 << 14}
"""Columns that are sorted at a time in one fused loop."""
CHUNK_DEFAULT = 1 << 20
"""The same on other backends: enough for a whole device."""
MIN_ROWS_SLICED_BY_XLA = 16
"""From this number of rows, XLA copies a chunk before it is sorted; with fewer, it slices each row inside the loop."""


class Order(NamedTuple):
    """An order of float32 numbers without NaN, as integers in the same order; +inf comes last."""

    to_keys: Callable[[Array], Array]
    """Values to integers."""
    to_values: Callable[[Array], Array]
    """Integers to values."""


def _ascending_keys(values: Array) -> Array:
    return _flip_negative(jax.lax.bitcast_convert_type(values, jnp.int32))


def _ascending_values(keys: Array) -> Array:
    return jax.lax.bitcast_convert_type(_flip_negative(keys), jnp.float32)


def _flip_negative(bits: Array) -> Array:
    """Inverts all bits but the sign of negative numbers: the larger the magnitude, the smaller the number."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _nearest_keys(values: Array) -> Array:
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    return ((bits << 1) | (bits >> 31)) ^ 1  # moves the inverted sign to the end


def _nearest_values(keys: Array) -> Array:
    return jax.lax.bitcast_convert_type((keys >> 1) | ((keys ^ 1) << 31), jnp.float32)


ASCENDING = Order(_ascending_keys, _ascending_values)
NEAREST = Order(_nearest_keys, _nearest_values)
"""By distance to zero; of two numbers with the same distance, the lower one comes first."""


class Columns(NamedTuple):
    """Values that are compared relative to a center, only for some clients."""

    values: Array
    """[K, d]."""
    mask: Array
    """[K] bool; the other clients come last in any order."""
    center: Array
    """[d]."""

    def keys(self, order: Order) -> Array:
        """The unsorted keys [K, d] in one array."""
        return order.to_keys(jnp.where(self.mask[:, None], self.values - self.center[None], jnp.inf))

    def sorted_rows(self, order: Order) -> list[Array]:
        """The keys [d] of each rank; XLA fuses all comparators and what precedes them into one loop."""
        pairs = zip(self.mask, self.values, strict=True)
        rows = (jnp.where(is_used, row - self.center, jnp.inf) for is_used, row in pairs)
        return sort_by_comparators([order.to_keys(row) for row in rows])


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def rank_mean(columns: Columns, weights: Array, order: Order = ASCENDING) -> Array:
    """The sum [d] over ranks of `weights` [K] times the values of these ranks; rank 0 is the first in `order`.

    Values of ranks without weight are ignored, even if they are infinite.
    """

    def fused(part: Columns) -> Array:
        rows = zip(weights, part.sorted_rows(order), strict=True)
        terms = (jnp.where(weight > 0, weight * order.to_values(keys), 0.0) for weight, keys in rows)
        # A Python sum is fused into the loop: the sorted rows are never stored.
        return sum(terms, jnp.zeros((), jnp.float32))

    def layered(part: Columns) -> Array:
        rows = order.to_values(sort_by_layers(part.keys(order)))
        return jnp.matmul(weights, jnp.where((weights > 0)[:, None], rows, 0.0), precision="highest")

    is_fused = len(weights) <= MAX_FUSED_ROWS.get(jax.default_backend(), MAX_FUSED_ROWS_DEFAULT)
    return _map_chunks(fused, columns, FUSED_CHUNK) if is_fused else _map_chunks(layered, columns, LAYERED_CHUNK)


@rank_mean.defjvp
def _rank_mean_jvp(order: Order, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Integers have no derivative: each value changes the result by the weight of its rank."""
    (columns, weights), (change, _) = primals, tangents
    ranks = jnp.argsort(jnp.argsort(columns.keys(order), axis=0), axis=0)
    changes = jnp.where(columns.mask[:, None], weights[ranks], 0.0) * (change.values - change.center[None])
    return rank_mean(columns, weights, order), jnp.sum(changes, axis=0)


def keys_at_ranks(columns: Columns, ranks: tuple[Array, Array], order: Order = ASCENDING) -> tuple[Array, Array]:
    """The keys [d] in `order` of the two values that have these `ranks` in each column."""

    def fused(part: Columns) -> Array:
        # Each column is repeated for each rank, so that a single loop sorts.
        rank_of_column = jnp.repeat(jnp.stack(ranks), part.center.size)
        repeated = Columns(jnp.tile(part.values, (1, 2)), part.mask, jnp.tile(part.center, 2))
        rows = repeated.sorted_rows(order)
        result = rows[0]
        for rank, keys in enumerate(rows):
            result = jnp.where(rank_of_column == rank, keys, result)
        return result.reshape(2, -1)

    def layered(part: Columns) -> Array:
        return sort_by_layers(part.keys(order))[jnp.stack(ranks)]

    # This sorts a sample of the columns: it costs more to compile than to run.
    is_fused = columns.mask.size <= MAX_FUSED_ROWS_DEFAULT
    keys = _map_chunks(fused, columns, FUSED_CHUNK) if is_fused else _map_chunks(layered, columns, LAYERED_CHUNK)
    return keys[0], keys[1]


def _map_chunks(compute: Callable[[Columns], Array], columns: Columns, chunks: dict[str, int]) -> Array:
    """Computes `compute(columns)`, which treats all columns alike, in chunks of c columns: [..., c] each.

    There are at least two chunks: XLA recomputes cheap results wherever they are used, but not what a loop has stored,
    and it considers sorting cheap. With few rows, a chunk is sliced one iteration ahead: XLA does not vectorize a loop
    that computes where its columns begin, which takes eight times as long.
    """
    size = columns.center.size
    chunk = max(1, min(chunks.get(jax.default_backend(), CHUNK_DEFAULT), -(-size // 2)))
    start = lambda i: jnp.minimum(i * chunk, size - chunk)  # the last chunk overlaps the previous one
    cut = lambda a, i: jax.lax.dynamic_slice_in_dim(a, start(i), chunk, axis=-1)
    part = lambda i: Columns(cut(columns.values, i), columns.mask, cut(columns.center, i))
    is_ahead = columns.mask.size < MIN_ROWS_SLICED_BY_XLA

    def step(i: Array, carry: tuple[Columns | None, Array]) -> tuple[Columns | None, Array]:
        next_part, results = carry
        result = compute(part(i) if next_part is None else next_part)
        results = jax.lax.dynamic_update_slice_in_dim(results, result, start(i), axis=-1)
        return part(i + 1) if is_ahead else None, results

    like = jax.eval_shape(lambda: compute(part(0)))
    empty = jnp.zeros((*like.shape[:-1], size), like.dtype)
    return jax.lax.fori_loop(0, -(-size // chunk), step, (part(0) if is_ahead else None, empty))[1]
