"""Calls of `fedsim.aggregators.apply` with rules that NumPy has, and updates and counts in many forms."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim import aggregators
from fedsim.core.types import Variables
from tests.fuzz.generated.cases import Case, pick

K = 5
UPDATES: dict[str, Callable[[np.ndarray], Any]] = {  # of u [K, d]
    "float32": lambda u: u,
    "float64": lambda u: u.astype(np.float64),
    "big endian": lambda u: u.astype(">f8"),
    "nested lists": np.ndarray.tolist,
    "list of arrays": list,
    "tuple of JAX arrays": lambda u: tuple(map(jnp.asarray, u)),
    "pytree": lambda u: {"a": u[:, :1], "b": [u[:, 1:].reshape(len(u), -1, 1)]},
    "list of pytrees": lambda u: [{"a": row[:1], "b": [row[1:, None]]} for row in u],
    "Variables": lambda u: Variables({"a": u[:, :1], "b": u[:, 1:]}),
    "integers": lambda u: (99 * u).astype(np.int64),
    "NaN": lambda u: np.concatenate([[[np.nan] * u.shape[1]], u[1:]]),
    "complex": lambda u: u + 1j,
    "masked": lambda u: np.ma.array(u, mask=u == u[0, 0]),
    "ragged": lambda u: [[1.0, *u[0]], *u, *u],
    "text": lambda u: u.astype(str),
}
COUNTS: dict[str, Callable[[np.ndarray], Any]] = {
    "default": lambda n: None,
    "integers": lambda n: n,
    "whole floats": lambda n: n.astype(float),
    "a list": np.ndarray.tolist,
    "zero": lambda n: 0 * n,
    "negative": lambda n: -n,
    "fractions": lambda n: n + 0.5,
    "not a number": lambda n: n * np.nan,
    "beyond int32": lambda n: n + 2**31,
    "one too many": lambda n: [1, *n],
    "texts": lambda n: n.astype(str),
}
REFUSED = {*list(UPDATES)[-4:], *list(COUNTS)[-6:]}
RULES: dict[str, tuple[Any, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {  # of rows and weights
    "mean": (aggregators.fedavg(), lambda u, w: w @ u / max(w.sum(), 1)),
    "median": (aggregators.median(), lambda u, w: np.median(u, axis=0)),
    "trimmed mean": (aggregators.trimmed_mean(num_byzantine=1), lambda u, w: _trim(u, min(1, (len(u) - 1) // 2))),
}


def _trim(u: np.ndarray, f: int) -> np.ndarray:
    return np.sort(u, axis=0)[f : len(u) - f].mean(axis=0)


def calls(rng: np.random.Generator, folder: Path) -> Case:
    """Equal to the rule in float64, also for clients in another order, or all of them twice."""
    is_right, rule = rng.random() < 0.5, pick(rng, RULES)
    form, count = (pick(rng, [k for k in table if not (is_right and k in REFUSED)]) for table in (UPDATES, COUNTS))
    u, n = rng.normal(size=(K, 4)).astype(np.float32), rng.integers(1, 9, K)
    valid = rng.permutation(K) >= rng.integers(3)
    kind, counts = form, COUNTS[count](n)
    make, fault = UPDATES[form], form if form in REFUSED else count if count in REFUSED else ""

    def check(update: Any) -> None:
        counted = valid & (np.arange(K) > 0) if kind == "NaN" else valid
        rows = np.asarray(UPDATES["integers"](u) if kind == "integers" else u, np.float64)
        weights = np.ones(K) if counts is None else np.asarray(counts, np.float64)
        expected = RULES[rule][1](rows[counted], weights[counted])
        np.testing.assert_allclose(_flat(update), expected, rtol=1e-5, atol=1e-5)
        updates = make(u)
        if isinstance(updates, np.ndarray):
            order = rng.permutation(np.tile(np.arange(K), 1 if rule == "trimmed mean" else 2))
            again = apply(updates[order], None if counts is None else np.asarray(counts)[order], valid[order])
            np.testing.assert_allclose(_flat(again), expected, rtol=1e-5, atol=1e-5)

    apply = lambda u, n, valid: aggregators.apply(RULES[rule][0], u, num_examples=n, valid=valid).update
    form = f"{rule}, updates {form}, counts {count}"
    return Case(form, fault, lambda: apply(make(u), counts, valid), check, ValueError)


def _flat(update: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(update)]).astype(np.float64)
