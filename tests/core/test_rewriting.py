"""Convolutions and max pools in their fast form, against those of `lax`."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fedsim
from fedsim.core.client import loss_gradient
from fedsim.core.rewriting import for_backend, rewrite

KEY = jax.random.key(0)
KERNEL = jax.random.normal(KEY, (3, 3, 3, 3))
FORMS = {False: ("N{}C", "{}IO", "N{}C"), True: ("NC{}", "OI{}", "NC{}")}  # by whether channels come first


def is_rewritten(function, *args):
    """Whether its trace has no convolution and no pool of XLA."""
    text = str(jax.make_jaxpr(function)(*args))
    return not any(name in text for name in ("conv_general_dilated", "reduce_window", "select_and", "scatter"))


def convolve(x, kernel=KERNEL):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@st.composite
def networks(draw):
    """A convolution, bias, relu and pool, with shapes of `(x, kernel, bias)`; whether it is to be rewritten."""
    pick = lambda *values: draw(st.sampled_from(values))
    num_axes, first = pick(1, 2, 2, 2, 3), draw(st.booleans())
    some = lambda *values: [pick(*values) for _ in range(num_axes)]
    groups, transposed, names = pick(1, 1, 1, 2), pick(1, 1, 1, 2), "DHW"[-num_axes:]
    window, strides, dilation, sizes = some(1, 2, 2, 3), some(1, 1, 2), some(1, 1, 2), some(1, 2, 3)
    reach = [rate * (size - 1) for rate, size in zip(dilation, sizes, strict=True)]  # XLA's gradient fails beyond it
    causal, full = [(size, 0) for size in reach], [(size, size) for size in reach]
    padding = pick("SAME", "VALID", causal) if transposed == 1 else full
    steps, around, relu_first = pick(window, some(1, 2, 3)), pick("VALID", "SAME"), draw(st.booleans())
    layout = [form.format(names) for form in FORMS[first]]
    place = lambda sizes, fill: (fill, fill, *sizes) if first else (fill, *sizes, fill)
    shape = lambda spec, sizes: [sizes.get(name, 3) for name in spec]
    sides = dict(zip(names, some(11, 12, 13), strict=True)) | {"N": 2, "C": 4}
    kernel = dict(zip(names, sizes, strict=True)) | {"I": 4 // groups, "O": 6}

    def apply(x, kernel, bias):
        y = lax.conv_general_dilated(
            x, kernel, strides, padding, [transposed] * num_axes, dilation, layout, feature_group_count=groups
        )
        y = y + bias.reshape(shape(layout[2], {"C": 6} | dict.fromkeys("N" + names, 1)))
        y = nn.relu(y) if relu_first else y
        y = lax.reduce_window(y, -jnp.inf, lax.max, place(window, 1), place(steps, 1), around)
        return y if relu_first else nn.relu(y)

    return apply, (shape(layout[0], sides), shape(layout[1], kernel), [6]), groups == transposed == 1


@settings(max_examples=25)
@given(networks(), st.integers(0, 100))
def test_values_and_gradients_are_those_of_lax(network, seed):
    """Under `jit` and `vmap` over inputs, kernels and biases; small integers make ties in windows."""
    apply, shapes, is_ours = network
    rng = np.random.default_rng(seed)
    arrays = [jnp.asarray(rng.integers(-2, 3, (2, *shape)), jnp.float32) for shape in shapes]

    def loss(apply):
        return lambda *args: (lambda y: (jnp.sum(jnp.sin(1 + y)), y))(apply(*args))

    gradients = [jax.vmap(jax.grad(loss(f), (0, 1, 2), has_aux=True)) for f in (rewrite(apply), apply)]
    (got, y), (expected, y_expected) = jax.jit(lambda *args: [gradient(*args) for gradient in gradients])(*arrays)
    np.testing.assert_array_equal(y, y_expected)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
    if is_ours:
        assert is_rewritten(gradients[0], *arrays)


class NormalizedPool(nn.Module):
    """What stands before the pool may be computed twice, and rounded differently."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.GroupNorm(1)(nn.Conv(5, (2, 2))(x)))
        x = nn.avg_pool(nn.max_pool(x, (2, 2), (1, 1), padding="SAME"), (2, 2), (2, 2))
        return nn.Dense(3)(x.reshape(len(x), -1))


