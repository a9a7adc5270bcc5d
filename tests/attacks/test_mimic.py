"""The client that mimic copies, against a float64 oracle of Oja's method."""

import numpy as np
import pytest

from fedsim.attacks import mimic
from tests.attacks.contexts import CLIENT_IDS, HONEST, KEY, MALICIOUS, VALID, first_update, forge, make_context, rows


@pytest.mark.parametrize(("client_id", "copied"), [(3, 3), (4, 7), (6, 7), (10, 12), (13, 20), (1, 3), (500, 3)])
def test_a_fixed_target_is_the_given_client_or_the_next(client_id, copied):
    """1 and 4 are malicious, 6 is invalid, 10 and 13 are not in the cohort; after the highest id comes the lowest."""
    context = make_context()
    expected = rows(context.report.updates)[list(CLIENT_IDS).index(copied)]
    forged = forge(mimic(target="fixed", client_id=client_id), context)
    np.testing.assert_allclose(forged, np.broadcast_to(expected, forged.shape))


def test_the_direction_is_learned_and_the_target_is_kept():
    attack, state = mimic(warmup=3), None
    mean = z = None
    for t in range(5):
        context = make_context(seed=t)
        x = rows(context.report.updates)[HONEST]
        state = attack.init(first_update(context), context.report.num_examples) if state is None else state
        if z is None:
            mean, z = np.zeros(x.shape[1]), rows({k: v[None] for k, v in state.direction.items()})[0]
        if t < 3:
            mean = (t * mean + x.mean(axis=0)) / (1 + t)
            product = sum(np.outer(a - mean, a - mean) for a in x) @ z
            z = (t * z + product / np.linalg.norm(product)) / (1 + t)
            z /= np.linalg.norm(z)
            target = CLIENT_IDS[HONEST][np.argmax(x @ z)]
        forged, state = attack.forge_updates(state, context, KEY)
        np.testing.assert_allclose(rows({k: v[None] for k, v in state.direction.items()})[0], z, atol=1e-5)
        assert state.target_id == target
        expected = rows(context.report.updates)[list(CLIENT_IDS).index(target)]
        np.testing.assert_allclose(rows(forged)[MALICIOUS], np.broadcast_to(expected, (2, len(expected))))
    assert state.round == 3
    absent = make_context(seed=9, valid=VALID & (target != CLIENT_IDS))
    leader = np.argmax(np.where(HONEST & (target != CLIENT_IDS), rows(absent.report.updates) @ z, -np.inf))
    forged, after = attack.forge_updates(state, absent, KEY)
    np.testing.assert_allclose(rows(forged)[1], rows(absent.report.updates)[leader])
    assert after.target_id == target
