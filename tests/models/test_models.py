"""Parameter counts and definitions of the models; values and gradients of the LSTM against those of flax."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.config.registry import find
from fedsim.core.task import classification
from fedsim.core.types import DataSpec, Variables
from fedsim.models import MLP, CharLSTM, Cifar10CNN, FemnistCNN, LeNet5, ResNet18
from fedsim.models.recurrent import LSTM

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("module", "example", "num_params"),
    [
        (Cifar10CNN(), np.zeros((32, 32, 3), np.uint8), 122_570),
        (FemnistCNN(), np.zeros((28, 28, 1), np.uint8), 455_232),
        (CharLSTM(), np.zeros(80, np.int32), 817_872),
        # Each further hidden unit has a weight per input and output, and a bias.
        (Cifar10CNN(dense_size=128), np.zeros((32, 32, 3), np.uint8), 122_570 + 64 * (1024 + 1 + 10)),
        (FemnistCNN(dense_size=128), np.zeros((28, 28, 1), np.uint8), 455_232 + 2 * (3136 + 1 + 62)),
        # The count that McMahan et al. 2017 state for their CNN for MNIST.
        (FemnistCNN(10, dense_size=512), np.zeros((28, 28, 1), np.uint8), 1_663_370),
        # Layer by layer: 5x5 kernels and biases, then dense layers on 16 maps of 5x5.
        (LeNet5(), np.zeros((28, 28, 1), np.uint8), 6 * 26 + 16 * 151 + 120 * 401 + 84 * 121 + 10 * 85),
        (LeNet5(), np.zeros((32, 32, 3), np.uint8), 6 * 76 + 16 * 151 + 120 * 401 + 84 * 121 + 10 * 85),
        (MLP(10, ()), np.zeros((28, 28, 1), np.uint8), 785 * 10),
        (MLP(3, ()), np.zeros(5, np.float32), 6 * 3),
        # The usual count for CIFAR-10 with batch normalization, which has as many parameters.
        (ResNet18(), np.zeros((32, 32, 3), np.uint8), 11_173_962),
    ],
)
def test_parameter_counts(module, example, num_params):
    variables = jax.eval_shape(classification(module, example).init, KEY)
    assert sum(leaf.size for leaf in jax.tree.leaves(variables.params)) == num_params


def convolve(x, p, stride=1):
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, p["kernel"], (stride, stride), "SAME", dimension_numbers=layout)


def reference_norm(x, p):
    """Group normalization with two groups."""
    halves = []
    for half in jnp.split(x, 2, axis=-1):
        centered = half - half.mean(axis=(1, 2, 3), keepdims=True)
        halves.append(centered / jnp.sqrt((centered**2).mean(axis=(1, 2, 3), keepdims=True) + 1e-5))
    return jnp.concatenate(halves, axis=-1) * p["scale"][None, None, None] + p["bias"][None, None, None]


def reference_block(p, x, stride):
    y = nn.relu(reference_norm(convolve(x, p["Conv_0"], stride), p["GroupNorm_0"]))
    y = reference_norm(convolve(y, p["Conv_1"]), p["GroupNorm_1"])
    if "Conv_2" in p:
        x = reference_norm(convolve(x, p["Conv_2"], stride), p["GroupNorm_2"])
    return nn.relu(x + y)


def reference_resnet18(p, x):
    x = nn.relu(reference_norm(convolve(x, p["Conv_0"]), p["GroupNorm_0"]))
    for number in range(8):
        x = reference_block(p[f"Block_{number}"], x, 2 if number in (2, 4, 6) else 1)
    return x.mean(axis=(1, 2)) @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"][None]


def perturb(params):
    """Parameters without initial values such as scales of 1 and biases of 0."""
    return jax.tree.map(lambda p: p + 0.1 * jax.random.normal(KEY, p.shape), params)


def test_resnet18_equals_the_reference():
    module, x = ResNet18(3, width=4), jax.random.normal(KEY, (2, 10, 9, 3))
    params = perturb(jax.jit(module.init)(KEY, x)["params"])
    got, expected = jax.jit(lambda p: (module.apply({"params": p}, x), reference_resnet18(p, x)))(params)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("module", [ResNet18(width=4), LeNet5(), MLP(10, ())])
def test_compute_dtype_follows_parameters_and_inputs(module):
    x = jnp.zeros((2, 12, 12, 3), jnp.bfloat16)
    params = jax.eval_shape(module.init, KEY, x)
    bfloat16_params = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, jnp.bfloat16), params)
    assert jax.eval_shape(module.apply, bfloat16_params, x).dtype == jnp.bfloat16


def test_groups_that_do_not_divide_the_channels_raise():
    spec = DataSpec("image", 10, (32, 32, 3), "uint8")
    with pytest.raises(ValueError, match=r"groups: .*64, got 3"):
        find("model.name", "resnet18").make(spec, groups=3)


def test_resnet18_initialization_is_he_normal():
    """Standard deviation sqrt(2 / inputs) in the blocks; the dense layer is Glorot-uniform."""
    params = jax.jit(ResNet18(width=16).init)(KEY, jnp.zeros((1, 8, 8, 3)))["params"]
    for kernel in (params["Block_0"]["Conv_0"]["kernel"], params["Block_2"]["Conv_2"]["kernel"]):
        assert kernel.std() == pytest.approx(np.sqrt(2 / np.prod(kernel.shape[:3])), rel=0.1)
    limit = np.sqrt(6 / (128 + 10))
    assert 0.95 * limit < np.abs(params["Dense_0"]["kernel"]).max() <= limit


def test_lenet_zero_pads_small_images():
    """As in LeCun et al.: a 28x28 image has the same output as its center in 32x32 zeros."""
    x = jax.random.uniform(KEY, (2, 28, 28, 1))
    params = jax.jit(LeNet5().init)(KEY, x)
    padded = jnp.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    got, expected = jax.jit(lambda p: (LeNet5().apply(p, x), LeNet5().apply(p, padded)))(params)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_lstm_equals_flax_lstm():
    """Values and gradients under `vmap` over parameters and inputs."""
    x = jax.random.normal(KEY, (2, 7, 3, 5))
    ours, size = LSTM(6), 6

    def theirs(params, x):
        gates = {}
        for i, gate in enumerate("ifgo"):
            columns = slice(size * i, size * (i + 1))
            gates["i" + gate] = {"kernel": params["input_kernel"][:, columns]}
            gates["h" + gate] = {"kernel": params["recurrent_kernel"][:, columns], "bias": params["bias"][columns]}
        with jax.numpy_rank_promotion("allow"):
            return nn.RNN(nn.OptimizedLSTMCell(size), time_major=True).apply({"params": {"cell": gates}}, x)

    params = jax.vmap(lambda key: ours.init(key, x[0])["params"])(jax.random.split(KEY, 2))
    params["bias"] = jax.random.normal(KEY, params["bias"].shape)
    loss = lambda apply: lambda params, x: (lambda y: (jnp.sum(jnp.sin(y)), y))(apply(params, x))
    both = [jax.grad(loss(f), (0, 1), has_aux=True) for f in (lambda p, x: ours.apply({"params": p}, x), theirs)]
    got, expected = (jax.jit(jax.vmap(gradient))(params, x) for gradient in both)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_lstm_initialization_per_gate():
    """The forget gate, whose bias may be another, is the second of four."""
    params, biased = (LSTM(6, bias).init(KEY, jnp.zeros((1, 1, 5)))["params"] for bias in (0.0, 1.0))
    assert not params["bias"].any()
    np.testing.assert_array_equal(biased["bias"], np.repeat([0, 1, 0, 0], 6))
    limit = np.sqrt(6 / (5 + 6))  # Glorot-uniform of 5 x 6
    assert 0.7 * limit < np.abs(params["input_kernel"]).max() <= limit
    for gate in np.split(np.asarray(params["recurrent_kernel"]), 4, axis=1):
        np.testing.assert_allclose(gate @ gate.T, np.eye(6), atol=1e-5)


IMAGE = np.random.default_rng(0).integers(0, 256, (28, 28, 1), np.uint8)


@pytest.mark.parametrize(
    ("module", "example"),
    [
        (FemnistCNN(4), IMAGE),
        pytest.param(ResNet18(4, 4), IMAGE[:9, :10], marks=pytest.mark.slow),
        (CharLSTM(5, 3, 4, dropout_rate=0.0), np.arange(5, dtype=np.int32)),
    ],
)
def test_bfloat16_agrees_within_its_precision(module, example):
    """Parameters and gradients stay float32; loss and gradient agree within a few units of bfloat16's 8 bits."""
    float32_task, bfloat16_task = (
        classification(module, example, dtype=dtype) for dtype in (jnp.float32, jnp.bfloat16)
    )
    params, statistics = jax.jit(float32_task.init)(KEY)
    batch = jnp.asarray(np.stack([example, example[::-1]])), jnp.asarray([0, 1]), jnp.ones(2, bool), KEY

    def loss_of(task, params):
        return task.loss(Variables(params, statistics), *batch)[0]

    (loss, gradient), (bfloat16_loss, bfloat16_gradient) = (
        jax.jit(jax.value_and_grad(partial(loss_of, task)))(params) for task in (float32_task, bfloat16_task)
    )
    assert {bfloat16_loss.dtype, *(leaf.dtype for leaf in jax.tree.leaves(bfloat16_gradient))} == {
        jnp.dtype(jnp.float32)
    }
    assert bfloat16_loss != loss
    np.testing.assert_allclose(bfloat16_loss, loss, rtol=0.02)
    bfloat16_flat, flat = (
        np.concatenate([np.ravel(a) for a in jax.tree.leaves(g)]) for g in (bfloat16_gradient, gradient)
    )
    assert np.linalg.norm(bfloat16_flat - flat) < 0.1 * np.linalg.norm(flat)


