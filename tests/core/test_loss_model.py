"""When clients measure the loss that they report: whole runs of ARFL against a float64 loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import HParams
from fedsim.attacks import fake_loss
from tests.aggregators.test_arfl import by_bisection
from tests.conftest import COUNTS, arfl, make_simulation
from tests.core.test_client import softmax_gradient
from tests.core.test_simulation import fedavg

KEY, ROUNDS, RATE, EPOCHS, LAM, LOSS_SCALE = jax.random.key(1), 8, 0.5, 2, 0.15, 0.5
H = HParams(learning_rate=RATE, settings={"arfl.lam": LAM})
MALICIOUS = (4, 6)  # their labels are shuffled, too


def run(simulation, data):
    def both():
        state = simulation.init(KEY, data, H)
        return state, simulation.run_rounds(state, data, H, ROUNDS)

    before, (after, records) = jax.jit(both)()
    return before.variables.params["Dense_0"], after.variables.params["Dense_0"], records


def mean_loss(w, b, x, y):
    logits = x @ w + b
    return np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y])


def arfl_by_a_loop(start, data, records, loss_at):
    """Weights, losses and the last model, all in float64; from fedsim: the first model, cohorts, and who fails."""
    w, b = (np.asarray(start[name], np.float64) for name in ("kernel", "bias"))
    parts = [slice(o, o + n) for o, n in zip(np.asarray(data.offsets), COUNTS, strict=True)]
    examples = [(np.asarray(data.x[part], np.float64), np.asarray(data.y[part])) for part in parts]
    report_loss = lambda i, w, b: (LOSS_SCALE if i in MALICIOUS else 1) * mean_loss(w, b, *examples[i])
    known = np.asarray([report_loss(i, w, b) for i in range(len(COUNTS))])
    weights, losses = [], []
    for ids, answers in zip(np.asarray(records.client_ids), np.asarray(records.valid), strict=True):
        alpha = by_bisection(known, np.asarray(COUNTS), LAM)
        share = np.where(answers, alpha[ids], 0)
        share = share / (share.sum() or 1)
        next_w, next_b = w.copy(), b.copy()
        for i, part in zip(ids, share, strict=True):
            local_w, local_b = w, b
            for _ in range(EPOCHS):
                step_w, step_b = softmax_gradient(local_w, local_b, *examples[i])
                local_w, local_b = local_w - RATE * step_w, local_b - RATE * step_b
            next_w, next_b = next_w + part * (local_w - w), next_b + part * (local_b - b)
        at = (w, b) if loss_at == "broadcast" else (next_w, next_b)
        new = np.asarray([report_loss(i, *at) if answer else np.nan for i, answer in zip(ids, answers, strict=True)])
        known[ids[answers]] = new[answers]
        w, b = next_w, next_b
        weights.append(share)
        losses.append(new)
    return np.asarray(weights), np.asarray(losses), w, b


@pytest.mark.parametrize(
    ("loss_at", "options"),
    [
        ("broadcast", {}),
        ("aggregated", {}),
        ("aggregated", {"client_width": 2, "micro_batch": 3, "record_losses": False}),
    ],
)
def test_arfl_equals_a_numpy_loop(loss_at, options, dataset, data):
    """With dropout and forged losses; the batch is a client's whole data, so that its order does not matter."""
    y = data.y.at[8:13].set(data.y[8:13][::-1]).at[21:30].set(jnp.roll(data.y[21:30], 2))  # of clients 4 and 6
    data = data._replace(y=y, corrupted=data.corrupted.at[jnp.asarray(MALICIOUS)].set(True))
    options = {"batch_size": 17, "epochs": EPOCHS, "dropout_rate": 0.25, "loss_at": loss_at} | options
    simulation = make_simulation(dataset, attack=lambda hparams: fake_loss(scale=LOSS_SCALE), **options)
    start, end, records = run(simulation, data)
    weights, losses, w, b = arfl_by_a_loop(start, data, records, loss_at)
    assert not np.asarray(records.valid).all()
    assert ((weights > 0).sum(axis=1) < np.asarray(records.valid).sum(axis=1)).any()  # some have no weight
    np.testing.assert_allclose(records.weights, weights, atol=1e-4)
    expected = losses if simulation.losses.recorded else np.full_like(losses, np.nan)
    np.testing.assert_allclose(records.losses, expected, rtol=1e-4)
    np.testing.assert_allclose(end["kernel"], w, atol=1e-4)
    np.testing.assert_allclose(end["bias"], b, atol=1e-4)
    other = arfl_by_a_loop(start, data, records, "aggregated" if loss_at == "broadcast" else "broadcast")
    assert np.abs(other[0] - weights).max() > 0.02  # the loops differ by far more than rounding


@pytest.mark.parametrize("loss_at", ["broadcast", "aggregated"])
def test_losses_that_are_neither_recorded_nor_used_are_not_computed(loss_at, dataset, data):
    """By FedAvg; ARFL needs them."""

    def loops(rule, recorded):
        simulation = make_simulation(dataset, rule, loss_at=loss_at, record_losses=recorded)
        state = jax.eval_shape(simulation.init, KEY, data, H)
        return jax.jit(simulation.round).lower(state, data, H).as_text().count("stablehlo.while")

    assert loops(fedavg, False) < loops(fedavg, True)
    assert loops(arfl, False) == loops(arfl, True)


def test_an_attack_knows_no_losses_before_they_are_measured(dataset, data):
    """Losses are forged and observed once, after the step; updates are forged while losses are NaN."""

    def forge_updates(state, round_, key):
        return round_.report.updates, state + jnp.sum(jnp.isnan(round_.report.losses))

    forge_report = lambda state, report, malicious, key: (2 * report.num_examples, jnp.full_like(report.losses, 0.125))
    attack = fedsim.Attack(lambda variables, num_examples: jnp.int32(0), forge_report, forge_updates)
    marked = data._replace(corrupted=data.corrupted.at[7].set(True))
    simulation = make_simulation(dataset, cohort_size=len(COUNTS), attack=lambda hparams: attack, loss_at="aggregated")
    after, record = jax.jit(lambda: simulation.round(simulation.init(KEY, marked, H), marked, H))()
    assert int(after.attack) == len(COUNTS)
    is_liar = np.asarray(record.client_ids) == 7
    np.testing.assert_array_equal(np.asarray(record.losses)[is_liar], [0.125])
    assert (np.asarray(record.losses)[~is_liar] != 0.125).all()
    assert float(after.aggregator[0].losses[7]) == 0.125
