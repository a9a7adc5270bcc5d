"""Values sorted over the clients of a cohort, parameter by parameter.

`jnp.sort` over the short first axis of [K, d] is slow on a CPU: each of d columns is a sort of its own. A sorting
network compares whole rows instead. Which rows are compared does not depend on the values, so there is no branch, and
the rows of all runs in lockstep go through together.

What is compared are integers in the order of the values: the minimum of two is one instruction, of two floats, either
of which may be NaN, several.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsim.core.backend import traced_for
from fedsim.core.networks import by_exchange, by_layers
from fedsim.core.types import Array

MOST_FUSED = {"cpu": 64}  # rows; beyond, XLA takes seconds to compile the comparators as one loop
FEW_FUSED = 32  # the same on other backends
CHUNK = {"cpu": 1024}  # columns that are sorted at a time by layers: as many as a core's cache holds
FUSED_CHUNK = {"cpu": 1 << 14}  # the same by one loop
CUT_BY_XLA = 16  # rows from which on XLA cuts out a chunk before it is sorted; of fewer, each row inside that loop
LARGE_CHUNK = 1 << 20  # the same on other backends: enough for a whole device


class Order(NamedTuple):
    """An order of float32 numbers, none of which may be NaN, as integers that are in the same one; +inf comes last."""

    as_keys: Callable[[Array], Array]
    as_values: Callable[[Array], Array]


def _ascending_keys(values: Array) -> Array:
    return _turned(jax.lax.bitcast_convert_type(values, jnp.int32))


def _ascending_values(keys: Array) -> Array:
    return jax.lax.bitcast_convert_type(_turned(keys), jnp.float32)


def _turned(bits: Array) -> Array:
    """Of negative numbers all bits but the sign are turned over: the larger the magnitude, the less the number."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _nearest_keys(values: Array) -> Array:
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    return ((bits << 1) | (bits >> 31)) ^ 1  # the sign, turned over, goes to the end


def _nearest_values(keys: Array) -> Array:
    return jax.lax.bitcast_convert_type((keys >> 1) | ((keys ^ 1) << 31), jnp.float32)


ASCENDING = Order(_ascending_keys, _ascending_values)
NEAREST = Order(_nearest_keys, _nearest_values)  # to zero; of two that are equally near, the lower


class Columns(NamedTuple):
    """Values over clients, and how they are looked at: relative to a centre, and only those of some clients."""

    values: Array  # [K, d]
    chosen: Array  # [K] bool; the others come last in any order
    centre: Array  # [d]

    def keys(self, order: Order) -> Array:
        """[K, d], in one piece."""
        return order.as_keys(jnp.where(self.chosen[:, None], self.values - self.centre[None], jnp.inf))

    def sorted_rows(self, order: Order) -> list[Array]:
        """The keys [d] of each rank, the first first; XLA makes one loop of all comparators and what comes before."""
        seen = (jnp.where(one, row - self.centre, jnp.inf) for one, row in zip(self.chosen, self.values, strict=True))
        return by_exchange([order.as_keys(row) for row in seen])


def sort_rows(values: Array) -> Array:
    """`values` [K, d], each column ascending. None may be NaN; +inf comes last."""
    return _in_chunks(lambda part: ASCENDING.as_values(by_layers(part.keys(ASCENDING))), whole(values), CHUNK)


