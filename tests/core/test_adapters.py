"""Low-rank adapters against NumPy and full training: outputs, gradients, what is trained, base weights from files."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import fedsim
from fedsim.core.adapters import with_adapters
from fedsim.engine import make_plan
from fedsim.errors import ConfigError, RunFolderError
from fedsim.models import MLP
from fedsim.runs.arrays import by_path, from_paths

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 5)).astype(np.float32), RNG.integers(0, 3, 12)
MASK = np.ones(12, bool)
TASK = fedsim.classification(MLP(3, (4,)), X[0])


def random_model():
    shapes = {"Dense_0/kernel": (5, 4), "Dense_0/bias": (4,), "Dense_1/kernel": (4, 3), "Dense_1/bias": (3,)}
    return {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def forward(arrays, x):
    """The logits in float64."""
    hidden = np.maximum(x @ np.float64(arrays["Dense_0/kernel"]) + arrays["Dense_0/bias"], 0)
    return hidden @ np.float64(arrays["Dense_1/kernel"]) + arrays["Dense_1/bias"]


def nonzero(variables):
    return jax.tree.map(lambda a: jnp.asarray(RNG.normal(size=a.shape), jnp.float32), variables)


def test_outputs_are_those_of_merged_kernels():
    base = random_model()
    task = with_adapters(TASK, rank=2, alpha=6.0, base=base)
    variables = nonzero(task.init(jax.random.key(0)))
    assert sorted(variables.params) == [f"Dense_{i}/lora_{factor}" for i in range(2) for factor in "ab"]
    merged = dict(base)
    for layer in ("Dense_0", "Dense_1"):
        a, b = (np.float64(variables.params[f"{layer}/lora_{factor}"]) for factor in "ab")
        merged[f"{layer}/kernel"] = base[f"{layer}/kernel"] + 6.0 / 2 * a @ b
    np.testing.assert_allclose(task.outputs(variables, X), forward(merged, X), rtol=1e-5, atol=1e-5)


def test_statistics_start_as_those_of_the_base():
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            return nn.Dense(3)(nn.BatchNorm(use_running_average=not train)(x))

    task = fedsim.classification(Normed(), X[0])
    trained = nonzero(task.init(jax.random.key(0)))
    trained = trained._replace(statistics=jax.tree.map(jnp.square, trained.statistics))
    base, mean = by_path(trained), "statistics/batch_stats/BatchNorm_0/mean"
    adapted = with_adapters(task, rank=1, alpha=1.0, base=base)
    outputs = adapted.outputs(adapted.init(jax.random.key(1)), X)
    np.testing.assert_allclose(outputs, task.outputs(trained, X), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=rf"must have the array {mean} \(5,\), got"):
        with_adapters(task, rank=1, alpha=1.0, base={name: base[name] for name in base if name != mean})
    with pytest.raises(ValueError, match=rf"must have the array {mean}"):
        with_adapters(task, rank=1, alpha=1.0, whole=("*",), base={name: base[name] for name in base if name != mean})
    with pytest.raises(ValueError, match=rf"{mean} must have shape \(5,\), got \(1,\)"):
        with_adapters(task, rank=1, alpha=1.0, base=base | {mean: np.zeros(1)})


def test_a_layer_may_be_named_statistics():
    variables = fedsim.Variables({"statistics": {"bias": np.ones(2)}}, {"batch_stats": {"mean": np.zeros(3)}})
    arrays = by_path(variables)
    assert list(arrays) == ["statistics/bias", "statistics/batch_stats/mean"]
    jax.tree.map(np.testing.assert_array_equal, from_paths(arrays, variables), variables)


def test_gradient_of_one_layer():
    """Those of a and b are x^T G b^T and a^T x^T G, with the gradient G of the logits."""
    task = with_adapters(fedsim.classification(nn.Dense(3), X[0]), rank=2, alpha=1.0)
    variables = nonzero(task.init(jax.random.key(0)))
    frozen = {name: np.float64(array) for name, array in task.frozen.items()}
    a, b = np.float64(variables.params["lora_a"]), np.float64(variables.params["lora_b"])
    logits = X @ (frozen["kernel"] + a @ b / 2) + frozen["bias"]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    inner = X.T.astype(np.float64) @ (shares - np.eye(3)[Y]) / len(Y) / 2
    loss = lambda params: task.loss(fedsim.Variables(params), X, Y, MASK, jax.random.key(0))[0]
    gradient = jax.grad(loss)(variables.params)
    np.testing.assert_allclose(gradient["lora_a"], inner @ b.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradient["lora_b"], a.T @ inner, rtol=1e-4, atol=1e-6)


def sgd(task, variables):
    """The model after five steps."""
    gradient = jax.jit(jax.grad(lambda params: task.loss(fedsim.Variables(params), X, Y, MASK, jax.random.key(0))[0]))
    params = variables.params
    for _ in range(5):
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, gradient(params))
    return variables._replace(params=params)


def test_full_rank_is_full_training():
    """With a a^T = 1 and alpha = rank, steps on b are those on the kernel."""
    base = random_model()
    factors = {f"{layer}/lora_a": np.eye(size, 5, dtype=np.float32) for layer, size in (("Dense_0", 5), ("Dense_1", 4))}
    task = with_adapters(TASK, rank=5, alpha=5.0, factors="b", whole=("*/bias",), base=base | factors)
    adapted = sgd(task, task.init(jax.random.key(0)))
    params = {layer: {name: base[f"{layer}/{name}"] for name in ("kernel", "bias")} for layer in ("Dense_0", "Dense_1")}
    full = sgd(TASK, fedsim.Variables(params))
    assert not np.allclose(TASK.outputs(full, X), forward(base, X), atol=0.1)
    np.testing.assert_allclose(task.outputs(adapted, X), TASK.outputs(full, X), rtol=1e-4, atol=1e-5)


def test_rank_0_trains_what_is_whole():
    task = with_adapters(TASK, rank=0, alpha=1.0, whole=("Dense_1/*",))
    assert sorted(task.init(jax.random.key(3)).params) == ["Dense_1/bias", "Dense_1/kernel"]
    assert sorted(task.frozen) == ["Dense_0/bias", "Dense_0/kernel"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"whole": ("Dense_7/*",)}, r"no array matches Dense_7/\*; the arrays are Dense_0/"),
        ({"base": random_model() | {"Dense_0/kernel": X}}, r"Dense_0/kernel must have shape \(5, 4\), got \(12, 5\)"),
        ({"base": {"Dense_1/kernel": np.ones((4, 3))}}, r"must have the array Dense_0/bias \(4,\), got Dense_1/kernel"),
        ({"base": {"0.weight": X}, "whole": ("*",)}, r"arrays of the model, Dense_0/bias \(4,\), .*, got 0\.weight$"),
    ],
)
def test_arrays_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        with_adapters(TASK, rank=1, alpha=1.0, **options)


def test_models_without_dense_layers_are_refused():
    model = fedsim.from_functions(lambda key: jnp.ones((5, 3)), lambda params, x, key: x @ params)
    with pytest.raises(ValueError, match=r"needs layers of flax\.linen\.Dense, but the model has none"):
        with_adapters(fedsim.classification(model, X[0]), rank=1, alpha=1.0)


TABLES = {
    "data": {"num_train": 90, "num_test": 40, "num_clients": 3},
    "mlp": {"hidden_sizes": [6]},
    "server": {"aggregator": "rfa", "cohort_size": 3, "num_rounds": 2, "eval_every": 1},
    "record": {"models": True},
}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder with the arrays of a trained model in both formats, and its accuracy."""
    folder = tmp_path_factory.mktemp("base")
    result = fedsim.run(TABLES, out=folder / "run", progress=False)
    arrays = result.model(0).arrays
    np.savez(folder / "base.npz", **arrays)
    save_file(arrays, folder / "base.safetensors")
    return folder, result.rounds["test_accuracy"][-1]


