"""2x2 max pool and relu of a convolution that is computed corner by corner: what the accelerators' forms share.

With an array for each corner of the pool's windows the pool is a maximum of four arrays of one shape, without strides,
and its gradient four selects, without a scatter.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedsim.core.types import Array

Corners = tuple[Array, Array, Array, Array]  # of every window, row by row, each [..., F]
NUM_CORNERS = NOWHERE = 4


def relu_of_largest(corners: Corners, bias: Array) -> Array:
    """Relu of (the largest of `corners`, + `bias` [F])."""
    a, b, c, d = corners
    return nn.relu(jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d)) + bias[None, None, None])


def with_winner(corners: Corners, bias: Array) -> tuple[Array, Array]:
    """`relu_of_largest`, and which corner its gradient goes to: the first that is largest, or `NOWHERE`; int8.

    The barrier keeps the compiler from putting the comparisons off until the gradient is there, with all four corners
    stored until then.
    """
    a, b, c, d = corners
    largest = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
    y = nn.relu(largest + bias[None, None, None])
    first = jnp.where(a == largest, 0, jnp.where(b == largest, 1, jnp.where(c == largest, 2, 3)))
    return y, jax.lax.optimization_barrier(jnp.where(y > 0, first, NOWHERE).astype(jnp.int8))


def bias_gradient(winner: Array, gradient: Array) -> Array:
    """Of the bias [F], from that of the output [..., F]."""
    return jnp.sum(jnp.where(winner == NOWHERE, 0, gradient), axis=(0, 1, 2))
