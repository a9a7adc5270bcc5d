"""Numbers as targets, and several targets an example, against NumPy."""

import flax.linen as nn
import jax
import numpy as np
import pytest

import fedsim
from tests.core.test_module import MASK, X

KEY = jax.random.key(0)


def affine(layer):
    """The outputs for the inputs `X` in float64."""
    return X @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"])


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_the_loss_of_a_regression_is_half_the_mean_squared_error(shape):
    """Over examples and their targets of this `shape`; and so is its gradient. No prediction is correct."""
    y = np.random.default_rng(1).normal(size=(len(X), *shape)).astype(np.float32)
    task = fedsim.regression(nn.Dense(*shape or [1]), X[0])
    variables = task.init(KEY)
    loss, gradient = jax.value_and_grad(lambda variables: task.loss(variables, X, y, MASK, KEY)[0])(variables)
    errors = (affine(variables.params) - y.reshape(len(X), -1))[MASK]
    assert float(loss) == pytest.approx((errors**2).mean() / 2, rel=1e-5)
    np.testing.assert_allclose(gradient.params["kernel"], X[MASK].T @ errors / errors.size, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradient.params["bias"], errors.sum(axis=0) / errors.size, rtol=1e-4, atol=1e-6)
    metrics = task.metrics(variables, X, y, MASK)
    assert float(metrics.loss_sum) == pytest.approx((errors**2).mean(axis=1).sum() / 2, rel=1e-5)
    assert int(metrics.num_examples) == MASK.sum()
    assert np.isnan(metrics.num_correct)


def test_several_targets_per_example():
    """The loss is the mean cross-entropy over the labels, and an example is right by the share of them that is."""
    y = np.random.default_rng(0).integers(0, 3, (len(X), 4))
    task = fedsim.classification(nn.Sequential([nn.Dense(12), lambda x: x.reshape(len(x), 4, 3)]), X[0])
    variables = task.init(KEY)
    metrics = task.metrics(variables, X, y, MASK)
    logits = affine(variables.params["layers_0"]).reshape(-1, 4, 3)
    chosen = np.take_along_axis(logits, y[..., None], axis=2)[..., 0]
    losses = (np.log(np.exp(logits).sum(axis=2)) - chosen).mean(axis=1)[MASK]
    assert float(metrics.loss_sum) == pytest.approx(losses.sum(), rel=1e-5)
    right = (logits.argmax(axis=2) == y).mean(axis=1)[MASK]
    assert float(metrics.num_correct) == pytest.approx(right.sum(), rel=1e-5)
    assert int(metrics.num_examples) == MASK.sum()
    loss, _ = task.loss(variables, X, y, MASK, KEY)
    assert float(loss) == pytest.approx(losses.mean(), rel=1e-5)
