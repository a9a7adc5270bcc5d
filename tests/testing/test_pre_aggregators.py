"""Faulty pre-aggregators, at least one a clause, and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.core.client import lockstep_max
from fedsim.core.trees import per_client, squared_norms
from fedsim.testing import check_pre_aggregator
from fedsim.testing.pre_aggregators import CLAUSES


def updates(f):
    """Changes all updates alike."""
    return lambda report, key: report._replace(updates=jax.tree.map(lambda u: f(u, report), report.updates))


def mean(u, report):
    share = report.valid / jnp.maximum(jnp.sum(report.valid), 1)
    return jnp.tensordot(share, u, axes=1)[None]


def joined(mix, rows=3, **fields):
    """Rows as `mix` [rows, 7] of the valid clients says."""

    def join(report, key):
        mixing = mix(report).astype(jnp.float32)
        whole = report._replace(
            client_ids=report.client_ids[:rows],
            counts=report.counts[:rows],
            losses=report.losses[:rows],
            updates=jax.tree.map(lambda u: jnp.tensordot(mixing, u, axes=1), report.updates),
            valid=jnp.sum(mixing, axis=1) > 0,
            mixing=mixing,
        )
        return whole._replace(**fields)

    return join


def thirds(report):
    """Each row is the mean of the valid ones among some clients."""
    members = (jnp.arange(7)[None] % 3 == jnp.arange(3)[:, None]) & report.valid[None]
    return members / jnp.maximum(jnp.sum(members, axis=1, keepdims=True), 1)


def to_length_one(report, key):
    norms = jnp.sqrt(squared_norms(report.updates))
    return report._replace(updates=jax.tree.map(lambda u: u / per_client(norms, u), report.updates))


def noise(u, report):
    return u + per_client(report.valid, u) * 0.1 * jax.random.normal(jax.random.key(0), u.shape)


def some_rows(report, key):
    """As many as there are valid clients."""
    chosen = np.flatnonzero(report.valid)
    return jax.tree.map(lambda a: a[chosen], report)._replace(mixing=jnp.eye(7)[chosen])


FAULTY = [
    ("shapes", lambda report, key: (report.updates, report.valid), "the result is tuple, no CohortReport"),
    ("shapes", joined(thirds, mixing=None), "it makes 3 rows, but no mixing says whose they are"),
    ("shapes", some_rows, r"it makes \[0, 1, 4, .*\] rows; their number must always be the same"),
    ("shapes", joined(thirds, counts=jnp.ones(3)), r"counts is float32\[3\], not int32\[3\]"),
    ("shapes", updates(lambda u, report: u[..., :1]), "the updates"),
    ("shapes", joined(thirds, mixing=jnp.ones((7, 3))), r"mixing is float32\[7, 3\], not float32\[3, 7\]"),
    ("mixing", joined(lambda report: 2 * thirds(report)), "the shares in a row of mixing sum to more than 1"),
    ("mixing", joined(lambda report: thirds(report._replace(valid=report.valid | True))), "not valid has a share"),
    ("mixing", joined(lambda report: thirds(report) - 0.1), "a share in mixing is negative"),
    ("mixing", joined(thirds, valid=jnp.ones(3, bool)), "nobody has a share in a valid row"),
    ("finite", to_length_one, "with two invalid clients an update is not finite"),
    ("invalid", updates(lambda u, report: u - mean(u, report)), "the update of a row that is not valid is not zero"),
    ("invalid", lambda report, key: report._replace(valid=report.valid | True), "that is not valid becomes valid"),
    ("nobody", joined(thirds, valid=jnp.ones(3, bool)), "with nobody valid a row is valid"),
    ("identical", updates(noise), "clients that all send one update do not any more, by"),
    ("identical", joined(lambda report: 0 * thirds(report)), "none is left"),
    ("jit", lambda report, key: report if report.valid.any() else report._replace(), "TracerBoolConversionError"),
    ("vmap", updates(lambda u, report: u / lockstep_max(1 + jnp.sum(report.valid))), "else inside jax.vmap, by"),
]


@pytest.mark.parametrize(("clause", "pre_aggregator", "message"), FAULTY)
def test_a_faulty_one_is_caught(clause, pre_aggregator, message):
    with pytest.raises(AssertionError, match=f"^{clause}: .*{message}") as caught:
        check_pre_aggregator(pre_aggregator, skip=set(CLAUSES) - {clause})
    assert "\n" not in str(caught.value)


def test_every_clause_catches_something():
    assert {clause for clause, _, _ in FAULTY} == set(CLAUSES)


def test_right_ones():
    check_pre_aggregator(lambda report, key: report)
    check_pre_aggregator(joined(thirds))
    check_pre_aggregator(updates(lambda u, report: jnp.clip(u, -0.1, 0.1)))
