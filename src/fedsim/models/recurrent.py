"""An LSTM layer that computes each weight gradient by one product instead of a sum over time steps.

JAX differentiates a scan step by step: at every step it adds a small product to the gradient of the recurrent kernel,
which is read and written each time. Here the backward scan stores the gradients of the gates, and one product over all
steps follows; the input part of the gates is one product before the scan. Values and gradients are those of
`flax.linen.RNN(flax.linen.OptimizedLSTMCell)`.
"""

from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import glorot_uniform, orthogonal, zeros

from fedsim.core.products import matmul
from fedsim.core.types import Array

NUM_GATES = 4  # concatenated in the order input, forget, cell, output


class LSTM(nn.Module):
    """LSTM with one bias vector per gate, from x [T, B, I] to outputs [T, B, size].

    Input kernels are initialized Glorot-uniform and recurrent kernels orthogonal, gate by gate; biases to zero, except
    the forget gate's, to `forget_bias`.
    """

    size: int
    forget_bias: float = 0.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("input_kernel", _per_gate(glorot_uniform()), (x.shape[-1], self.size))
        recurrent = self.param("recurrent_kernel", _per_gate(orthogonal()), (self.size, self.size))
        bias = self.param("bias", self._init_bias, (NUM_GATES * self.size,))
        return recurrence(matmul(x, kernel) + bias[None, None], recurrent)

    def _init_bias(self, key: Array, shape: tuple[int]) -> Array:
        return zeros(key, shape).at[self.size : 2 * self.size].set(self.forget_bias)


def _per_gate(init: nn.initializers.Initializer) -> nn.initializers.Initializer:
    """Initializer of the concatenated kernels of all gates, each by `init`."""

    def kernels(key: Array, shape: tuple[int, int]) -> Array:
        return jnp.concatenate([init(k, shape) for k in jax.random.split(key, NUM_GATES)], axis=1)

    return kernels


@jax.custom_vjp
def recurrence(z: Array, kernel: Array) -> Array:
    """Outputs [T, B, H] of an LSTM from a zero state, for input part z [T, B, 4 H] of the gates and kernel [H, 4 H]."""
    return _recurrence_forward(z, kernel)[0]


Residuals: TypeAlias = tuple[Array, Array, Array, Array]


def _recurrence_forward(z: Array, kernel: Array) -> tuple[Array, Residuals]:
    zero = jnp.zeros((z.shape[1], kernel.shape[0]), z.dtype)

    def step(carry: tuple[Array, Array], z_t: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        cell, h = carry
        i, f, g, o = jnp.split(z_t + h @ kernel, NUM_GATES, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        cell = f * cell + i * g
        h = o * jnp.tanh(cell)
        return (cell, h), (jnp.concatenate([i, f, g, o], axis=-1), cell, h)

    _, (gates, cells, outputs) = jax.lax.scan(step, (zero, zero), z)
    return outputs, (gates, cells, outputs, kernel)


def _recurrence_backward(residuals: Residuals, gradient: Array) -> tuple[Array, Array]:
    gates, cells, outputs, kernel = residuals
    transposed = jax.lax.optimization_barrier(kernel.T)  # once, not in every step of the loop
    previous = lambda a: jnp.concatenate([jnp.zeros_like(a[:1]), a[:-1]])
    # Factors of the gradients of cell and output in those of the gates, for all steps at once.
    i, f, g, o = jnp.split(gates, NUM_GATES, axis=-1)
    tanh = jnp.tanh(cells)
    slopes = [g * i * (1 - i), previous(cells) * f * (1 - f), i * (1 - g**2), tanh * o * (1 - o)]
    factors = jnp.concatenate(slopes, axis=-1), o * (1 - tanh**2), f

    def step(carry: tuple[Array, Array], factors: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        cell_gradient, h_gradient = carry
        to_gates, to_cell, to_previous_cell, output_gradient = factors
        h_gradient = h_gradient + output_gradient
        cell_gradient = cell_gradient + h_gradient * to_cell
        z_gradient = to_gates * jnp.concatenate([*[cell_gradient] * 3, h_gradient], axis=-1)
        return (cell_gradient * to_previous_cell, z_gradient @ transposed), z_gradient

    zero = jnp.zeros_like(cells[0])
    _, z_gradient = jax.lax.scan(step, (zero, zero), (*factors, gradient), reverse=True)
    return z_gradient, jax.lax.dot_general(previous(outputs), z_gradient, (((0, 1), (0, 1)), ((), ())))


recurrence.defvjp(_recurrence_forward, _recurrence_backward)
