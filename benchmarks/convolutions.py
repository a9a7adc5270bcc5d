"""Convolution, 2x2 max pool and relu in four ways, compared on W1's client step: SGD with the CIFAR-10 CNN.

- `lax`: flax's `Conv` and `max_pool`, which are `lax.conv_general_dilated` and `lax.reduce_window`.
- `slices`: k x k shifted slices, concatenated, times a matrix; pool by reshape and max; JAX's own gradients.
- `rows`: k column shifts, concatenated once, and k products, one for each row of the kernel; fedsim's pool.
- `fedsim`: `fedsim.models.layers.ConvRelu`.

`python benchmarks/round.py --convolutions` prints the comparison.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import measure
import workloads
from jax.nn.initializers import glorot_uniform, zeros
from workloads import Workload

import fedsim
from fedsim.core.contracts import Task
from fedsim.core.types import Array, PyTree
from fedsim.models.im2col import matmul, pool_relu
from fedsim.models.layers import ConvRelu

TOLERANCE = 1e-4  # of a gradient, relative to its largest element


class LaxConv(nn.Module):
    """flax's convolution, pool and relu, x [B, H, W, C] to [B, H', W', features]."""

    features: int
    size: int
    pool: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        z = nn.Conv(self.features, (self.size, self.size), padding="VALID", kernel_init=glorot_uniform())(x)
        return nn.relu(nn.max_pool(z, (2, 2), (2, 2)) if self.pool else z)


