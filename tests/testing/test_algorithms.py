"""Faulty training algorithms, at least one per clause, and the messages about them; `test_built_in.py` runs them."""

import jax
import jax.numpy as jnp
import pytest

from fedsim import Algorithm, LocalResult, Simulation
from fedsim.core.client import lockstep_max
from fedsim.testing import check_algorithm
from fedsim.testing.algorithms import CLAUSES


def algorithm(
    model=lambda trained, local: trained,
    client_state=lambda old, local: old,
    update_server_state=lambda server_state, messages, valid, n: server_state,
    scale=None,
):
    """Plain SGD with changes."""

    def train(local, old, server_state):
        return LocalResult(model(local.sgd(None), local), client_state(old, local), jnp.float32(0))

    return Algorithm(lambda params: (jnp.float32(0), jnp.float32(0)), train, update_server_state, scale)


def change_model(f):
    return lambda trained, local: jax.tree.map(lambda a: f(a, local), trained)


def branch_in_python(local):
    return 1.0 if local.num_steps > 2 else 0.5


def mean_of_valid(server_state, messages, valid, n):
    return jnp.sum(messages) / jnp.sum(valid)


def add_max_steps(old, local):
    return old + lockstep_max(local.num_steps)


FAULTY = [
    (
        "train",
        algorithm(change_model(lambda a, _: a.astype(jnp.bfloat16))),
        r"the trained model.* must be float32\[3\], got bfloat16\[3\]",
    ),
    ("train", algorithm()._replace(personal=lambda own, broadcast: own), "the personal model must be a PyTreeDef"),
    ("finite", algorithm(change_model(lambda a, _: jnp.log(-1 - jnp.abs(a)))), "the trained model must be finite"),
    (
        "update_server_state",
        algorithm(update_server_state=mean_of_valid),
        "with no clients valid server_state must be finite",
    ),
    ("scale", algorithm(scale=lambda sent, weights: weights), r"the factor must be float32\[\], got float32\[4\]"),
    ("jit", algorithm(change_model(lambda a, local: a * branch_in_python(local))), "TracerBoolConversionError"),
    (
        "vmap",
        algorithm(change_model(lambda a, local: a / lockstep_max(local.num_steps))),
        "inside jax.vmap the result differs .*client 0.*: by",
    ),
    (
        "zero_learning_rate",
        algorithm(change_model(lambda a, _: 0.9 * a)),
        "with learning rate 0 the model must not change, but differs: by",
    ),
    ("independent", algorithm(client_state=add_max_steps), "client_state must not depend on other clients' data"),
    (
        "simulation",
        algorithm(client_state=lambda old, _: 1e20 * (old + 1)),
        "after 3 rounds client_states must be finite",
    ),
]


def test_a_simulation_that_changes_other_clients_states_is_detected(monkeypatch):
    """No algorithm alone can do this."""
    original = Simulation.round

    def faulty(self, state, data, hparams):
        after, record = original(self, state, data, hparams)
        return after._replace(client_states=jax.tree.map(lambda a: a + 1, after.client_states)), record

    monkeypatch.setattr(Simulation, "round", faulty)
    with pytest.raises(AssertionError, match=r"^not_sampled: client_state must not change"):
        check_algorithm(algorithm(), skip=set(CLAUSES) - {"not_sampled"})