def test_the_gradient_of_a_pool_behind_a_normalization():
    x, model = jax.random.normal(KEY, (4, 6, 6, 3)), NormalizedPool()
    loss = lambda variables: jax.nn.logsumexp(model.apply(variables, x)[:, 0])
    variables = jax.tree.map(lambda a: a + 0.1, jax.jit(model.init)(KEY, x))
    found, expected = (jax.jit(jax.grad(fn))(variables) for fn in (rewrite(loss), loss))
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_pool_comes_first_and_saves_what_it_does_not_cover():
    """Of 7 x 7 outputs a 2x2 pool needs 6 x 6; bias and relu are computed for 3 x 3."""
    model = lambda x, bias: nn.max_pool(nn.relu(convolve(x) + bias.reshape(1, 1, 1, -1)), (2, 2), (2, 2))
    text = str(jax.make_jaxpr(rewrite(model))(jnp.ones((2, 7, 7, 3)), jnp.ones(3)))
    (product,) = (line for line in text.splitlines() if "dot_general[" in line)
    assert "[2,6,6,3]" in product
    assert "[2,7,7,3] = custom_jvp_call" not in text
    assert "[2,3,3,3] = custom_jvp_call" in text


def test_products_have_the_precision_of_their_convolution():
    loss = lambda x, kernel: jnp.sum(lax.conv(x, kernel, (1, 1), "SAME", precision="highest") ** 2)
    trace = jax.make_jaxpr(jax.grad(rewrite(loss), argnums=(0, 1)))(jnp.ones((2, 3, 5, 5)), jnp.ones((4, 3, 3, 3)))
    assert str(trace).count("dot_general") == str(trace).count("Precision.HIGHEST, Precision.HIGHEST") == 3


@jax.custom_vjp
def reversed_gradient(x):
    return convolve(x)


reversed_gradient.defvjp(lambda x: (convolve(x), None), lambda _, g: (-g,))


@pytest.mark.parametrize(
    ("function", "is_all"),
    [
        (jax.jit(convolve), True),
        (jax.checkpoint(convolve), True),
        (lambda x: lax.scan(lambda x, _: (convolve(x), x[0]), x, length=2), True),
        (lambda x: lax.fori_loop(0, jnp.int32(x[0, 0, 0, 0]), lambda _, x: convolve(x), x), True),
        (lambda x: lax.cond(x[0, 0, 0, 0] > 0, convolve, lambda x: -x, x), True),
        (lambda x: convolve(lax.stop_gradient(x)) + jax.random.normal(KEY, x.shape), True),
        (reversed_gradient, False),
        (lambda x: convolve(x.astype(jnp.int8), jnp.ones(KERNEL.shape, jnp.int8)), False),
    ],
)
def test_bodies_are_rewritten_and_the_unknown_stays(function, is_all):
    x = jnp.full((2, 6, 5, 3), 2.0)
    both = jax.jit(lambda x: [f(x) for f in (rewrite(function), function)])(x)
    for a, b in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert is_rewritten(rewrite(function), x) == is_all
    if function is reversed_gradient:
        gradient = jax.grad(lambda x: jnp.sum(rewrite(function)(x)))(x)
        np.testing.assert_array_equal(gradient, -jnp.ones_like(x))


class Net(nnx.Module):
    def __init__(self, *, rngs):
        self.conv, self.norm = nnx.Conv(1, 4, (3, 3), rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.dense = nnx.Linear(36, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        return self.dense(x.reshape(len(x), -1))


def test_the_task_of_an_nnx_module_is_rewritten_except_for_tpus():
    """The outermost call of `for_backend` decides. Loss, gradient, statistics and metrics are the same."""
    task = fedsim.classification(nnx.bridge.to_linen(Net), np.zeros((7, 6, 1), np.float32))
    forms = {name: for_backend(task, name) for name in ("gpu", "tpu")}
    variables = jax.jit(task.init)(KEY)
    batch = jax.random.normal(KEY, (4, 7, 6, 1)), jnp.asarray([0, 2, 1, 0]), jnp.asarray([True, True, True, False])
    both = {}
    for name, form in forms.items():
        step = jax.vmap(loss_gradient(form), (0, 0, None, None, None, None))
        params, statistics = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), variables)
        both[name] = jax.jit(step)(params, statistics, *batch, KEY), jax.jit(form.metrics)(variables, *batch)
        assert is_rewritten(step, params, statistics, *batch, KEY) == (name == "gpu")
    for a, b in zip(*map(jax.tree.leaves, both.values()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
