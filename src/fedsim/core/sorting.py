"""Values sorted over the clients of a cohort, parameter by parameter.

`jnp.sort` over the short first axis of [K, d] is slow on a CPU: it sorts each of the d columns separately. A sorting
network compares whole rows instead. Which rows it compares does not depend on the values, so there is no branch, and
the rows of all runs in lockstep are sorted together. It is Batcher's ("Sorting networks and their applications", AFIPS
1968, https://doi.org/10.1145/1468075.1468121), in the form for any number of rows of Knuth, The Art of Computer
Programming 3, Algorithm 5.2.2M (merge exchange).

It compares integers in the order of the values: the minimum of two integers is one instruction, but that of two floats,
either of which may be NaN, takes several.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import bitcast_convert_type

from fedsim.core.types import Array

MAX_FUSED_ROWS = {"cpu": 128}
"""Rows that a network sorts; for more, XLA needs many seconds to compile it, and `jnp.sort` sorts them."""
MAX_FUSED_ROWS_DEFAULT = 32
"""The same on other backends."""
MAX_UNROLLED_ROWS = 20
"""Rows that are compared without a loop: compiling takes as long as the square of their number."""
CHUNK = {"cpu": 1 << 14}
"""Columns that are sorted at a time."""
CHUNK_DEFAULT = 1 << 20
"""The same on other backends: enough for a whole device."""


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


class Order(NamedTuple):
    """An order of float32 numbers without NaN, as integers in the same order; +inf comes last."""

    to_keys: Callable[[Array], Array]
    """Values to integers."""
    to_values: Callable[[Array], Array]
    """Integers to values."""


def _flip_negative(bits: Array) -> Array:
    """Inverts all bits but the sign of negative numbers: the larger the magnitude, the smaller the number."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _nearest_keys(values: Array) -> Array:
    bits = bitcast_convert_type(values, jnp.uint32)
    return ((bits << 1) | (bits >> 31)) ^ 1  # moves the inverted sign to the end


ASCENDING = Order(
    to_keys=lambda values: _flip_negative(bitcast_convert_type(values, jnp.int32)),
    to_values=lambda keys: bitcast_convert_type(_flip_negative(keys), jnp.float32),
)
NEAREST = Order(_nearest_keys, lambda keys: bitcast_convert_type((keys >> 1) | ((keys ^ 1) << 31), jnp.float32))
"""By distance to zero; of two numbers with the same distance, the lower one comes first."""


class CenteredColumns(NamedTuple):
    """Values that are compared relative to a center, only for some clients."""

    values: Array
    """[K, d]."""
    mask: Array
    """[K] bool; the other clients come last in any order."""
    center: Array
    """[d]."""

    def stored(self) -> "CenteredColumns":
        """The same around 0, computed once: XLA may compute a caller's values twice, and round them differently."""
        values = _map_chunks(lambda part: part.values - part.center[None], self, self.center.size)
        return CenteredColumns(values, self.mask, jnp.zeros_like(self.center))

    def keys(self, order: Order) -> Array:
        """The unsorted keys [K, d] in one array."""
        return order.to_keys(jnp.where(self.mask[:, None], self.values - self.center[None], jnp.inf))

    def sorted_rows(self, order: Order) -> list[Array]:
        """The keys [d] of each rank; XLA fuses all comparators and what precedes them into one loop over columns."""
        pairs = zip(self.mask, self.values, strict=True)
        keys = [order.to_keys(jnp.where(is_used, row - self.center, jnp.inf)) for is_used, row in pairs]
        for i, j in comparators(len(keys)):
            keys[i], keys[j] = jnp.minimum(keys[i], keys[j]), jnp.maximum(keys[i], keys[j])
        return keys


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def rank_mean(columns: CenteredColumns, weights: Array, order: Order = ASCENDING) -> Array:
    """The sum [d] over ranks of `weights` [K] times the values of these ranks; rank 0 is the first in `order`.

    Values of ranks without weight are ignored, even if they are infinite.
    """
    term = lambda weight, keys: jnp.where(weight > 0, weight * order.to_values(keys), 0.0)
    return _sum_over_ranks(term, columns, weights, order)


