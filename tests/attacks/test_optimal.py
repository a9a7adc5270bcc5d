"""Attacks that search their strength: the most damaging one of the grid against the server's rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.aggregators import fedavg, multi_krum
from fedsim.attacks import alie, ipm, optimal_alie, optimal_ipm
from fedsim.attacks.search import geometric_grid
from fedsim.core.trees import select_clients
from tests.attacks.contexts import KEY, forge, honest_rows, make_context, rows

RULES = {"fedavg": fedavg(), "multi_krum": multi_krum(num_byzantine=2, num_selected=3)}


def damage(attack, context):
    """Distance of the aggregate from the honest mean."""
    forged, _ = attack.forge_updates((), context, KEY)
    updates = select_clients(context.malicious, forged, context.report.updates)
    update = context.aggregate(context.report._replace(updates=updates)).update
    return np.linalg.norm(rows(jax.tree.map(lambda a: a[None], update))[0] - honest_rows(context).mean(axis=0))


@pytest.mark.parametrize("rule", RULES)
def test_the_most_damaging_strength_of_the_grid_is_sent(rule):
    context = make_context(rule=RULES[rule])
    strengths = [0.1, 1.0, 10.0]
    grid = {"min_strength": 0.1, "max_strength": 10.0, "num_strengths": 3}
    for optimal, make_attack in (
        (optimal_ipm(**grid), lambda t: ipm(tau=t)),
        (optimal_alie(**grid), lambda z: alie(z=z)),
    ):
        damages = [damage(make_attack(strength), context) for strength in strengths]
        assert damage(optimal, context) == pytest.approx(max(damages), rel=1e-4)
        np.testing.assert_allclose(
            forge(optimal, context), forge(make_attack(strengths[np.argmax(damages)]), context), rtol=1e-4
        )
        if rule == "fedavg":  # a mean moves without bound
            assert np.argmax(damages) == 2


@pytest.mark.parametrize("rule", RULES)
def test_the_line_search_follows_its_definition(rule):
    context = make_context(rule=RULES[rule])
    damage_at = lambda strength: damage(alie(z=strength), context)
    best, step, expands = 0.0, 10.0, True
    for _ in range(5):
        is_better = damage_at(best + step) > damage_at(best)
        best, expands = best + is_better * step, expands and is_better
        step *= 2 if expands else 0.8
    np.testing.assert_allclose(
        forge(optimal_alie(search="line", num_strengths=6), context), forge(alie(z=best), context), rtol=1e-4
    )


def test_the_grid_is_geometric():
    np.testing.assert_allclose(geometric_grid(0.01, 100.0, 5), [0.01, 0.1, 1, 10, 100], rtol=1e-5)
    np.testing.assert_allclose(geometric_grid(0.01, 100.0, 1), [100], rtol=1e-5)


def test_strengths_with_non_finite_aggregates_are_ignored():
    """If there are no others, the first strength is sent."""
    rule = fedavg()
    aggregate = lambda report: rule.aggregate((), report, KEY)[0]._replace(
        update=jax.tree.map(lambda u: u[0] * jnp.nan, report.updates)
    )
    context = make_context()._replace(aggregate=aggregate)
    np.testing.assert_allclose(forge(optimal_ipm(min_strength=0.1), context), forge(ipm(tau=0.1), context), rtol=1e-4)


def test_a_strength_with_a_finite_aggregate_is_preferred():
    def aggregate(report):
        result = fedavg().aggregate((), report, KEY)[0]
        is_large = jnp.max(jnp.abs(report.updates["b"])) > 50
        return result._replace(update=jax.tree.map(lambda u: jnp.where(is_large, jnp.nan, u), result.update))

    context = make_context()._replace(aggregate=aggregate)
    optimal = optimal_ipm(min_strength=0.1, max_strength=1000.0, num_strengths=3)
    np.testing.assert_allclose(forge(optimal, context), forge(ipm(tau=10.0), context), rtol=1e-4)
