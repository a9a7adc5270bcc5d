"""Translation, orthogonal and scale equivariance of the rules, on random cohorts with two outliers.

A is translation-equivariant if A(u + c) = A(u) + c, orthogonally equivariant if A(u Q) = A(u) Q for orthogonal Q, and
scale-equivariant if A(s u) = s A(u) for s > 0. Settings that are lengths are scaled, too.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim import aggregators
from fedsim.config.kinds import AGGREGATORS

K, D, SCALE = 9, 4, 4.0
KEY = jax.random.key(0)
LOSSES, ROOT_UPDATE = np.random.default_rng(9).gamma(2.0, size=K), np.random.default_rng(8).normal(size=D)

# rule: (translation, orthogonal, scale), as settings(scale) -> rule
RULES = {
    # Weights do not depend on the updates.
    "fedavg": (True, True, True, lambda s: aggregators.fedavg()),
    "arfl": (True, True, True, lambda s: aggregators.arfl()),
    # Ranks and distances at each parameter: translation and scale, but the axes matter.
    "median": (True, False, True, lambda s: aggregators.median()),
    "trimmed_mean": (True, False, True, lambda s: aggregators.trimmed_mean(num_byzantine=2)),
    "meamed": (True, False, True, lambda s: aggregators.meamed(num_byzantine=2)),
    "bulyan": (True, False, True, lambda s: aggregators.bulyan(num_byzantine=1)),
    # Only distances between updates, or inner products around a mean of them.
    "krum": (True, True, True, lambda s: aggregators.krum(num_byzantine=2)),
    "multi_krum": (True, True, True, lambda s: aggregators.multi_krum(num_byzantine=2)),
    "mda": (True, True, True, lambda s: aggregators.mda(num_byzantine=2)),
    "smea": (True, True, True, lambda s: aggregators.smea(num_byzantine=2)),
    "caf": (True, True, True, lambda s: aggregators.caf(num_byzantine=2)),
    "dnc": (True, True, True, lambda s: aggregators.dnc(num_byzantine=2)),
    "faba": (True, True, True, lambda s: aggregators.faba(num_byzantine=2)),
    "monna": (True, True, True, lambda s: aggregators.monna(num_byzantine=2, client_id=5)),
    # The same; their eps and lambda are lengths.
    "rfa": (True, True, True, lambda s: aggregators.rfa(eps=s * 1e-5)),
    "autogm": (True, True, True, lambda s: aggregators.autogm(lam=s * 1.0, eps=s * 1e-6)),
    # Norms or angles: the origin matters. Radii are lengths.
    "norm_clipping": (False, True, True, lambda s: aggregators.norm_clipping(threshold=s * 1.0)),
    "centered_clipping": (False, True, True, lambda s: aggregators.centered_clipping(tau=s * 1.0)),
    "adaptive_clipping": (False, True, True, lambda s: aggregators.adaptive_clipping(threshold=s * 1.0)),
    "cfl": (False, True, True, lambda s: aggregators.cfl(threshold=0.9)),
    "flame": (False, True, True, lambda s: aggregators.flame(noise=0.0)),
    "foolsgold": (False, True, True, lambda s: aggregators.foolsgold()),
    "fltrust": (False, True, False, lambda s: aggregators.fltrust()),  # as long as the server's update
    "zeno": (False, True, True, lambda s: aggregators.zeno(num_byzantine=2, rho=0.05 / s**2)),
    # Norms and signs.
    "signguard": (False, False, True, lambda s: aggregators.signguard(share=1.0)),
    # Norms and angles at the parameters of two classes.
    "lfighter": (False, False, True, lambda s: aggregators.lfighter()),
}
PROPERTIES = {"translation": 0, "orthogonal": 1, "scale": 2}


def draw(seed):
    """Updates [K, D] with two outliers, a shift [D] and an orthogonal matrix [D, D]."""
    rng = np.random.default_rng(seed)
    updates = 0.5 + rng.normal(size=(K, D))
    updates[:2] *= -4
    return updates, 2 * rng.normal(size=D), np.linalg.qr(rng.normal(size=(D, D)))[0]


@cache
def aggregate_function(name):
    """`(updates [K, D], root_update [D], scale) -> update [D]`; one program per rule."""

    def aggregate(updates, root_update, scale):
        rule = RULES[name][3](scale)
        arguments = {"losses": LOSSES, "root_losses": LOSSES, "root_update": root_update, "key": KEY}
        return aggregators.apply(rule, updates, num_examples=np.arange(1, K + 1), **arguments).update

    return jax.jit(aggregate)


def error(name, prop, seed):
    """The largest difference from equivariance."""
    updates, shift, rotation = draw(seed)
    aggregate = aggregate_function(name)
    update = np.asarray(aggregate(jnp.asarray(updates), jnp.asarray(ROOT_UPDATE), 1.0))
    moved, root_update, scale, expected = {
        "translation": (updates + shift, ROOT_UPDATE, 1.0, update + shift),
        "orthogonal": (updates @ rotation, ROOT_UPDATE @ rotation, 1.0, update @ rotation),
        "scale": (SCALE * updates, ROOT_UPDATE, SCALE, SCALE * update),
    }[prop]
    return np.abs(np.asarray(aggregate(jnp.asarray(moved), jnp.asarray(root_update), scale)) - expected).max()


@pytest.mark.parametrize("name", RULES)
def test_rules_have_their_properties(name):
    for prop, column in PROPERTIES.items():
        if RULES[name][column]:
            assert max(error(name, prop, seed) for seed in range(4)) < 1e-4, prop
        else:
            assert any(error(name, prop, seed) > 1e-2 for seed in range(16)), prop


def test_all_rules_are_in_the_table():
    assert set(RULES) == set(AGGREGATORS)
