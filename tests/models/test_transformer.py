"""The transformer against a forward pass in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from fedsim.core.task import classification
from fedsim.core.types import DataSpec
from fedsim.models import transformer

T, V, D, H = 5, 7, 8, 2
X = np.random.default_rng(0).integers(0, V, (3, T), dtype=np.int32)
SIZES = {"hidden_size": D, "num_heads": H}


def spec(target_shape=(T,), num_classes=V):
    return DataSpec("text", num_classes, (T,), "int32", target_shape)


def variables_of(module, scale=3.0):
    """The initial model, with parts of a size at which all of them matter."""
    variables = jax.jit(classification(module, X[0]).init)(jax.random.key(0))
    rng = np.random.default_rng(1)
    larger = lambda a: jnp.asarray(scale * rng.normal(size=a.shape) / np.sqrt(len(a)), jnp.float32)
    return variables._replace(params=jax.tree.map(larger, variables.params))


def outputs_of(module, variables):
    return jax.jit(classification(module, X[0]).outputs)(variables, X)


def forward(params, x, positions, is_tied):
    """Logits [B, T, outputs] by loops over examples, heads and positions."""
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    dense = iter(sorted((name for name in p if name.startswith("Dense")), key=lambda name: int(name[6:])))
    norms = iter(sorted((name for name in p if name.startswith("LayerNorm")), key=lambda name: int(name[10:])))

    def norm(h):
        of = p[next(norms)]
        centered = h - h.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6) * of["scale"] + of["bias"]

    def linear(h):
        of = p[next(dense)]
        return h @ of["kernel"] + of.get("bias", 0.0)

    def turn(vectors):
        out = np.empty_like(vectors)
        for t in range(T):
            for i in range(D // H // 2):
                angle, j = t * 10_000.0 ** (-2 * i / (D // H)), i + D // H // 2
                out[t, i] = vectors[t, i] * np.cos(angle) - vectors[t, j] * np.sin(angle)
                out[t, j] = vectors[t, i] * np.sin(angle) + vectors[t, j] * np.cos(angle)
        return out

    def attend(h):
        projected, size = linear(h), D // H
        heads = np.zeros_like(h)
        for example in range(len(h)):
            for head in range(H):
                query, key, value = (
                    projected[example, :, part * D + head * size : part * D + (head + 1) * size] for part in range(3)
                )
                query, key = (turn(query), turn(key)) if positions == "rotary" else (query, key)
                for t in range(T):
                    shares = softmax(key[: t + 1] @ query[t] / np.sqrt(size))
                    heads[example, t, head * size : (head + 1) * size] = shares @ value[: t + 1]
        return linear(heads)

    gelu = lambda h: 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    h = p["embedding"][x] + (p["positions"] if positions == "learned" else 0.0)
    for _ in range(2):
        h = h + attend(norm(h))
        h = h + linear(gelu(linear(norm(h))))
    h = norm(h)
    return h @ p["embedding"].T if is_tied else linear(h)


@pytest.mark.parametrize(("positions", "is_tied"), [("rotary", True), ("learned", False)])
def test_logits_are_those_of_numpy(positions, is_tied):
    module = transformer(spec(), positions=positions, tied=is_tied, **SIZES)
    variables = variables_of(module)
    expected = forward(variables.params, X, positions, is_tied)
    np.testing.assert_allclose(outputs_of(module, variables), expected, rtol=2e-4, atol=2e-4)
    last = transformer(spec(()), positions=positions, tied=is_tied, **SIZES)
    np.testing.assert_allclose(outputs_of(last, variables), expected[:, -1], rtol=2e-4, atol=2e-4)


def test_classes_that_are_no_tokens_need_the_number_of_tokens():
    module = transformer(spec((), num_classes=2), vocabulary_size=V, **SIZES)
    assert outputs_of(module, variables_of(module)).shape == (3, 2)
    with pytest.raises(ValueError, match="hidden_size: must be a multiple of 8, twice the heads, got 12"):
        transformer(spec(), hidden_size=12)
