"""Convolution as a few wide matrix products: for GPUs.

Under `vmap` over kernels `lax.conv` is a grouped convolution, whose backward pass is slow in cuDNN; patches times a
matrix is a batched product. The cost there should be moving patches through memory. A convolution under a 2x2 pool is
therefore computed in blocks of 2x2 pixels: a patch of (k + 1) x (k + 1) inputs gives all four elements of a pool window
by one product with 4 F columns. That is 1.4 (k = 5) to 1.8 times (k = 3) the multiplications, but less than half the
patches, products as wide as a tensor core wants them, and a pool without strides. Spatial axes come before the batch,
so that slices are contiguous and the product's rows end in a power of two. Compiled for an H100, but not timed there.
"""

import jax
import jax.numpy as jnp

from fedsim.core.types import Array
from fedsim.models.matmul import contract_rows, make_matmul
from fedsim.models.padding import NO_PADDING, PadWidths, pad
from fedsim.models.pooling import WINDOW_SIZE, Window, make_pool_relu


def convolve(x: Array, kernel: Array, stride: int = 1, pad_widths: PadWidths = NO_PADDING) -> Array:
    """Convolution [B, H', W', F] of zero-padded x [B, H, W, C] with `kernel` [k, k, C, F]."""
    size, features = kernel.shape[0], kernel.shape[-1]
    x = _batch_third(pad(x, pad_widths))
    rows, columns = (side - size + 1 for side in x.shape[:2])
    shifted = [x[i : i + rows : stride, j : j + columns : stride] for i in range(size) for j in range(size)]
    return _batch_first(_matmul(_make_patches(shifted), kernel.reshape(-1, features)))


def convolve_pool_relu(x: Array, kernel: Array, bias: Array, pad_widths: PadWidths = NO_PADDING) -> Array:
    """Relu of `bias` [F] plus the 2x2 max pool of the convolution."""
    x = pad(x, pad_widths)
    size, features = kernel.shape[0], kernel.shape[-1]
    height, width = ((side - size + 1) // 2 for side in x.shape[1:3])
    reach = size // 2 + 1  # blocks that a patch covers, each way
    x = _make_blocks(_batch_third(x), height + reach - 1, width + reach - 1)
    shifted = [x[i : i + height, j : j + width] for i in range(reach) for j in range(reach)]
    z = _matmul(_make_patches(shifted), _make_block_kernel(kernel, reach).reshape(-1, WINDOW_SIZE * features))
    return _batch_first(_pool_relu(z, bias))


def _batch_third(x: Array) -> Array:
    return jnp.transpose(x, (1, 2, 0, 3))


def _batch_first(x: Array) -> Array:
    return jnp.transpose(x, (2, 0, 1, 3))


def _make_patches(shifted: list[Array]) -> Array:
    """The patches, computed once and stored; else the compiler builds them again, transposed, for the gradient."""
    return jax.lax.optimization_barrier(jnp.concatenate(shifted, axis=-1))


def _make_blocks(x: Array, rows: int, columns: int) -> Array:
    """x [H, W, B, C] cut or zero-padded to `rows` x `columns` blocks of 2x2, as channels: [rows, columns, B, 4 C]."""
    missing = [max(0, 2 * number - side) for number, side in zip((rows, columns), x.shape[:2], strict=True)]
    x = jnp.pad(x[: 2 * rows, : 2 * columns], [*((0, number) for number in missing), (0, 0), (0, 0)])
    x = x.reshape(rows, 2, columns, 2, *x.shape[2:])
    return jnp.transpose(x, (0, 2, 4, 1, 3, 5)).reshape(rows, columns, x.shape[4], -1)


def _make_block_kernel(kernel: Array, reach: int) -> Array:
    """`kernel` [k, k, C, F] for patches of `reach` x `reach` blocks, by window position: [reach, reach, 4 C, 4 F]."""
    room = 2 * reach - kernel.shape[0]
    shift = lambda i, j: jnp.pad(kernel, ((i, room - i), (j, room - j), (0, 0), (0, 0)))
    by_position = jnp.concatenate([shift(i, j) for i in (0, 1) for j in (0, 1)], axis=-1)
    channels, features = by_position.shape[2:]
    by_block = by_position.reshape(reach, 2, reach, 2, channels, features)
    return jnp.transpose(by_block, (0, 2, 1, 3, 4, 5)).reshape(reach, reach, 4 * channels, features)


# The barrier keeps the unfolding of the kernel's gradient out of the product, which is split over its long sum.
_matmul = make_matmul(lambda patches, gradient: jax.lax.optimization_barrier(contract_rows(gradient, patches).T))


def _split(z: Array) -> Window:
    """Windows of z [H, W, B, 4 F], each [H, W, B, F]."""
    a, b, c, d = jnp.split(z, WINDOW_SIZE, axis=-1)
    return a, b, c, d


def _unpool(positions: Array, gradient: Array) -> Array:
    of_window = jnp.arange(WINDOW_SIZE, dtype=jnp.int8).reshape(1, 1, 1, WINDOW_SIZE, 1)
    z_gradient = jnp.where(positions[..., None, :] == of_window, gradient[..., None, :], 0)
    return z_gradient.reshape(*gradient.shape[:-1], -1)


_pool_relu = make_pool_relu(_split, _unpool)