@pytest.mark.parametrize("dropout_at", ["inputs", "outputs"])
def test_dropout_masks_inputs_or_outputs(dropout_at):
    """A mask of inputs is constant over a text, a mask of outputs is not; kept values are scaled by 1 / (1 - rate)."""
    rate, size = 0.4, 16
    module = CharLSTM(7, 8, size, dropout_rate=rate, dropout_at=dropout_at, forget_bias=1.0)
    x = jax.random.randint(KEY, (12, 10), 0, 7)
    params = jax.jit(module.init)(KEY, x)["params"]
    run = partial(module.apply, train=True, capture_intermediates=True, mutable=["intermediates"])
    logits, captured = jax.jit(run)({"params": params}, x, rngs={"dropout": jax.random.key(2)})
    out = {name: value["__call__"][0] for name, value in captured["intermediates"].items() if name != "__call__"}
    lstm = lambda number, x: LSTM(size).apply({"params": params[f"LSTM_{number}"]}, x)
    masks = [(np.asarray(out[f"Dropout_{number}"]) != 0) for number in (0, 1)]
    if dropout_at == "inputs":
        dropped = out["embedding"], out["LSTM_0"]
        after = lstm(0, out["Dropout_0"]), lstm(1, out["Dropout_1"]), out["LSTM_1"][-1]
        assert all((mask == mask[:1]).all() for mask in masks)
    else:
        dropped = out["LSTM_0"], out["LSTM_1"][-1]
        after = lstm(0, out["embedding"]), lstm(1, out["Dropout_0"]), out["Dropout_1"]
        assert (masks[0] != masks[0][:1]).any()
        assert masks[1].shape == (12, size)
    for number, (mask, before) in enumerate(zip(masks, dropped, strict=True)):
        np.testing.assert_allclose(out[f"Dropout_{number}"], np.where(mask, before / (1 - rate), 0), rtol=1e-5)
        assert abs(mask.mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / (mask[0].size))
    for number in (0, 1):
        np.testing.assert_allclose(out[f"LSTM_{number}"], after[number], atol=1e-5)
    expected = after[2] @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"][None]
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_dropout_of_the_perceptron_masks_hidden_units():
    x, size, rate = jax.random.normal(KEY, (12, 6)), 200, 0.3
    module = MLP(3, (size, size), dropout_rate=rate)
    variables = module.init(KEY, x)
    outputs, state = module.apply(variables, x, True, rngs={"dropout": KEY}, capture_intermediates=True)
    layer = {
        name: np.asarray(values["__call__"][0], float)
        for name, values in state["intermediates"].items()
        if name != "__call__"
    }
    for number in (0, 1):
        mask, hidden = layer[f"Dropout_{number}"] != 0, np.maximum(layer[f"Dense_{number}"], 0)
        np.testing.assert_allclose(layer[f"Dropout_{number}"], np.where(mask, hidden / (1 - rate), 0), rtol=1e-5)
        assert abs(mask[hidden > 0].mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / (hidden > 0).sum())
        kernel, bias = (np.asarray(variables["params"][f"Dense_{number + 1}"][name]) for name in ("kernel", "bias"))
        after = layer[f"Dense_{number + 1}"]
        np.testing.assert_allclose(after, layer[f"Dropout_{number}"] @ kernel + bias, atol=1e-5)
    np.testing.assert_array_equal(outputs, layer["Dense_2"])
