"""Server optimizers as optax transformations; the gradient is minus the aggregate.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: "Adaptive Federated Optimization", ICLR 2021,
https://arxiv.org/abs/2003.00295
"""

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
import optax

from fedsim.core.settings import POSITIVE, Bounds, Traced
from fedsim.core.types import Array, PyTree, Scalar

FirstDecay = Annotated[Scalar, Traced(ge=0, lt=1), "decay of the first moment"]
SecondDecay = Annotated[Scalar, Traced(ge=0, lt=1), "decay of the second moment"]
Adaptivity = Annotated[Scalar, Traced(**POSITIVE), "tau, the degree of adaptivity"]
BiasCorrection = Annotated[bool, "divide the moments by 1 - decay^t, as optax does; false: the paper's Algorithm 2"]


def sgd(
    learning_rate: Scalar,
    *,
    momentum: Annotated[float, Bounds(ge=0, lt=1), "heavy-ball momentum (FedAvgM)"] = 0.0,
    weight_decay: Annotated[float, Bounds(ge=0, le=1e30), "multiple of the model that the aggregate loses"] = 0.0,
) -> optax.GradientTransformation:
    """Averaging; with momentum, FedAvgM."""
    optimizer = optax.sgd(learning_rate, momentum or None)
    return optax.chain(optax.add_decayed_weights(weight_decay), optimizer) if weight_decay else optimizer


def adam(
    learning_rate: Scalar,
    *,
    b1: FirstDecay = 0.9,
    b2: SecondDecay = 0.99,
    eps: Adaptivity = 1e-3,
    bias_correction: BiasCorrection = True,
) -> optax.GradientTransformation:
    """FedAdam, with the paper's defaults."""
    if bias_correction:
        return optax.adam(learning_rate, b1, b2, eps)
    return _adaptive(learning_rate, b1, eps, lambda v, square: b2 * v + (1 - b2) * square)


def yogi(
    learning_rate: Scalar,
    *,
    b1: FirstDecay = 0.9,
    b2: SecondDecay = 0.99,
    eps: Adaptivity = 1e-3,
    bias_correction: BiasCorrection = True,
) -> optax.GradientTransformation:
    """FedYogi, with the paper's defaults."""
    if bias_correction:
        return optax.yogi(learning_rate, b1, b2, eps)
    return _adaptive(learning_rate, b1, eps, lambda v, square: v - (1 - b2) * square * jnp.sign(v - square))


def adagrad(
    learning_rate: Scalar,
    *,
    eps: Adaptivity = 1e-3,
    initial: Annotated[Scalar | None, Traced(ge=0, le=1e30), "first v, 0 in Flower; default: tau^2"] = None,
) -> optax.GradientTransformation:
    """FedAdagrad without momentum: steps of learning rate x g / (sqrt(v) + tau), v = `initial` + the sum of all g^2.

    optax's Adagrad has its eps inside the root.
    """

    def init(params: PyTree) -> PyTree:
        return jax.tree.map(lambda p: jnp.full_like(p, eps**2 if initial is None else initial), params)

    def update(gradient: PyTree, squares: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        squares = jax.tree.map(lambda v, g: v + g**2, squares, gradient)
        step = lambda g, v: -learning_rate * g / (jnp.sqrt(v) + eps)
        return jax.tree.map(step, gradient, squares), squares

    return optax.GradientTransformation(init, update)


def _adaptive(
    learning_rate: Scalar, b1: Scalar, tau: Scalar, next_second: Callable[[Array, Array], Array]
) -> optax.GradientTransformation:
    """The paper's Algorithm 2: steps of learning rate x m / (sqrt(v) + tau), from m = 0 and v = tau^2."""

    def init(params: PyTree) -> tuple[PyTree, PyTree]:
        return jax.tree.map(jnp.zeros_like, params), jax.tree.map(lambda p: jnp.full_like(p, tau**2), params)

    def update(
        gradient: PyTree, moments: tuple[PyTree, PyTree], params: PyTree = None
    ) -> tuple[PyTree, tuple[PyTree, PyTree]]:
        first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, moments[0], gradient)
        second = jax.tree.map(lambda v, g: next_second(v, g**2), moments[1], gradient)
        return jax.tree.map(lambda m, v: -learning_rate * m / (jnp.sqrt(v) + tau), first, second), (first, second)

    return optax.GradientTransformation(init, update)
