"""Convolution and max pooling in the form that was fastest on CPUs and on an H100 (benchmarks/README.md).

`vmap` of `lax.conv` over kernels is a grouped convolution, XLA's CPU convolution is slow inside a loop, and the
gradient of its pool is a scatter. Patches times a matrix (im2col) is a batched product under `vmap` over kernels.
Gradients are written out, so there are no forward-mode derivatives.
"""

import math
from collections.abc import Sequence
from functools import partial, reduce
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedsim.core.types import Array

Sizes = Sequence[int]  # of each axis


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(patches: Array, kernel: Array, precision: Any = None) -> Array:
    """Product of `patches` [..., P] and `kernel` [P, F].

    The kernel's gradient is a product of two tall matrices, one of which the CPU has to transpose first. JAX's rule
    transposes the right one, together with all that was fused into it: up to five times slower.
    """
    return jnp.matmul(patches, kernel, precision=precision)


def _matmul_forward(patches: Array, kernel: Array, precision: Any) -> tuple[Array, tuple[Array, Array]]:
    return jnp.matmul(patches, kernel, precision=precision), (patches, kernel)


def _matmul_backward(precision: Any, residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    patches, kernel = residuals
    rows = tuple(range(patches.ndim - 1))
    of_kernel = lax.dot_general(patches, gradient, ((rows, rows), ((), ())), precision)
    return jnp.matmul(gradient, kernel.T, precision=precision), of_kernel


matmul.defvjp(_matmul_forward, _matmul_backward)


def convolve(x: Array, kernel: Array, strides: Sizes, dilation: Sizes, outputs: Sizes, precision: Any = None) -> Array:
    """The first `outputs` [*S'] of the convolution of padded x [B, *S, C] with `kernel` [*k, C, F]: [B, *S', F]."""
    starts = product(*(range(0, size * step, step) for size, step in zip(kernel.shape[:-2], dilation, strict=True)))
    sizes = (len(x), *outputs, x.shape[-1])
    shifted = [_every(x, (0, *start, 0), (1, *strides, 1), sizes) for start in starts]
    return matmul(jnp.concatenate(shifted, axis=-1), kernel.reshape(-1, kernel.shape[-1]), precision)


def _every(x: Array, start: Sizes, strides: Sizes, sizes: Sizes) -> Array:
    """`sizes` elements of x from `start`, `strides` apart."""
    ends = [first + stride * (size - 1) + 1 for first, stride, size in zip(start, strides, sizes, strict=True)]
    return lax.slice(x, start, ends, strides)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def max_pool(x: Array, window: Sizes, strides: Sizes) -> Array:
    """The maximum of each `window` of x, `strides` apart; the gradient goes to its first maximum, as in XLA.

    With one array per window position the pool is a maximum of arrays of one shape, and its gradient a select, without
    a scatter. The position of the maximum is stored, not the window.
    """
    return reduce(jnp.maximum, _elements(x, window, strides))


def _elements(x: Array, window: Sizes, strides: Sizes) -> list[Array]:
    """x at each position of the windows."""
    sizes = [(n - size) // stride + 1 for n, size, stride in zip(x.shape, window, strides, strict=True)]
    return [_every(x, start, strides, sizes) for start in product(*map(range, window))]


def _max_pool_forward(x: Array, window: Sizes, strides: Sizes) -> tuple[Array, tuple[Array, Array]]:
    largest, *others = _elements(x, window, strides)
    first = jnp.int8(0)
    for position, element in enumerate(others, 1):  # XLA may compute x twice, rounded differently: never compare for ==
        first = jnp.where(element > largest, jnp.int8(position), first)
        largest = jnp.maximum(largest, element)
    return largest, (jnp.broadcast_to(first, largest.shape), jnp.empty((*x.shape, 0), x.dtype))


def _max_pool_backward(window: Sizes, strides: Sizes, residuals: tuple[Array, Array], gradient: Array) -> tuple[Array]:
    positions, like = residuals
    apart = [side for n in positions.shape for side in (n, 1)]

    def choose(x: Array) -> Array:
        """The elements of x at the positions; its transpose puts the gradient there."""
        if tuple(window) != tuple(strides):
            elements = enumerate(_elements(x, window, strides))
            return reduce(jnp.add, [jnp.where(positions == position, element, 0) for position, element in elements])
        # Windows side by side are axes of their own, and the gradient is written at once.
        of_window = jnp.arange(math.prod(window), dtype=jnp.int8).reshape([side for n in window for side in (1, n)])
        sizes = [side for pair in zip(positions.shape, window, strict=True) for side in pair]
        covered = x[tuple(slice(n * size) for n, size in zip(positions.shape, window, strict=True))]
        chosen = jnp.where(positions.reshape(apart) == of_window, covered.reshape(sizes), 0)
        return jnp.sum(chosen, axis=tuple(range(1, chosen.ndim, 2)))

    return jax.linear_transpose(choose, jax.ShapeDtypeStruct(like.shape[:-1], like.dtype))(gradient)


max_pool.defvjp(_max_pool_forward, _max_pool_backward)
