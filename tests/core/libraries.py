"""The same network by four libraries, from the same initial parameters: factories of models."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import fedsim

RNG = np.random.default_rng(0)
WEIGHTS = [(RNG.normal(size=sizes) / 4).astype(np.float32) for sizes in ((64, 8), (8, 10))]
BIASES = [np.linspace(-1, 1, len(weight.T), dtype=np.float32) for weight in WEIGHTS]


def flat(x):
    return x.reshape(len(x), -1)


def dense(i):
    given = lambda array: lambda *_: jnp.asarray(array)
    return nn.Dense(len(BIASES[i]), kernel_init=given(WEIGHTS[i]), bias_init=given(BIASES[i]))


def linen(spec):
    return nn.Sequential([flat, dense(0), nn.relu, dense(1)])


class Net(nnx.Module):
    def __init__(self, num_hidden, *, rngs):
        self.layers = nnx.List([nnx.Linear(64, num_hidden, rngs=rngs), nnx.Linear(num_hidden, 10, rngs=rngs)])
        for layer, weight, bias in zip(self.layers, WEIGHTS, BIASES, strict=True):
            layer.kernel[...], layer.bias[...] = weight, bias

    def __call__(self, x):
        return self.layers[1](nnx.relu(self.layers[0](flat(x))))


def nnx_module(spec):
    return Net(8, rngs=nnx.Rngs(0))


def nnx_class(spec):
    return lambda rngs: Net(8, rngs=rngs)


def equinox(spec):
    of_layers = lambda net: [array for layer in net.layers for array in (layer.weight, layer.bias)]
    arrays = [jnp.asarray(array) for pair in zip(WEIGHTS, BIASES, strict=True) for array in (pair[0].T, pair[1])]
    net = eqx.tree_at(of_layers, eqx.nn.MLP(64, 10, 8, depth=1, key=jax.random.key(0)), arrays)
    params, static = eqx.partition(net, eqx.is_array)
    return fedsim.from_functions(
        lambda key: params, lambda params, x, key: jax.vmap(eqx.combine(params, static))(flat(x))
    )


def haiku(spec):
    net = hk.transform(lambda x: hk.nets.MLP([8, 10])(flat(x)))

    def init(key):
        names = net.init(key, jnp.zeros((1, 64)))
        return {name: {"w": w, "b": b} for name, w, b in zip(names, WEIGHTS, BIASES, strict=True)}

    return fedsim.from_functions(init, lambda params, x, key: net.apply(params, key, x))
