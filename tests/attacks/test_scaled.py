"""Attacks that scale a client's own update or number of examples."""

import jax.numpy as jnp
import numpy as np

from fedsim.attacks import fake_counts, model_replacement
from tests.attacks.contexts import KEY, MALICIOUS, NUM_EXAMPLES, VALID, forge, make_context, rows


def test_model_replacement_makes_fedavg_the_malicious_mean():
    """If the honest updates are zero, FedAvg moves by the malicious clients' mean update."""
    context = make_context()
    zero_honest = lambda u: jnp.where(np.reshape(MALICIOUS, (-1, *[1] * (u.ndim - 1))), u, 0.0)
    updates = {name: zero_honest(u) for name, u in context.report.updates.items()}
    context = context._replace(report=context.report._replace(updates=updates))
    x = rows(updates)[MALICIOUS]
    expected = NUM_EXAMPLES[MALICIOUS] @ x / NUM_EXAMPLES[MALICIOUS].sum()
    average = NUM_EXAMPLES[MALICIOUS] @ forge(model_replacement(), context) / NUM_EXAMPLES[VALID].sum()
    np.testing.assert_allclose(average, expected, rtol=1e-5)
    np.testing.assert_allclose(forge(model_replacement(scale=20.0), context), 20 * x, rtol=1e-6)


def test_model_replacement_without_malicious_clients_is_finite():
    forged, _ = model_replacement().forge_updates((), make_context(malicious=np.zeros(8, bool)), KEY)
    assert np.isfinite(rows(forged)).all()


def test_fake_counts_are_scaled_rounded_and_bounded():
    report = make_context().report._replace(num_examples=jnp.asarray([3, 5, 0, 1, 7, 2, 4, 6]))
    forge_report = lambda factor: fake_counts(factor=factor).forge_report((), report, jnp.asarray(MALICIOUS), KEY)
    num_examples, losses = forge_report(2.5)
    np.testing.assert_array_equal(num_examples, np.round(2.5 * np.asarray(report.num_examples)))
    np.testing.assert_array_equal(losses, report.losses)
    np.testing.assert_array_equal(forge_report(1e-3)[0], np.asarray(report.num_examples) > 0)
    largest = forge_report(1e20)[0]
    assert int(np.asarray(largest, np.int64).sum()) < 2**31
    assert (np.asarray(largest) > 0).tolist() == (np.asarray(report.num_examples) > 0).tolist()
