"""Faulty pre-aggregators, at least one per clause, and the messages about them; `test_built_in.py` runs them."""

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.client import lockstep_max
from fedsim.core.trees import expand_like, squared_norms


def updates(f):
    """Replaces each leaf of the updates by `f(leaf, report)`."""
    return lambda report, key: report._replace(updates=jax.tree.map(lambda u: f(u, report), report.updates))


def mean(u, report):
    share = report.valid / jnp.maximum(jnp.sum(report.valid), 1)
    return jnp.tensordot(share, u, axes=1)[None]


def mix_rows(mix, rows=3, **fields):
    """`rows` mixtures of the clients, with shares `mix(report)` [rows, 7]."""

    def pre_aggregate(report, key):
        mixing = mix(report).astype(jnp.float32)
        mixed = report._replace(
            client_ids=report.client_ids[:rows],
            num_examples=report.num_examples[:rows],
            losses=report.losses[:rows],
            updates=jax.tree.map(lambda u: jnp.tensordot(mixing, u, axes=1), report.updates),
            valid=jnp.sum(mixing, axis=1) > 0,
            mixing=mixing,
        )
        return mixed._replace(**fields)

    return pre_aggregate


def thirds(report):
    """Each row is the mean of the valid clients among a third of the cohort."""
    members = (jnp.arange(7)[None] % 3 == jnp.arange(3)[:, None]) & report.valid[None]
    return members / jnp.maximum(jnp.sum(members, axis=1, keepdims=True), 1)


def normalize(report, key):
    norms = jnp.sqrt(squared_norms(report.updates))
    return report._replace(updates=jax.tree.map(lambda u: u / expand_like(norms, u), report.updates))


def noise(u, report):
    return u + expand_like(report.valid, u) * 0.1 * jax.random.normal(jax.random.key(0), u.shape)


def keep_valid_rows(report, key):
    """The number of rows depends on the report."""
    rows = np.flatnonzero(report.valid)
    return jax.tree.map(lambda a: np.asarray(a)[rows], report)._replace(mixing=np.eye(7)[rows])


FAULTY = [
    ("shapes", keep_valid_rows, r"the number of rows must be the same in all rounds, got \[0, 1, 4, .*\]"),
    (
        "shapes",
        mix_rows(thirds),
        r"if the report has weights, .* must be float32\[3\], got float32\[7\]",
    ),
    ("shapes", mix_rows(thirds, mixing=jnp.ones((7, 3))), r"mixing must be float32\[3, 7\], got float32\[7, 3\]"),
    (
        "mixing",
        mix_rows(lambda report: thirds(report._replace(valid=report.valid | True))),
        "mixing must be 0 for invalid clients",
    ),
    (
        "mixing",
        mix_rows(thirds, valid=jnp.ones(3, bool)),
        r"mixing must sum to 1 in each valid row, got \[1\. 0\. 0\.\]",
    ),
    ("mixing", mix_rows(lambda report: 0.9 * thirds(report)), "with typical clients mixing must sum to 1 in each"),
    ("finite", normalize, "with two invalid clients the updates must be finite"),
    ("invalid", updates(lambda u, report: u - mean(u, report)), "the updates of invalid rows must be 0"),
    ("no_valid_clients", mix_rows(thirds, valid=jnp.ones(3, bool)), "without valid clients no row must be valid"),
    (
        "gradient",
        updates(lambda u, report: u + jnp.sqrt(0 * jnp.sum(u))),
        "with typical clients the derivative by the updates must be finite",
    ),
    ("identical", updates(noise), "all rows must have the same update if all clients do, but they differ: by"),
    ("jit", lambda report, key: report if report.valid.any() else report._replace(), "TracerBoolConversionError"),
    (
        "vmap",
        updates(lambda u, report: u / lockstep_max(1 + jnp.sum(report.valid))),
        "inside jax.vmap the result differs .*: by",
    ),
]
