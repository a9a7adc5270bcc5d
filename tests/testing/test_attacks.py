"""Faulty attacks, at least one per clause, and the messages about them; `test_built_in.py` runs them."""

import jax
import jax.numpy as jnp
import pytest

from fedsim import Attack
from fedsim.core.client import lockstep_max
from fedsim.testing import check_attack
from fedsim.testing.attacks import CLAUSES


def forge_report(num_examples=lambda report: report.num_examples, losses=lambda report: report.losses):
    return Attack(forge_report=lambda state, report, malicious, key: (num_examples(report), losses(report)))


def forge_updates(f, initial_state=0.0, step=lambda state, context: state):
    """Sends `f(update, context)` for each leaf; the next state is `step(state, context)`."""

    def forge(state, context, key):
        return jax.tree.map(lambda u: f(u, context), context.report.updates), step(state, context)

    return Attack(init=lambda variables, num_examples: jnp.asarray(initial_state), forge_updates=forge)


def keep(u, context):
    return u


def honest_loss(state, context):
    """The mean over honest clients; NaN without any."""
    honest = context.report.valid & ~context.malicious
    return jnp.sum(jnp.where(honest, context.report.losses, 0)) / jnp.sum(honest)


def standardize(u, context):
    """Divides by the standard deviation, which is 0 for identical updates."""
    return -(u - u.mean(axis=0, keepdims=True)) / u.std(axis=0, keepdims=True)


FAULTY = [
    ("state", forge_updates(keep, step=honest_loss), r"\(only malicious clients\) the state must not become NaN"),
    (
        "forge_report",
        forge_report(num_examples=lambda report: report.num_examples[1:]),
        r"forged num_examples must have shape \[7\], got int32\[6\]",
    ),
    ("forge_report", Attack(forge_report=lambda state, report, *rest: report), r"got CohortReport"),
    (
        "forge_report",
        forge_report(num_examples=lambda report: report.num_examples * 10_000_000),
        "65536 times as many examples before the first round forged num_examples must not be negative",
    ),
    ("forge_report", forge_report(losses=lambda report: jnp.log(-report.losses)), "the forged losses must be finite"),
    ("forge_updates", forge_updates(lambda u, context: u[:1]), r"the forged updates.* must be .*, got float32\[1, "),
    ("finite", forge_updates(standardize), "with identical updates the malicious clients' updates must be finite"),
    (
        "jit",
        forge_report(losses=lambda r: r.losses * isinstance(r.losses, jax.core.Tracer)),
        "inside jax.jit the result differs .*: by",
    ),
    (
        "vmap",
        forge_updates(lambda u, context: u * lockstep_max(jnp.sum(context.malicious))),
        "inside jax.vmap the result differs .*: by",
    ),
    (
        "simulation",
        forge_updates(lambda u, context: u * jnp.ones((7, *[1] * (u.ndim - 1)))),
        "TypeError: mul got incompatible",
    ),
]


def test_an_attack_may_use_the_loss_after_the_servers_step():
    loss = lambda context: context.next_loss(context.aggregate(context.report), context.malicious, jax.random.key(0))
    check_attack(forge_updates(lambda u, context: -loss(context) * u), skip={"jit"})


@pytest.mark.parametrize(
    ("checked", "got"), [(forge_report, "function; call the function to get what it makes"), ("ipm", "str")]
)
def test_what_is_no_attack_is_named(checked, got):
    with pytest.raises(AssertionError, match=f"^the argument must be a fedsim.Attack, got {got}$"):
        check_attack(checked)


def test_a_simulation_that_records_forged_losses_of_honest_clients_is_detected(monkeypatch):
    """No attack alone can do this."""
    monkeypatch.setattr("fedsim.core.reports.jnp.where", lambda condition, a, b: a)
    with pytest.raises(
        AssertionError, match=r"^simulation: the recorded loss of an honest client must be its true one"
    ):
        check_attack(forge_report(losses=lambda report: report.losses + 1), skip=set(CLAUSES) - {"simulation"})
