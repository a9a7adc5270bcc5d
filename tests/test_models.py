"""The paper's networks: sizes, and layers against flax's own, forward and gradient."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.models import CharLSTM, Cifar10CNN, FemnistCNN
from fedsim.models.layers import ConvRelu, pool_relu
from fedsim.task import classification

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("module", "example", "num_params"),
    [
        (Cifar10CNN(), np.zeros((32, 32, 3), np.uint8), 122_570),
        (FemnistCNN(), np.zeros((28, 28, 1), np.uint8), 455_232),
        (CharLSTM(), np.zeros(80, np.int32), 817_872),
    ],
)
def test_parameter_counts(module, example, num_params):
    params = jax.eval_shape(classification(module, example).init, KEY)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == num_params


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("size", "padding"), [(3, "VALID"), (5, "SAME"), (2, "SAME")])
def test_convolution_is_flax_conv_pool_relu(size, padding, pool):
    x = jax.random.normal(KEY, (2, 9, 8, 3))
    ours, convolution = ConvRelu(4, size, padding, pool), nn.Conv(4, (size, size), padding=padding)
    params = ours.init(KEY, x)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, convolution.init(KEY, x))
    params = {"params": params["params"] | {"bias": jnp.asarray([0.3, -0.2, 0.0, 0.1])}}

    def theirs(params, x):
        y = nn.relu(convolution.apply(params, x))
        return nn.max_pool(y, (2, 2), (2, 2)) if pool else y

    np.testing.assert_allclose(ours.apply(params, x), theirs(params, x), rtol=1e-5, atol=1e-5)
    loss = lambda apply: lambda params, x: jnp.sum(jnp.sin(apply(params, x)))
    got, expected = (jax.grad(loss(apply), (0, 1))(params, x) for apply in (ours.apply, theirs))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 6, 4, 3), (1, 2, 2, 1)])
@pytest.mark.parametrize("ties", [False, True])
def test_pool_relu_is_flax_max_pool(shape, ties):
    x = jax.random.normal(KEY, shape)
    x = jnp.round(x) if ties else x
    bias = jnp.full(shape[-1], 0.25)
    theirs = lambda x, bias: nn.relu(nn.max_pool(x, (2, 2), (2, 2)) + bias[None, None, None])
    np.testing.assert_array_equal(pool_relu(x, bias), theirs(x, bias))
    gradient = lambda pool: jax.grad(lambda x, bias: jnp.sum(jnp.sin(1 + pool(x, bias))), (0, 1))(x, bias)
    for a, b in zip(gradient(pool_relu), gradient(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_layers_under_vmap_are_batched_matrix_products():
    """Over per-client kernels there is no convolution, no scatter, no gather: in value or gradient."""
    x, module = jnp.ones((2, 8, 8, 3)), ConvRelu(4, 3, pool=True)
    params = jax.vmap(lambda key: module.init(key, x))(jax.random.split(KEY, 3))
    loss = lambda params: jnp.sum(module.apply(params, x) ** 2)
    text = str(jax.make_jaxpr(jax.vmap(jax.grad(loss)))(params))
    assert "dot_general" in text
    assert not {"conv_general_dilated", "scatter", "select_and_scatter_add", "gather"} & set(
        text.replace("[", " ").split()
    )


def test_dropout_acts_in_training_only():
    module = CharLSTM(num_classes=5, embedding_size=3, hidden_size=4, dropout_rate=0.5)
    x = jax.random.randint(KEY, (2, 6), 0, 5)
    task = classification(module, np.asarray(x[0]))
    params, y, mask = task.init(KEY), jnp.asarray([0, 1]), jnp.ones(2, bool)
    losses = {float(task.loss(params, x, y, mask, jax.random.key(i))) for i in range(3)}
    assert len(losses) == 3
    assert float(task.metrics(params, x, y, mask).loss_sum) == float(task.metrics(params, x, y, mask).loss_sum)
    dry = classification(CharLSTM(5, 3, 4, dropout_rate=0.0), np.asarray(x[0]))
    mean = dry.metrics(params, x, y, mask).loss_sum / 2
    np.testing.assert_allclose(dry.loss(params, x, y, mask, KEY), mean, rtol=1e-6)
