"""FoolsGold against Algorithm 1 in float64, over rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.aggregators import foolsgold
from tests.aggregators.test_robust import KEY, flat, report_of, updates_of

N, K, SIZE = 9, 6, 6


def algorithm_1(history, kappa):
    n = len(history)
    cs = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                cs[i, j] = history[i] @ history[j] / np.linalg.norm(history[i]) / np.linalg.norm(history[j])
    v = np.maximum(cs.max(axis=1), 0)
    for i in range(n):
        for j in range(n):
            if i != j and v[j] > v[i]:
                cs[i, j] *= v[i] / v[j]
    alpha = np.clip(1 - cs.max(axis=1), 0, 1)
    alpha = alpha / alpha.max()
    with np.errstate(divide="ignore"):
        return np.clip(kappa * (np.log(alpha / (1 - alpha)) + 0.5), 0, 1)


def init_of(rule):
    variables = jax.tree.map(lambda u: u[0], report_of(np.zeros((1, SIZE))).updates)
    return rule.init(variables, jnp.ones(N, jnp.int32), jnp.zeros(N))


@pytest.mark.parametrize(("kappa", "part"), [(1.0, ""), (0.05, "['b']")])
def test_matches_algorithm_1_over_rounds(kappa, part):
    rule = foolsgold(kappa=kappa, parameters=part)
    state, history = init_of(rule), np.zeros((N, SIZE))
    aggregate = jax.jit(rule.aggregate)
    seen = set()
    for seed in range(5):
        rng = np.random.default_rng(seed)
        ids, valid = rng.permutation(N)[:K], np.arange(K) != seed
        x = updates_of(seed, K, SIZE)
        x[ids < 3] = [1, -1, 2, 0.5, -1, 1] + 0.1 * x[ids < 3]  # three sybils
        actual, state = aggregate(state, report_of(x, valid)._replace(client_ids=jnp.asarray(ids)), KEY)
        history[ids[valid]] += x[valid]
        compared = history[:, 2:] if part else history
        alpha = np.zeros(K)
        alpha[valid] = algorithm_1(compared[ids[valid]], kappa)
        np.testing.assert_allclose(state, compared, atol=1e-5)
        np.testing.assert_allclose(flat(actual.update), alpha @ x / valid.sum(), atol=1e-4)
        np.testing.assert_allclose(actual.weights, alpha / alpha.sum(), atol=1e-4)
        seen |= {0 if a == 0 else 1 if a == 1 else 0.5 for a in alpha[valid]}
    assert {0, 1} <= seen


def first_round(x, **settings):
    """The aggregate of `x` [K, SIZE] without a history."""
    return jax.jit(foolsgold(**settings).aggregate)(np.zeros((N, SIZE), np.float32), report_of(x), KEY)[0]


def test_divide_by():
    x = updates_of(1, K, SIZE)
    by = {name: flat(first_round(x, divide_by=name).update) for name in ("clients", "weights", "nothing")}
    total = algorithm_1(x, 1.0).sum()
    assert 0 < total < K
    np.testing.assert_allclose(by["nothing"], algorithm_1(x, 1.0) @ x, atol=1e-4)
    np.testing.assert_allclose(by["clients"], by["nothing"] / K, atol=1e-6)
    np.testing.assert_allclose(by["weights"], by["nothing"] / total, atol=1e-4)


def test_sybils_have_no_weight():
    opposite = np.kron(np.eye(3), [[1, -1], [-1, 1]])[:, [0, 2, 4, 1, 3, 5]]
    np.testing.assert_allclose(first_round(opposite).weights, np.full(K, 1 / K), atol=1e-6)
    assert not np.any(first_round(np.tile(opposite[:1], (K, 1))).weights)
    sybils = np.concatenate([np.eye(SIZE)[:3], np.ones((3, SIZE)) * [[1.0], [2.0], [3.0]]])
    assert (np.asarray(first_round(sybils).weights) > 0).tolist() == [True] * 3 + [False] * 3


def test_unknown_parameters_are_an_error():
    with pytest.raises(ValueError, match=r'^parameters: .* "Dense_9".*\[\'b\'\]$'):
        init_of(foolsgold(parameters="Dense_9"))
