"""The mode of flax.linen modules, whatever they call it, and padding that batch normalization must not see."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.core.module import apply_module
from fedsim.core.types import Variables

Y, MASK = np.arange(6) % 3, np.arange(6) < 4
X = np.random.default_rng(0).normal(1, 2, (6, 5)).astype(np.float32)


def trace(task):
    """Builds programs for initialization, training and evaluation, and runs none of them."""
    variables = jax.eval_shape(task.init, jax.random.key(0))
    jax.eval_shape(task.loss, variables, X, Y, MASK, jax.random.key(0))
    jax.eval_shape(task.metrics, variables, X, Y, MASK)


def layers(x, train):
    with jax.numpy_rank_promotion("allow"):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.5)(x)
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


def module(signature="x", train="False", fields=()):
    """A module with this signature, in training mode where the expression `train` is true."""
    body = "".join(f"    {field}\n" for field in fields)
    code = f"class Net(nn.Module):\n{body}    @nn.compact\n    def __call__(self, {signature}):\n"
    names = {"nn": nn, "layers": layers, "__name__": "nets"}
    exec(f"{code}        return layers(x, {train})\n", names)
    return names["Net"]


TRAINED = {
    "train=False": module("x, train=False", "train"),
    "train": module("x, train", "train"),
    "train, /": module("x, train, /", "train"),
    "*, training=True": module("x, *, training=True", "training"),
    "is_training": module("x, width=1, is_training=False", "is_training"),
    "deterministic": module("x, deterministic=True", "not deterministic"),
    "use_running_average": module("x, use_running_average=None", "use_running_average is False"),
    "field": module(train="self.train", fields=["train: bool = False"]),
    "other field": module(train="not self.deterministic", fields=["deterministic: bool = True"]),
    "static": nn.remat(module("x, train=False", "train"), static_argnums=(2,)),
    "wrapped": nn.jit(module("x, train=False", "train"), static_argnums=(2,)),
}


@pytest.mark.parametrize("net", TRAINED.values(), ids=TRAINED)
def test_a_module_trains_in_training_only_and_never_sees_padding(net):
    task = fedsim.classification(net(), X[0])
    variables = task.init(jax.random.key(0))
    losses, statistics = jax.jit(jax.vmap(lambda key: task.loss(variables, X, Y, MASK, key)))(
        jax.random.split(jax.random.key(1))
    )
    assert losses[0] != losses[1]
    statistics = jax.tree.map(lambda a: np.asarray(a[0]), statistics)
    norm = statistics["batch_stats"]["BatchNorm_0"]
    np.testing.assert_allclose(norm["mean"], X[:4].mean(axis=0) / 2, rtol=1e-4)
    np.testing.assert_allclose(norm["var"], 0.5 + X[:4].var(axis=0) / 2, rtol=1e-4)
    metrics = task.metrics(variables._replace(statistics=statistics), X, Y, MASK)
    layer = variables.params["Dense_0"]
    kernel, bias = (np.asarray(layer[name], float) for name in ("kernel", "bias"))
    logits = (X[:4] - norm["mean"]) / np.sqrt(norm["var"] + 1e-5) @ kernel + bias
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(4), Y[:4]]
    np.testing.assert_allclose(metrics.loss_sum, losses.sum(), rtol=1e-5)


class Returning(nn.Module):
    """Returns what `f` makes of the outputs."""

    f: object

    @nn.compact
    def __call__(self, x):
        return self.f(self, nn.Dense(3)(x))


REFUSED = {
    "an unknown mode": (module("x, is_test=True", "not is_test"), "Net takes is_test, which fedsim does not know"),
    "an unknown flag": (
        module("x, active=False", "active"),
        "dropout and normalization layers of Net are off in training, .* argument active",
    ),
    "hidden": (
        module("x, **options", "options.get('train')"),
        "dropout and normalization layers of Net are off in training, .* options",
    ),
    "traced": (
        nn.remat(module("x, train=False", "train")),
        "CheckpointNet branches on a traced value, .*static_argnums",
    ),
    "a key": (module("x, key"), "Net needs key, which fedsim does not pass; give it a default"),
    "always training": (module(train="True"), "Net is in training mode in evaluation, too .*; let it take `train`"),
    "two outputs": (lambda: Returning(lambda net, y: (y, y)), r"must return an array \[6, \.\.\.\] .*, got tuple"),
    "one output": (lambda: Returning(lambda net, y: y.mean(axis=0)), r"must return an array .*, got \(3,\)"),
    "no classes": (lambda: Returning(lambda net, y: y[:, 0]), r"must return logits \[B, num_classes\], got .* \(6,\)"),
    "sown": (
        lambda: Returning(lambda net, y: (net.sow("losses", "l2", jnp.sum(y)), y)[1]),
        'the variables "losses" must keep structure and shapes in training',
    ),
    "noise": (
        lambda: Returning(
            lambda net, y: y + (0 if net.is_initializing() else jax.random.uniform(net.make_rng("noise")))
        ),
        r'Returning is in training mode in evaluation, too .*"noise".*; let it take `train`',
    ),
    "a later variable": (
        lambda: Returning(lambda net, y: (net.is_initializing() or net.put_variable("calls", "n", y), y)[1]),
        "Returning cannot be called in training mode .*immutable",
    ),
}


@pytest.mark.parametrize(("net", "message"), REFUSED.values(), ids=REFUSED)
def test_a_module_that_cannot_be_told_its_mode_is_refused(net, message):
    with pytest.raises(ValueError, match=f"^module: {message}") as caught:
        trace(fedsim.classification(net(), X[0]))
    assert "\n" not in str(caught.value)


class Noisy(nn.Module):
    """Returns random numbers of a stream in each column in training, and zeros in evaluation."""

    @nn.compact
    def __call__(self, x, train=False):
        streams = ["dropout", "noise", "depth", "noise"]
        draw = lambda name: jax.random.uniform(self.make_rng(name), x.shape[:1]) if train else jnp.zeros(len(x))
        return jnp.stack([draw(name) for name in streams], axis=1)


def test_every_stream_of_random_numbers_has_a_key_in_training():
    key, none = jax.random.key(3), Variables({})
    draws = np.asarray(apply_module(Noisy(), none, X, MASK, key)[0])
    assert len(np.unique(draws)) == draws.size
    given = Noisy().apply({}, X, True, rngs={"dropout": key, "noise": key, "depth": key})
    np.testing.assert_array_equal(draws[:, 0], given[:, 0])  # as without other streams
    assert not np.isin(apply_module(Noisy(), none, X, MASK, jax.random.key(4))[0], draws).any()
    assert not np.any(apply_module(Noisy(), none, X, MASK)[0])
