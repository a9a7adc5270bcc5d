"""Ascent: as far as the known optimum where there is one, and nowhere less damaging than attacks along a line."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedsim
from fedsim import aggregators as rules
from fedsim.attacks import ascent, min_max, optimal_alie, optimal_ipm
from fedsim.attacks.ascent import own_view
from tests.aggregators.test_robust import clip
from tests.attacks.contexts import KEY
from tests.conftest import make_simulation

SEEDS = range(5)


def make_context(rule, honest, f, next_loss=None):
    """The context of the `honest` updates [h, d] and of `f` malicious clients after them."""
    x = jnp.concatenate([honest, jnp.zeros((f, honest.shape[1]))]).astype(jnp.float32)
    ids = jnp.arange(len(x))
    report = fedsim.CohortReport(ids, jnp.ones_like(ids), jnp.zeros(len(x)), {"w": x}, jnp.ones(len(x), bool))
    state = rule.init({"w": x[0]}, report.num_examples, report.losses)
    aggregate = lambda report: rule.aggregate(state, report, KEY)[0]
    return fedsim.AttackContext(report, ids >= len(honest), {"w": x[0]}, aggregate, next_loss)


def attacked(attack, rule, f, next_loss=None):
    """`(honest updates [h, d], state of the attack) -> (aggregate [d], next state)`, in one program."""

    @jax.jit
    def aggregate(honest, state):
        context = make_context(rule, honest, f, next_loss)
        forged, state = attack.forge_updates(state, context, KEY)
        updates = {"w": jnp.concatenate([honest, forged["w"][len(honest) :]])}
        return context.aggregate(context.report._replace(updates=updates)).update["w"], state

    return lambda honest, state: aggregate(jnp.asarray(honest, jnp.float32), state)


def initial_state(attack, d):
    return attack.init({"w": jnp.zeros(d)}, jnp.ones(1, int))


def distances(rule, f, cohorts, attack=None):
    """The aggregate's distance from the mean of each of `cohorts`."""
    attack = ascent() if attack is None else attack
    aggregate, state = attacked(attack, rule, f), initial_state(attack, cohorts[0].shape[1])
    return np.array([np.linalg.norm(aggregate(honest, state)[0] - honest.mean(axis=0)) for honest in cohorts])


def cohorts(h, d, scale=1.0):
    return [0.3 + scale * np.random.default_rng(seed).normal(size=(h, d)) for seed in SEEDS]


def test_coordinate_wise_rules_move_to_the_worse_of_two_order_statistics():
    """An aggregated coordinate grows with each malicious value, so its extremes are at plus and minus infinity."""
    h, f, d = 8, 3, 6
    best = []
    for x in cohorts(h, d):
        ends = [np.sort(np.concatenate([x, np.full((f, d), s * 1e9)]), axis=0)[f:h].mean(axis=0) for s in (-1, 1)]
        best.append(np.linalg.norm(np.abs(np.subtract(ends, x.mean(axis=0))).max(axis=0)))
    np.testing.assert_allclose(distances(rules.trimmed_mean(num_byzantine=f), f, cohorts(h, d)), best, rtol=1e-4)


def test_a_mean_of_clipped_norms_moves_straight_away():
    """By f M / K along the shift that clipping the honest updates gives already."""
    h, f, d, bound = 8, 3, 6, 1.5
    best = []
    for x in cohorts(h, d):
        shift = clip(x, bound).sum(axis=0) / (h + f) - x.mean(axis=0)
        best.append(np.linalg.norm(shift) + f * bound / (h + f))
    found = distances(rules.norm_clipping(threshold=bound), f, cohorts(h, d))
    assert (found <= np.multiply(best, 1 + 1e-5)).all()
    assert (found >= np.multiply(best, 0.99)).all()


def test_drift_goes_on_where_earlier_rounds_went():
    """The mean of clipped norms then moves by f M / K along the first round's shift."""
    h, f, bound = 8, 3, 1.5
    (first, second, *_), rule, attack = cohorts(h, 6), rules.norm_clipping(threshold=bound), ascent(objective="drift")
    aggregate = attacked(attack, rule, f)
    update, state = aggregate(first, initial_state(attack, 6))
    drift = update - first.mean(axis=0)
    np.testing.assert_allclose(state.drift["w"], drift, rtol=1e-4, atol=1e-5)
    update, state = aggregate(second, state)
    largest = clip(second, bound).sum(axis=0) @ drift / (h + f) + f * bound / (h + f) * np.linalg.norm(drift)
    assert 0.99 * largest <= update @ drift <= (1 + 1e-5) * largest


def test_the_loss_after_the_step_is_as_large_as_it_can_be():
    """A quadratic one around c: the mean of clipped norms moves by f M / K straight away from c.

    The last coordinate is always zero, where the loss has no derivative, as with Adam's step: a random step leads away.
    """
    h, f, d, bound = 8, 3, 60, 1.5
    x, center = cohorts(h, d)[0], np.arange(d) / d
    x[:, -1] = center[-1] = 0

    def loss(aggregate, mask, key):
        update = aggregate.update["w"]
        return (jnp.sum((update - center) ** 2) + 0 * jnp.sqrt(jnp.abs(update[-1]))) / jnp.sum(mask)

    attack = ascent(objective="loss")
    update, _ = attacked(attack, rules.norm_clipping(threshold=bound), f, loss)(x, initial_state(attack, d))
    farthest = np.linalg.norm(clip(x, bound).sum(axis=0) / (h + f) - center) + f * bound / (h + f)
    assert 0.99 * farthest <= np.linalg.norm(update - center) <= (1 + 1e-5) * farthest


