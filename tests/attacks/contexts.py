"""Attack contexts with random updates, and the same as float64 rows for oracles."""

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.contracts import AttackContext
from fedsim.core.types import CohortReport

KEY = jax.random.key(5)
MALICIOUS = np.asarray([False, True, False, False, True, False, False, False])
VALID = np.asarray([True, True, True, True, True, True, False, True])
HONEST = VALID & ~MALICIOUS
CLIENT_IDS = np.asarray([7, 1, 12, 3, 4, 20, 6, 9])
NUM_EXAMPLES = np.asarray([3, 5, 8, 1, 7, 2, 4, 6])


def make_context(seed=0, malicious=MALICIOUS, valid=VALID, scale=1.0, rule=None):
    """The context of a cohort of eight clients, whose server has the `rule`; updates of invalid clients are zero."""
    rng = np.random.default_rng(seed)
    size = len(malicious)
    updates = {"w": rng.normal(0.3, scale, (size, 3, 2)), "b": rng.normal(-0.2, scale, (size, 4))}
    updates = {name: np.where(valid.reshape(-1, *[1] * (u.ndim - 1)), u, 0) for name, u in updates.items()}
    updates = {name: jnp.asarray(u, jnp.float32) for name, u in updates.items()}
    losses = jnp.asarray(rng.gamma(2.0, size=size), jnp.float32)
    report = CohortReport(jnp.asarray(CLIENT_IDS), jnp.asarray(NUM_EXAMPLES), losses, updates, jnp.asarray(valid))
    aggregate = None if rule is None else jax.jit(lambda report: rule.aggregate((), report, KEY)[0])
    return AttackContext(report, jnp.asarray(malicious), None, aggregate)


def rows(updates):
    """Updates [K, ...] as float64 [K, d]."""
    return np.concatenate([np.asarray(u, np.float64).reshape(len(u), -1) for u in jax.tree.leaves(updates)], axis=1)


def forge(attack, context, state=None):
    """The malicious clients' forged updates, float64 [m, d]."""
    state = attack.init(first_update(context), context.report.num_examples) if state is None else state
    return rows(attack.forge_updates(state, context, KEY)[0])[np.asarray(context.malicious)]


def first_update(context):
    """The first client's update."""
    return jax.tree.map(lambda u: u[0], context.report.updates)


def honest_rows(context):
    """The honest updates, float64 [h, d]."""
    return rows(context.report.updates)[np.asarray(context.report.valid & ~context.malicious)]