def test_runs_start_with_the_base_and_train_adapters_alone(pretrained, tmp_path):
    folder, accuracy = pretrained
    tables = TABLES | {"adapter": {"rank": 2, "alpha": 4.0}}
    bases = fedsim.sweep([str(folder / name) for name in ("base.npz", "base.safetensors")])
    experiment = fedsim.load(tables, adapter__base=bases, seed=fedsim.sweep([0, 1]))
    result = fedsim.run(experiment, out=tmp_path / "run", progress=False)
    rounds = result.rounds
    assert rounds.filter(round=0)["test_accuracy"].to_list() == [accuracy] * 4
    model = result.model(1)
    assert all("/lora_" in name for name in model.variables.params)
    arrays, x = model.arrays, model.dataset.x_test.reshape(len(model.dataset.x_test), -1) / 255
    merged = lambda layer: arrays[f"{layer}/kernel"] + 4 / 2 * arrays[f"{layer}/lora_a"] @ arrays[f"{layer}/lora_b"]
    hidden = np.maximum(x @ merged("Dense_0") + arrays["Dense_0/bias"], 0)
    logits = model(model.dataset.x_test)
    np.testing.assert_allclose(hidden @ merged("Dense_1") + arrays["Dense_1/bias"], logits, rtol=1e-4, atol=1e-5)
    predicted = logits.argmax(axis=1)
    last = rounds.filter(run=1, round=2)["test_accuracy"].item()
    assert np.mean(predicted == model.dataset.y_test) == pytest.approx(last)


def test_another_base_is_noticed(pretrained, tmp_path):
    folder, _ = pretrained
    path = tmp_path / "base.npz"
    arrays = dict(np.load(folder / "base.npz"))
    np.savez(path, **arrays)
    tables = TABLES | {"adapter": {"rank": 1, "base": str(path)}}
    result = fedsim.run(tables, out=tmp_path / "run", progress=False)
    np.savez(path, **(arrays | {"Dense_0/bias": arrays["Dense_0/bias"] + 1}))
    with pytest.raises(RunFolderError, match=r"base\.npz has changed since its runs were computed"):
        fedsim.run(tables, out=tmp_path / "run", progress=False)
    with pytest.raises(ConfigError, match=r"adapter\.base: .*base\.npz has changed since the run"):
        result.model(0)
    path.unlink()
    with pytest.raises(ConfigError, match=r"adapter\.base: .*base\.npz: No such file or directory; restore it"):
        result.model(0)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ({"rank": 0}, r"adapter\.rank: 0 trains no adapters, so that adapter\.whole must name arrays, got none"),
        ({"rank": 1, "base": "missing.npz"}, r"adapter\.base: missing\.npz is no \.npz or \.safetensors file: No such"),
        ({"rank": 1, "whole": ["Conv_*"]}, r"adapter\.whole: no array matches Conv_\*"),
    ],
)
def test_settings_that_do_not_fit(adapter, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        fedsim.run(TABLES | {"adapter": adapter}, out=tmp_path / "run", progress=False)


def test_a_model_that_does_not_take_the_inputs_is_named_with_them():
    digits = {"model.name": "char_lstm", "server.aggregator": "fedavg", "adapter.rank": 1}
    with pytest.raises(ConfigError, match=r"^model\.name: char_lstm does not take uint8 .* \(8, 8, 1\): x: "):
        make_plan(fedsim.load(digits))