@rank_mean.defjvp
def _rank_mean_jvp(order: Order, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Integers have no derivative: each value changes the result by the weight of its rank."""
    (columns, weights), (change, _) = primals, tangents
    keys = columns.keys(order)
    of_rank = weights[weights_below(keys, jnp.ones(len(keys), jnp.int32))]  # ranks
    changes = jnp.where(columns.mask[:, None], of_rank, 0.0) * (change.values - change.center[None])
    return rank_mean(columns, weights, order), jnp.sum(changes, axis=0)


def weights_below(values: Array, weights: Array) -> Array:
    """For each of the `values` [K, d], the sum of the `weights` [K] of the rows that are lower, equal ones by row.

    With weights of 1 these are ranks. By counting: on CPUs that is 10 to 60 times as fast as sorting columns, for 10 to
    100 rows.
    """
    rows = jnp.arange(len(values))[:, None]

    def add(row: Array, below: Array) -> Array:
        value = values[row][None]
        is_lower = (value < values) | ((value == values) & (row < rows))
        return below + weights[row] * is_lower

    def of_row(i: int) -> Array:
        is_lower = [row <= values[i] if j < i else row < values[i] for j, row in enumerate(values)]
        return sum((weight * below for weight, below in zip(weights, is_lower, strict=True)), zero)

    zero = jnp.zeros(values.shape[1:], weights.dtype)
    if len(values) <= MAX_UNROLLED_ROWS:  # all comparisons of a row are fused
        return jnp.stack([of_row(i) for i in range(len(values))])
    return jax.lax.fori_loop(0, len(values), add, jnp.zeros(values.shape, weights.dtype))


def keys_at_ranks(
    columns: CenteredColumns, ranks: tuple[Array, Array], order: Order = ASCENDING
) -> tuple[Array, Array]:
    """The keys [d] in `order` of the two values that have these `ranks` in each column."""

    if columns.mask.size > MAX_FUSED_ROWS_DEFAULT:  # this sorts a sample: a network costs more to compile than to run
        sorted_keys = jnp.sort(columns.keys(order).T, axis=1)
        return sorted_keys[:, ranks[0]], sorted_keys[:, ranks[1]]

    def keys_at(rank: Array) -> Array:
        is_rank = jnp.arange(columns.mask.size) == rank
        return _sum_over_ranks(lambda is_rank, keys: jnp.where(is_rank, keys, 0), columns, is_rank, order)

    first, last = jax.lax.map(keys_at, jnp.stack(ranks))  # a loop is compiled once
    return first, last


def _sum_over_ranks(
    term: Callable[[Array, Array], Array], columns: CenteredColumns, of_rank: Array, order: Order
) -> Array:
    """The sum [d] over ranks of `term(value, keys)`: `of_rank` [K] has the value of a rank, whose keys are [d]."""

    def fused(part: CenteredColumns) -> Array:
        terms = [term(value, keys) for value, keys in zip(of_rank, part.sorted_rows(order), strict=True)]
        # A Python sum is fused into the loop: the sorted rows are never stored.
        return sum(terms, jnp.zeros((), terms[0].dtype))

    def separate(part: CenteredColumns) -> Array:
        sorted_keys = jnp.sort(part.keys(order).T, axis=1)
        return jnp.sum(jax.vmap(term, (0, 1))(of_rank, sorted_keys), axis=0)

    backend = jax.default_backend()
    is_fused = columns.mask.size <= MAX_FUSED_ROWS.get(backend, MAX_FUSED_ROWS_DEFAULT)
    return _map_chunks(fused if is_fused else separate, columns, CHUNK.get(backend, CHUNK_DEFAULT))


def _map_chunks(compute: Callable[[CenteredColumns], Array], columns: CenteredColumns, max_size: int) -> Array:
    """Computes `compute(columns)` [..., d], which treats all columns alike, in chunks.

    There are at least two: XLA recomputes cheap results wherever they are used, but not what a loop has stored, and it
    considers sorting cheap.
    """
    size = columns.center.size
    chunk = max(1, min(max_size, -(-size // 2)))

    def step(i: Array, results: Array) -> Array:
        start = jnp.minimum(i * chunk, size - chunk)  # the last chunk overlaps the previous one
        cut = lambda a: jax.lax.dynamic_slice_in_dim(a, start, chunk, axis=-1)
        part = CenteredColumns(cut(columns.values), columns.mask, cut(columns.center))
        return jax.lax.dynamic_update_slice_in_dim(results, compute(part), start, axis=-1)

    like = jax.eval_shape(compute, columns)
    return jax.lax.fori_loop(0, -(-size // chunk), step, jnp.zeros(like.shape, like.dtype))
