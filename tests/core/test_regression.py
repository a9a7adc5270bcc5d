"""Numbers as targets, and several targets an example, against NumPy."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from tests.conftest import build_simulation

COUNTS = (3, 5, 9)
RATE, EPOCHS, ROUNDS = 0.1, 3, 4


class Affine(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(x)


def numbers(targets: int | None) -> fedsim.FederatedDataset:
    """Noisy linear functions of three features; `targets` None: y is [M]."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sum(COUNTS) + 6, 3))
    y = x @ rng.normal(size=(3, targets or 1)) + 0.5 + 0.1 * rng.normal(size=(len(x), targets or 1))
    y = y[:, 0] if targets is None else y
    owner = np.repeat(np.arange(len(COUNTS)), COUNTS)
    return fedsim.from_arrays(x[: len(owner)], y[: len(owner)], owner, x[len(owner) :], y[len(owner) :])


def parameters(variables):
    layer = variables.params["Dense_0"]
    return np.asarray(layer["kernel"], np.float64), np.asarray(layer["bias"], np.float64)


@pytest.mark.parametrize("targets", [None, 1, 2])
def test_rounds_are_least_squares_steps(targets):
    """Full batches, so that no order matters: gradient steps on half the mean squared error, averaged by counts."""
    dataset = numbers(targets)
    task = fedsim.regression(Affine(dataset.spec.num_outputs), dataset.train.x[0])
    simulation = build_simulation(
        task,
        lambda hparams: fedsim.aggregators.fedavg(),
        cohort_size=3,
        batch_size=9,
        max_num_examples=9,
        epochs=EPOCHS,
    )

    def run(data):
        state = simulation.init(jax.random.key(0), data, fedsim.HParams(RATE))
        return state.variables, *simulation.run_rounds(state, data, fedsim.HParams(RATE), ROUNDS)

    start, state, records = jax.jit(run)(dataset.train)
    w, b = parameters(start)
    x_of, y_of = (
        np.split(np.asarray(a, np.float64).reshape(len(a), -1), np.cumsum(COUNTS)[:-1])
        for a in (dataset.train.x, dataset.train.y)
    )
    for t in range(ROUNDS):
        before = [((x @ w + b - y) ** 2).mean() / 2 for x, y in zip(x_of, y_of, strict=True)]
        order = np.asarray(records.client_ids[t])
        np.testing.assert_allclose(records.losses[t], np.asarray(before)[order], rtol=1e-4)
        models = []
        for x, y in zip(x_of, y_of, strict=True):
            own_w, own_b = w, b
            for _ in range(EPOCHS):
                error = (x @ own_w + own_b - y) / y.size
                own_w, own_b = own_w - RATE * x.T @ error, own_b - RATE * error.sum(axis=0)
            models.append((own_w, own_b))
        w, b = (np.average(a, axis=0, weights=COUNTS) for a in zip(*models, strict=True))
    np.testing.assert_allclose(parameters(state.variables)[0], w, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(parameters(state.variables)[1], b, rtol=1e-4, atol=1e-6)

    metrics = fedsim.evaluate(task, state.variables, dataset.x_test, dataset.y_test)
    errors = dataset.x_test @ w + b - dataset.y_test.reshape(len(dataset.y_test), -1)
    assert float(metrics.loss_sum) == pytest.approx((errors**2).mean(axis=1).sum() / 2, rel=1e-4)
    assert int(metrics.num_examples) == 6
    assert np.isnan(metrics.num_correct)


class PerPosition(nn.Module):
    """Logits [B, 4, 3] of four labels an example."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(12)(x).reshape(x.shape[0], 4, 3)


def test_several_targets_per_example():
    """The loss is the mean cross-entropy over the labels, and an example is right by the share of them that is."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 5)), rng.integers(0, 3, (10, 4))
    dataset = fedsim.from_arrays(x[:8], y[:8], [0] * 3 + [1] * 5, x[8:], y[8:])
    assert dataset.spec.target_shape == (4,)
    task = fedsim.classification(PerPosition(), dataset.train.x[0])
    variables = task.init(jax.random.key(0))
    mask = jnp.arange(8) < 6
    x, y = jnp.asarray(dataset.train.x), jnp.asarray(dataset.train.y)
    metrics = task.metrics(variables, x, y, mask)
    w, b = parameters(variables)
    logits = (np.asarray(x, np.float64) @ w + b).reshape(8, 4, 3)
    chosen = np.take_along_axis(logits, np.asarray(y)[..., None], axis=2)[..., 0]
    losses = (np.log(np.exp(logits).sum(axis=2)) - chosen).mean(axis=1)
    assert float(metrics.loss_sum) == pytest.approx(losses[:6].sum(), rel=1e-5)
    right = (logits.argmax(axis=2) == np.asarray(y)).mean(axis=1)
    assert float(metrics.num_correct) == pytest.approx(right[:6].sum(), rel=1e-5)
    assert int(metrics.num_examples) == 6
    loss, _ = task.loss(variables, x, y, mask, jax.random.key(0))
    assert float(loss) == pytest.approx(losses[:6].mean(), rel=1e-5)
