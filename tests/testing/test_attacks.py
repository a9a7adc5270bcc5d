"""Faulty attacks, at least one a clause, and what is said of them."""

import jax
import jax.numpy as jnp
import pytest

from fedsim import Attack
from fedsim.core.client import lockstep_max
from fedsim.testing import check_attack
from fedsim.testing.attacks import CLAUSES


def say(counts=lambda report: report.counts, losses=lambda report: report.losses):
    return Attack(say=lambda state, report, corrupted, key: (counts(report), losses(report)))


def send(f, state=0.0, step=lambda state, round_: state):
    """Sends `f` of all updates; the state goes on by `step`."""

    def lie(now, round_, key):
        return jax.tree.map(lambda u: f(u, round_), round_.report.updates), step(now, round_)

    return Attack(init=lambda variables, counts: jnp.asarray(state), send=lie)


def keep(u, round_):
    return u


def honest_loss(state, round_):
    """The mean over honest clients, of which there may be none."""
    honest = round_.report.valid & ~round_.corrupted
    return jnp.sum(jnp.where(honest, round_.report.losses, 0)) / jnp.sum(honest)


def standardised(u, round_):
    """As if the honest updates always differed."""
    return -(u - u.mean(axis=0, keepdims=True)) / u.std(axis=0, keepdims=True)


FAULTY = [
    ("state", send(keep, step=honest_loss), "with everybody corrupted the state became NaN"),
    ("state", send(keep, jnp.zeros(3), lambda state, _: state[1:]), r"after round 1 the state is float32\[2\], not"),
    ("state", send(keep, 0, lambda state, _: state + 0.5), r"state is float32\[\], not int32\[\]"),
    ("say", say(counts=lambda report: report.counts[1:]), r"the counts are int32\[6\], not of \[7\]"),
    ("say", say(losses=lambda report: jnp.float32(0)), r"the losses are float32\[\], not of \[7\]"),
    ("say", say(counts=lambda report: 2.0 * report.counts), r"the counts are float32\[7\], no integers"),
    ("say", say(losses=lambda report: report.counts), r"the losses are int32\[7\], no floats"),
    ("say", say(losses=lambda report: jnp.log(-report.losses)), "a loss that a liar says is not finite"),
    ("say", say(counts=lambda report: -report.counts), "a count that a liar says is negative"),
    ("say", say(counts=lambda report: jnp.ones(7, int)), "with all clients before the rounds the counts are"),
    ("send", send(lambda u, round_: u[:1]), r"what is sent.* is float32\[1, "),
    ("send", Attack(send=lambda state, round_, key: (round_.report.updates.params, state)), "what is sent is a PyTree"),
    ("finite", send(lambda u, round_: jnp.full_like(u, jnp.nan)), "with some corrupted a liar's update is not finite"),
    ("finite", send(standardised), "with identical updates a liar's update is not finite"),
    ("jit", send(lambda u, round_: -u if round_.corrupted.all() else u), "TracerBoolConversionError"),
    (
        "jit",
        say(losses=lambda r: r.losses * isinstance(r.losses, jax.core.Tracer)),
        "else inside jax.jit, by",
    ),
    ("vmap", send(lambda u, round_: u * lockstep_max(jnp.sum(round_.corrupted))), "something else inside jax.vmap, by"),
    ("simulation", send(lambda u, round_: u * jnp.ones((7, *[1] * (u.ndim - 1)))), "TypeError: mul got incompatible"),
    ("simulation", send(lambda u, round_: u - round_.variables.params["w"]), "TypeError|ValueError"),
]


@pytest.mark.parametrize(("clause", "attack", "message"), FAULTY)
def test_a_faulty_attack_is_caught(clause, attack, message):
    with pytest.raises(AssertionError, match=f"^{clause}: .*({message})") as caught:
        check_attack(attack, skip=set(CLAUSES) - {clause})
    assert "\n" not in str(caught.value)


def test_a_simulation_that_shows_the_lies_of_the_honest_is_caught(monkeypatch):
    """No attack alone can do this."""
    monkeypatch.setattr("fedsim.core.reports.jnp.where", lambda condition, a, b: a)
    with pytest.raises(AssertionError, match=r"^simulation: the recorded loss of an honest client is not its own, by"):
        check_attack(say(losses=lambda report: report.losses + 1), skip=set(CLAUSES) - {"simulation"})


def test_every_clause_catches_something():
    assert {clause for clause, _, _ in FAULTY} == set(CLAUSES)


def test_an_attack_that_remembers_and_searches_is_right():
    """It tries strengths against the pipeline that it faces, and remembers the best."""

    def search(state, round_, key):
        def moved(strength):
            lie = jax.tree.map(lambda u: -strength * u, round_.report.updates)
            result = round_.aggregate(round_.report._replace(updates=lie)).update
            return sum(jnp.sum(jnp.square(u)) for u in jax.tree.leaves(result))

        strengths = jnp.asarray([0.5, 1.0, 2.0])
        best = strengths[jnp.argmax(jax.vmap(moved)(strengths))]
        return jax.tree.map(lambda u: -best * u, round_.report.updates), jnp.maximum(state, best)

    check_attack(Attack(init=lambda variables, counts: jnp.float32(0), send=search))