def whole(values: Array) -> Columns:
    """All of `values` [K, d], as they are."""
    return Columns(values, jnp.ones(values.shape[0], bool), jnp.zeros(values.shape[1]))


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def rank_mean(columns: Columns, shares: Array, order: Order = ASCENDING) -> Array:
    """The sum [d] over ranks of `shares` [K] times the values of this rank, [0] the first in `order`.

    A rank without a share does not count, whatever stands there.
    """

    def fused(part: Columns) -> Array:
        rows = zip(shares, part.sorted_rows(order), strict=True)
        terms = (jnp.where(share > 0, share * order.as_values(keys), 0.0) for share, keys in rows)
        return sum(terms, jnp.zeros(()))  # a Python sum becomes part of the loop: the sorted rows are never stored

    def layered(part: Columns) -> Array:
        rows = order.as_values(by_layers(part.keys(order)))
        return jnp.matmul(shares, jnp.where((shares > 0)[:, None], rows, 0.0), precision="highest")

    is_fused = len(shares) <= MOST_FUSED.get(traced_for(), FEW_FUSED)
    return _in_chunks(fused, columns, FUSED_CHUNK) if is_fused else _in_chunks(layered, columns, CHUNK)


@rank_mean.defjvp
def _move_with_ranks(order: Order, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Integers have no derivative: each value moves the result by the share of its rank."""
    (columns, shares), (moved, _) = primals, tangents
    ranks = jnp.argsort(jnp.argsort(columns.keys(order), axis=0), axis=0)
    by = jnp.where(columns.chosen[:, None], shares[ranks], 0.0) * (moved.values - moved.centre[None])
    return rank_mean(columns, shares, order), jnp.sum(by, axis=0)


def at_ranks(columns: Columns, ranks: tuple[Array, Array], order: Order = ASCENDING) -> tuple[Array, Array]:
    """The keys [d] in `order` of the two values that have these `ranks` in each column."""

    def fused(part: Columns) -> Array:
        # Each column once for each rank, so that there is one loop that sorts.
        wanted = jnp.repeat(jnp.stack(ranks), part.centre.size)
        twice = Columns(jnp.tile(part.values, (1, 2)), part.chosen, jnp.tile(part.centre, 2))
        rows = twice.sorted_rows(order)
        found = rows[0]
        for rank, keys in enumerate(rows):
            found = jnp.where(wanted == rank, keys, found)
        return found.reshape(2, -1)

    def layered(part: Columns) -> Array:
        return by_layers(part.keys(order))[jnp.stack(ranks)]

    is_fused = columns.chosen.size <= FEW_FUSED  # it is for a sample of the columns: less to run than to compile
    found = _in_chunks(fused, columns, FUSED_CHUNK) if is_fused else _in_chunks(layered, columns, CHUNK)
    return found[0], found[1]


def _in_chunks(compute: Callable[[Columns], Array], columns: Columns, chunks: dict[str, int]) -> Array:
    """What `compute` makes of `columns`, all of which it treats alike, in chunks of c: [..., c] each.

    There are two chunks at least: XLA computes cheap things again wherever they are used, but not what a loop has
    stored, and sorting seems cheap to it. Of few rows a chunk is cut out one step ahead: a loop that works out where
    its columns begin is not made of vector instructions, and takes eight times as long.
    """
    size = columns.centre.size
    chunk = max(1, min(chunks.get(traced_for(), LARGE_CHUNK), -(-size // 2)))
    begin = lambda i: jnp.minimum(i * chunk, size - chunk)  # the last chunk overlaps the one before
    cut = lambda a, i: jax.lax.dynamic_slice_in_dim(a, begin(i), chunk, axis=-1)
    part = lambda i: Columns(cut(columns.values, i), columns.chosen, cut(columns.centre, i))
    is_ahead = columns.chosen.size < CUT_BY_XLA

    def one(i: Array, carry: tuple[Columns | None, Array]) -> tuple[Columns | None, Array]:
        ahead, results = carry
        found = compute(part(i) if ahead is None else ahead)
        results = jax.lax.dynamic_update_slice_in_dim(results, found, begin(i), axis=-1)
        return part(i + 1) if is_ahead else None, results

    like = jax.eval_shape(lambda: compute(part(0)))
    empty = jnp.zeros((*like.shape[:-1], size), like.dtype)
    return jax.lax.fori_loop(0, -(-size // chunk), one, (part(0) if is_ahead else None, empty))[1]
