"""Matrix product of patches and a kernel with a custom kernel gradient, whose operand order matters most for speed."""

from collections.abc import Callable

import jax

from fedsim.core.types import Array


def make_matmul(kernel_gradient: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Product of `patches` [..., P] and `kernel` [P, F].

    `kernel_gradient(patches, gradient [..., F])` returns the gradient [P, F] of the kernel.
    """

    @jax.custom_vjp
    def matmul(patches: Array, kernel: Array) -> Array:
        return patches @ kernel

    def forward(patches: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
        return patches @ kernel, (patches, kernel)

    def backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
        patches, kernel = residuals
        return gradient @ kernel.T, kernel_gradient(patches, gradient)

    matmul.defvjp(forward, backward)
    return matmul


def contract_rows(left: Array, right: Array) -> Array:
    """Product [L, R] of `left` [..., L] and `right` [..., R], summed over all leading axes."""
    rows = tuple(range(left.ndim - 1))
    return jax.lax.dot_general(left, right, ((rows, rows), ((), ())))