def one_round(attack, rule, optimizer):
    """A round of four clients, the last one malicious, on batches that have each client's loss: its examples are equal.

    Returns the attack's state and the honest clients' loss after the server's step, float64.
    """
    x, y = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), np.asarray([0, 1, 2, 0])
    x[:, 1] = 0  # its parameters never change
    owners = np.repeat(np.arange(4), 5)
    data = fedsim.from_arrays(x[owners], y[owners], owners, x, y)
    train = fedsim.corrupt(fedsim.corruption.none(), KEY, data.train, data.spec, 0, client_ids=[3])
    parts = {"server_optimizer": lambda hparams: optimizer, "attack": lambda hparams: attack}
    simulation = make_simulation(data, lambda hparams: rule, cohort_size=4, batch_size=2, epochs=1, **parts)
    hparams = fedsim.HParams(learning_rate=0.3)
    state, _ = jax.jit(lambda train: simulation.round(simulation.init(KEY, train, hparams), train, hparams))(train)
    kernel, bias = (np.asarray(state.variables.params["Dense_0"][name], float) for name in ("kernel", "bias"))
    logits = np.float64(x[:3]) @ kernel + bias
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(3), y[:3]]
    return state.attack, losses.mean()


def test_next_loss_is_that_of_the_honest_clients_after_the_server_step():
    def forge_updates(state, context, key):
        return context.report.updates, context.next_loss(context.aggregate(context.report), ~context.malicious, key)

    attack = fedsim.Attack(lambda variables, num_examples: jnp.float32(0), forge_updates=forge_updates)
    expected, loss = one_round(attack, rules.fedavg(), optax.sgd(0.5))
    np.testing.assert_allclose(expected, loss, rtol=1e-5)


def test_a_round_with_the_loss_as_objective():
    """Through Adam, whose step has no derivative where an update is zero, and through losses on root data."""
    attacks = ascent(objective="loss", num_steps=2), fedsim.attacks.sign_flip()
    ascended, flipped = (one_round(a, rules.zeno(num_byzantine=1), optax.adam(0.1))[1] for a in attacks)
    assert ascended > flipped


def optimum_of_krum(x, candidates):
    """Krum's largest distance from the mean of `x` [h, d] if one malicious client sends any of `candidates` [n, d]."""
    h = len(x)
    squared = lambda a, b: np.sum((a[:, None] - b[None]) ** 2, axis=-1)
    to_candidates, among = squared(x, candidates), squared(x, x) + np.diag(np.full(h, np.inf))
    score = lambda distances: np.sort(distances, axis=-1)[..., : h - 2].sum(axis=-1)  # K - f - 2 neighbors
    honest = np.concatenate([np.broadcast_to(among[:, None], (h, len(candidates), h)), to_candidates[..., None]], -1)
    scores = score(honest)
    is_chosen = score(to_candidates.T) < scores.min(axis=0)
    chosen = np.where(is_chosen[:, None], candidates, x[scores.argmin(axis=0)])
    return np.linalg.norm(chosen - x.mean(axis=0), axis=1).max()


def test_krum_in_the_plane():
    """Beside all points of a fine grid; the best region may be an island that no start is in."""
    rule, side, x = rules.krum(num_byzantine=1), np.linspace(-6, 6, 401), cohorts(5, 2)
    plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    found = distances(rule, 1, x, ascent(num_steps=100)) / [optimum_of_krum(one, plane) for one in x]
    assert found.min() >= 0.8, found
    assert np.median(found) >= 0.99, found


@pytest.mark.parametrize("name", ["signguard", "multi_krum"])
def test_nowhere_less_damaging_than_attacks_along_a_line(name):
    h, f = 11, 2
    make = getattr(rules, name)
    rule = make(num_byzantine=f) if name != "signguard" else make()
    found = distances(rule, f, cohorts(h, 8))
    for attack in (optimal_alie(num_strengths=8), optimal_ipm(num_strengths=8), min_max()):
        assert (found >= distances(rule, f, cohorts(h, 8), attack) * (1 - 1e-4)).all()


def test_own_knowledge_is_of_their_own_updates():
    context = make_context(rules.median(), jnp.asarray(cohorts(5, 3)[0]), 2)
    own = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    report = context.report._replace(updates={"w": context.report.updates["w"].at[5:].set(own)})
    report = report._replace(losses=jnp.arange(7.0), num_examples=jnp.arange(7))
    view = own_view(context._replace(report=report, next_loss=lambda aggregate, mask, key: mask))
    assert view.next_loss(None, ~context.malicious, KEY).tolist() == context.malicious.tolist()
    seen = view.report
    assert {tuple(row) for row in seen.updates["w"][:5].tolist()} == {tuple(row) for row in own.tolist()}
    np.testing.assert_array_equal(seen.updates["w"][5:], own)
    assert seen.losses.tolist() == seen.num_examples.tolist() == [*seen.losses[:5].tolist(), 5, 6]
    assert set(seen.losses.tolist()) == {5, 6}