class SlicesConv(nn.Module):
    """Patches of k x k shifted slices times a matrix, x [B, H, W, C] to [B, H', W', features]."""

    features: int
    size: int
    pool: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        k, channels = self.size, x.shape[-1]
        kernel, bias = _parameters(self, k, channels)
        height, width = _output_size(self, x)
        shifted = [x[:, i : i + height, j : j + width] for i in range(k) for j in range(k)]
        z = jnp.concatenate(shifted, axis=-1) @ kernel.reshape(k * k * channels, self.features) + bias
        if self.pool:
            z = z.reshape(-1, height // 2, 2, width // 2, 2, self.features).max(axis=(2, 4))
        return nn.relu(z)


class RowsConv(nn.Module):
    """Patches of one row, concatenated once, times each row of the kernel; x [B, H, W, C] to [B, H', W', features]."""

    features: int
    size: int
    pool: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        k, channels = self.size, x.shape[-1]
        kernel, bias = _parameters(self, k, channels)
        height, width = _output_size(self, x)
        rows = jnp.concatenate([x[:, :, j : j + width] for j in range(k)], axis=-1)  # [B, H, W', k * C]
        parts = [matmul(rows[:, i : i + height], kernel[i].reshape(k * channels, self.features)) for i in range(k)]
        z = sum(parts[1:], parts[0])
        return pool_relu(z, bias) if self.pool else nn.relu(z + bias)


def _parameters(layer: SlicesConv | RowsConv, k: int, channels: int) -> tuple[Array, Array]:
    kernel = layer.param("kernel", glorot_uniform(), (k, k, channels, layer.features))
    return kernel, layer.param("bias", zeros, (layer.features,))


def _output_size(layer: SlicesConv | RowsConv, x: Array) -> tuple[int, int]:
    """Height and width of the convolution's output, even before a pool."""
    multiple = 2 if layer.pool else 1
    height, width = ((side - layer.size + 1) // multiple * multiple for side in x.shape[1:3])
    return height, width


class CNN(nn.Module):
    """fedsim's `Cifar10CNN` with another convolution: x [B, 32, 32, 3] to logits [B, 10]."""

    convolution: Callable[..., nn.Module]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for number, (features, pool) in enumerate([(32, True), (64, True), (64, False)]):
            x = self.convolution(features, 3, pool=pool, name=f"convolution_{number}")(x)
        x = nn.relu(nn.Dense(64, kernel_init=glorot_uniform())(x.reshape(x.shape[0], -1)))
        return nn.Dense(10, kernel_init=glorot_uniform())(x)


VARIANTS: dict[str, Callable[..., nn.Module]] = {
    "lax": LaxConv,
    "slices": SlicesConv,
    "rows": RowsConv,
    "fedsim": ConvRelu,
}


def compare(widths: Sequence[int], batches: Sequence[int], repeats: int, out: Path | None) -> None:
    """Checks that all variants have the same gradients, and prints a line for each variant, width and batch size."""
    workload = workloads.load("W1")
    example = workload.dataset.train.x[0]
    tasks = {name: fedsim.classification(CNN(layer), example) for name, layer in VARIANTS.items()}
    check_gradients(tasks, workload)
    for width, _ in measure.engine_settings(workload, widths, [0]):
        for batch_size in batches:
            _compare_one(tasks, workload, width, batch_size, repeats, out)


def check_gradients(tasks: dict[str, Task], workload: Workload) -> None:
    """Raises `AssertionError` where a variant's gradient at the same parameters differs from fedsim's."""
    x, y = jnp.asarray(workload.dataset.train.x[:64]), jnp.asarray(workload.dataset.train.y[:64])
    key = jax.random.key(0)
    leaves = jax.tree.leaves(tasks["fedsim"].init(key))
    expected: list[Array] = []
    for name in ["fedsim", *tasks]:
        structure = jax.tree.structure(jax.eval_shape(tasks[name].init, key))
        params = jax.tree.unflatten(structure, leaves).params
        gradients = jax.tree.leaves(jax.jit(measure.gradient(tasks[name]))(params, x, y, jnp.ones(64, bool), key))
        expected = expected or gradients
        for reference, gradient in zip(expected, gradients, strict=True):
            difference = float(jnp.max(jnp.abs(reference - gradient)) / jnp.max(jnp.abs(reference)))
            assert difference < TOLERANCE, f"{name}: a gradient differs by {difference:.1e} of its largest element"


def _compare_one(
    tasks: dict[str, Task], workload: Workload, width: int, batch_size: int, repeats: int, out: Path | None
) -> None:
    train = workload.dataset.train
    x, y, offsets = jnp.asarray(train.x), jnp.asarray(train.y), jnp.asarray(train.offsets[:width])
    training, _ = measure.example_flops(workload)
    programs, calls, numbers = [], [], []
    for task in tasks.values():
        params = jax.vmap(task.init)(jax.random.split(jax.random.key(0), width)).params
        args = params, x, y, offsets
        program = measure.compile_program(_client_steps(task, batch_size, workload.learning_rate), *args, jnp.int32(1))
        steps = measure.repetitions(measure.seconds_of(program, *args, jnp.int32(1)), 0.5)
        programs.append(program)
        numbers.append(steps)
        calls.append(lambda p=program, a=args, n=steps: measure.seconds_of(p, *a, jnp.int32(n)))
    product, *timings = measure.time_interleaved([measure.large_product(), *calls], repeats)
    for name, program, steps, timing in zip(tasks, programs, numbers, timings, strict=True):
        samples = width * batch_size * steps / timing.median
        measure.line(
            out,
            benchmark="convolutions",
            workload=workload.name,
            convolution=name,
            width=width,
            batch_size=batch_size,
            **measure.speed(program, timing, steps, "step"),
            samples_per_second=samples,
            **measure.rate(samples * training, product),
            **measure.memory(program),
        )


def _client_steps(task: Task, batch_size: int, learning_rate: float) -> Callable[..., PyTree]:
    """A function of `num_steps` steps of SGD of clients in lockstep, in a loop as in a round."""

    def train(params: PyTree, x: Array, y: Array, offset: Array, num_steps: Array) -> PyTree:
        def step(i: Array, params: PyTree) -> PyTree:
            index = (offset + i * batch_size + jnp.arange(batch_size)) % x.shape[0]
            batch = x[index], y[index], jnp.ones(batch_size, bool)
            gradient = measure.gradient(task)(params, *batch, jax.random.key(0))
            return jax.tree.map(lambda p, g: p - learning_rate * g, params, gradient)

        return jax.lax.fori_loop(0, num_steps, step, params)

    return jax.vmap(train, in_axes=(0, None, None, 0, None))
