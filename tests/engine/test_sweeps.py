"""Sweeps: what is data compiles once and gives what a run alone gives; and what the parts of a configuration do."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedsim
from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan
from fedsim.engine.inputs import make_run_inputs
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.models import MLP
from tests.conftest import build_simulation, watch_tracing

TINY = """
data = {num_clients = 6, partition = "dirichlet", num_train = 240}
mlp.hidden_sizes = [8]
client.batch_size = 8
server = {aggregator = "fedavg", cohort_size = 4, num_rounds = 3, eval_every = 3}
"""
SWEPT = {
    "cfl.threshold": [-1.0, 0.0, 0.5],
    "fedprox.mu": [0.0, 0.1, 3.0],
    "sign_flip.scale": [0.1, 2.0, 8.0],
    "server.learning_rate": [0.1, 0.8, 1.5],
    "client_adamw.eps": [0.001, 0.1, 10.0],
    "client.learning_rate": [0.01, 0.05, 0.2],
    "corruption.fraction": [0.34, 0.67, 0.84],
    "seed": [1, 2, 3],
}
FIXED = """
client.algorithm = "fedprox"
client.optimizer = "adamw"
cfl.threshold = 0.3
fedprox.mu = 0.5
corruption.fraction = 0.5
attack.kind = "sign_flip"
"""


def num_runs(traced):
    """How many runs are in lockstep in each program, in order."""
    return [len(inputs.shapes.runs.key) for inputs in traced]


def test_settings_that_are_data_compile_once_and_give_what_each_run_alone_gives(monkeypatch, tmp_path):
    """Settings of a rule, an algorithm, an attack and an optimizer, in lockstep and one after another."""
    traced = watch_tracing(monkeypatch)
    text = TINY.replace("fedavg", "cfl") + FIXED
    text += "".join(f"[[sweep]]\n{key} = {values}\n" for key, values in SWEPT.items())
    together, alone = (
        run_plan(make_plan(parse(text, {"engine.run_width": width})), tmp_path / f"{width}").read("rounds")
        for width in ("auto", 1)
    )
    losses = together.filter(together["round"] > 0)["test_loss"].to_numpy().reshape(-1, 3)
    for key, of_values in zip(SWEPT, losses, strict=True):
        assert len(np.unique(of_values)) == 3, key  # the value has an effect
    np.testing.assert_allclose(together["test_loss"], alone["test_loss"], rtol=1e-3)
    assert num_runs(traced) == [12, 1]  # two batches


PARTS = """
[[sweep]]
client.algorithm = "fedprox"
fedprox.mu = 0.5
[[sweep]]
client.algorithm = "scaffold"
server.optimizer = "adam"
server.learning_rate = 0.03
"""
BY_HAND = {
    "fedprox": {"algorithm": lambda hparams: fedsim.algorithms.fedprox(mu=0.5)},
    "scaffold and adam": {
        "algorithm": lambda hparams: fedsim.algorithms.scaffold(),
        "server_optimizer": lambda hparams: optax.adam(0.03, 0.9, 0.99, 1e-3),
    },
}


def three_rounds(simulation, key, data):
    return simulation.run_rounds(simulation.init(key, data, fedsim.HParams()), data, fedsim.HParams(), 3)


def test_each_part_does_what_the_library_does(tmp_path):
    """A configuration's runs again, each from objects made by hand."""
    plan = make_plan(parse(TINY + PARTS))
    folder = run_plan(plan, tmp_path / "parts")
    rounds, clients = folder.read("rounds").to_dicts(), folder.read("clients").to_dicts()
    (dataset,) = plan.datasets.values()
    data = jax.tree.map(jnp.asarray, dataset.train)
    key = make_run_inputs(plan.runs[:1], plan.families[0].hparams(plan.runs[:1]), data, dataset.spec).key[0]
    task = fedsim.classification(MLP(10, (8,)), dataset.x_test[0])
    for run, part in enumerate(BY_HAND.values()):
        sizes = {"cohort_size": 4, "batch_size": 8, "max_num_examples": dataset.max_num_examples}
        simulation = build_simulation(task, lambda hparams: fedsim.aggregators.fedavg(), **sizes, **part)
        state, records = jax.jit(partial(three_rounds, simulation))(key, data)
        measured = fedsim.evaluate(task, state.variables, dataset.x_test, dataset.y_test)
        first, last = (row["test_loss"] for row in rounds if row["run"] == run)
        assert last == pytest.approx(float(measured.loss_sum / measured.num_examples), rel=1e-3)
        assert last < first
        for row in clients:
            if row["run"] == run:
                of_round = row["round"] - 1
                position = records.client_ids[of_round].tolist().index(row["client_id"])
                assert row["loss"] == pytest.approx(float(records.losses[of_round, position]), rel=1e-3)
                assert row["weight"] == pytest.approx(float(records.weights[of_round, position]), abs=1e-4)


LATE = TINY + "corruption = {kind = 'noisy', fraction = 0.5}\nattack.kind = 'fake_counts'\nrecord.data = true\n"


def test_a_sweep_over_the_start_of_corruption_compiles_once(monkeypatch, tmp_path):
    """From round 0 on it is the run without the key; before their starts two runs are equal."""
    traced = watch_tracing(monkeypatch)
    text = LATE.replace("eval_every = 3", "eval_every = 1")

    def losses(name, more=""):
        folder = run_plan(make_plan(parse(text + more)), tmp_path / name)
        who = [np.asarray(run.read_data()["corrupted"]).sum() for run in folder.runs()]
        return np.reshape(folder.read("rounds")["test_loss"].to_list(), (-1, 4)), who

    sweeps = "[[sweep]]\ncorruption.start_round = [0, 2, 3]\n[[sweep]]\ncorruption.end_round = [1]\n"
    (at_once, second, third, early), who = losses("all", sweeps)
    assert num_runs(traced) == [4]
    np.testing.assert_allclose(early[:2], at_once[:2], rtol=1e-3)
    assert early[2] != at_once[2]
    assert who == [3, 3, 3, 3]
    assert second[:2].tolist() == third[:2].tolist()
    assert second[1] != at_once[1]
    assert second[2] != third[2]
    np.testing.assert_allclose(losses("plain")[0][0], at_once, rtol=1e-3)


def test_runs_that_all_begin_corrupted_have_no_clean_data_beside():
    plan = make_plan(parse(LATE))
    shapes = make_inputs(plan.groups[0], plan.families[0]).shapes
    assert shapes.runs.corrupted_rounds is None
    (config,) = parse(LATE + "[[sweep]]\ncorruption.start_round = [3]\ncorruption.clients = [2]\n").runs()
    assert config.corruption.start_round == 3  # explicit ids keep it
    single = "[[sweep]]\ncorruption.start_round = [2]\ncorruption.end_round = [2]\n"
    assert make_plan(parse(LATE + single)).runs  # corruption in one round only
    (clean,) = parse(TINY + "[[sweep]]\ncorruption.start_round = [3]\n").runs()
    assert clean.corruption.start_round == 0  # no client is corrupted
