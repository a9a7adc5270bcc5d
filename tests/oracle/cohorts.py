"""Random updates as float64 rows, and fedsim's rules and attacks on them."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.contracts import AttackContext
from fedsim.core.types import CohortReport
from tests.aggregators.test_robust import report_of

KEY = jax.random.key(3)


def updates(seed: int, num_clients: int, size: int = 12) -> np.ndarray:
    """Rows [K, d] around a nonzero mean; the last two are outliers."""
    rng = np.random.default_rng(seed)
    rows = 0.5 + rng.normal(size=(num_clients, size))
    rows[-2:] = 4 * rows[-2:] + 1
    return rows.astype(np.float32).astype(np.float64)


def report(rows: np.ndarray) -> CohortReport:
    """A report of valid clients with equal numbers of examples."""
    return report_of(rows.astype(np.float32), num_examples=[7] * len(rows))


def ravel(tree, num_rows: int | None = None) -> np.ndarray:
    """An update [d], or `num_rows` of them."""
    shape = (-1,) if num_rows is None else (num_rows, -1)
    leaves = tree.params["a"], tree.params["b"]
    return np.concatenate([np.asarray(leaf, np.float64).reshape(shape) for leaf in leaves], axis=-1)


compiled = cache(jax.jit)


def aggregate(rule, rows: np.ndarray, state=()) -> np.ndarray:
    """The update [d] of a rule for `rows` [K, d]."""
    return ravel(compiled(rule.aggregate)(state, report(rows), KEY)[0].update)


def pre_aggregate(pre_aggregator, rows: np.ndarray) -> np.ndarray:
    """The rows [K', d] after a pre-aggregator."""
    after = compiled(pre_aggregator)(report(rows), KEY)
    return ravel(after.updates, len(after.valid))


def forge(attack, honest: np.ndarray, num_forged: int = 1, rule=None) -> np.ndarray:
    """Forged updates of `num_forged` malicious clients, whose true updates are copies of the first honest one."""
    rows = np.concatenate([honest, np.repeat(honest[:1], num_forged, axis=0)])
    malicious = np.arange(len(rows)) >= len(honest)
    aggregate = None if rule is None else lambda sent: rule.aggregate((), sent, KEY)[0]
    like = jax.tree.map(lambda leaf: leaf[0], report(rows).updates)
    context = AttackContext(report(rows), jnp.asarray(malicious), like, aggregate)
    sent = attack.forge_updates(attack.init(like, report(rows).num_examples), context, KEY)[0]
    return ravel(sent, len(rows))[malicious]
