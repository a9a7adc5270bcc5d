"""Families: rules and attacks are data of one program; every run's rows are those of its own program, bit for bit."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import fedsim
from fedsim.config.toml import parse
from fedsim.core import branches
from fedsim.engine import compiling, make_plan, run_plan
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal, watch_tracing
from tests.engine.test_store import compute

PLUGINS = '''
"""A rule with a state, a traced setting and a scalar to record, and an attack with a state."""

from typing import Annotated

import jax
import jax.numpy as jnp

import fedsim
from fedsim.core.settings import Traced
from fedsim.core.types import Scalar


def slow_mean(*, decay: Annotated[Scalar, Traced(ge=0, lt=1), "share of the previous aggregate"] = 0.5):
    def init(variables, num_examples, losses):
        return jax.tree.map(jnp.zeros_like, variables)

    def aggregate(state, report, key):
        weights = report.valid / jnp.maximum(report.valid.sum(), 1)
        mean = jax.tree.map(lambda u: jnp.tensordot(weights, u, 1), report.updates)
        update = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, state, mean)
        return fedsim.Aggregate(update, weights, {"num_valid": report.valid.sum()}), update

    return fedsim.Aggregator(init, aggregate)


def growing_flip():
    def forge(state, context, key):
        return jax.tree.map(lambda u: -(1 + state) * u, context.report.updates), state + 0.5

    return fedsim.Attack(init=lambda variables, num_examples: jnp.float32(0), forge_updates=forge)
'''
GRID = """
name = "family"
data = {num_clients = 6, num_train = 120, num_test = 60, partition = "dirichlet"}
mlp.hidden_sizes = [4]
client.batch_size = 8
server = {cohort_size = 6, num_rounds = 4, eval_every = 2, num_byzantine = "corrupted"}
engine = {client_width = 2, run_width = 2}
[[sweep]]
server.aggregator = ["fedavg", "trimmed_mean", "plugins.py:slow_mean", "foolsgold", "arfl"]
attack.kind = ["sign_flip", "plugins.py:growing_flip", "mimic", "fake_loss"]
corruption.fraction = [0.17, 0.34, 0.5]
seed = [0, 1]
"""
FAMILY = GRID.partition("[[sweep]]")[0]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A folder with the plug-ins and the configuration."""
    directory = tmp_path_factory.mktemp("families")
    (directory / "plugins.py").write_text(PLUGINS)
    (directory / "grid.toml").write_text(GRID)
    return directory


@pytest.fixture(scope="module")
def plan(directory):
    return make_plan(fedsim.load(directory / "grid.toml"))


@pytest.fixture(scope="module")
def compiled():
    with pytest.MonkeyPatch.context() as patch:
        yield watch_tracing(patch)


@pytest.fixture(scope="module")
def folder(plan, directory, compiled):
    return run_plan(plan, directory / "undisturbed")


def rows(folder: RunFolder, kind: str, runs: Sequence[int]):
    """The rows of `runs`, without their numbers and without the columns that show what is swept in the folder."""
    table = folder.read(kind).to_pandas()
    swept = ["run", *(name for name in table if "." in name)]
    return table[table["run"].isin(runs)].drop(columns=swept).reset_index(drop=True)


def test_a_grid_with_plugins_is_one_program(plan, folder, compiled):
    assert len(plan.groups) == 20
    assert len(set(plan.families)) == len(compiled) == 1
    assert str(plan.families[0]) == "5 rules x 4 attacks"
    assert not folder.read("rounds").to_pandas()["diverged"].any()


@pytest.mark.parametrize(("rule", "attack"), [(2, 1), (4, 3)], ids=["both from plug-ins", "arfl under forged losses"])
def test_a_pair_gives_the_rows_of_its_own_program(folder, directory, rule, attack):
    run = 24 * rule + 6 * attack  # the first of the pair's six runs
    first = folder.runs()[run].keys
    names = {key: first[key] for key in ("server.aggregator", "attack.kind")}
    sweep = {"corruption.fraction": fedsim.sweep([0.17, 0.34, 0.5]), "seed": fedsim.sweep([0, 1])}
    alone = make_plan(parse(FAMILY, names | sweep))
    assert str(alone.families[0]) == "1 rule x 1 attack"
    expected = run_plan(alone, directory / f"alone-{rule}-{attack}")
    for kind in ("rounds", "clients", "info"):
        assert rows(expected, kind, range(6)).equals(rows(folder, kind, range(run, run + 6)))
    assert (expected.read("info").height > 0) == (rule == 2)


def test_a_branch_alone_is_a_condition_too():
    """Else it may be fused with the server step, and a sweep that resumes with its last rule would have other bits."""
    alone = lambda index, state: branches._switch(index, lambda position, state: state, 1, state)
    state = {"x": jnp.ones(2), "key": jax.random.key(3)}
    assert "cond[" in str(jax.make_jaxpr(alone)(0, state))
    assert jax.random.key_data(jax.jit(alone)(0, state)["key"]).tolist() == [0, 3]


@pytest.mark.slow
def test_rules_that_measure_losses_after_the_server_step_share_a_program(directory):
    settings = {"client.loss_at": "aggregated", "server.pre_aggregators": fedsim.sweep([[], ["nnm"]])}
    together = make_plan(parse(FAMILY, settings | {"server.aggregator": fedsim.sweep(["arfl", "median"])}))
    assert len(together.groups) == 4
    assert len(set(together.families)) == 1
    folder = run_plan(together, directory / "aggregated")
    for run in (1, 2):  # the median, and ARFL after mixing
        config = together.runs[run]
        names = {"server.aggregator": config.server.aggregator, "client.loss_at": "aggregated"}
        alone = parse(FAMILY, names | {"server.pre_aggregators": list(config.server.pre_aggregators)})
        expected = run_plan(make_plan(alone), directory / f"aggregated-{run}")
        for kind in ("rounds", "clients"):
            assert rows(expected, kind, range(1)).equals(rows(folder, kind, range(run, run + 1)))


def test_weightings_share_a_program(directory):
    settings = {
        "server.aggregator": "trimmed_mean",
        "server.num_byzantine": "malicious",
        "corruption.kind": "shuffling",
        "corruption.fraction": 0.34,
        "attack.kind": "sign_flip",
        "attack.fraction": fedsim.sweep([0.17, 0.34]),
    }
    rules = fedsim.sweep(["arfl", "cfl"])
    plan = make_plan(parse(FAMILY, settings | {"server.weighting": rules}))
    assert len(plan.groups) == 2
    assert len(set(plan.families)) == 1
    folder = run_plan(plan, directory / "weightings")
    expected = run_plan(make_plan(parse(FAMILY, settings | {"server.weighting": "arfl"})), directory / "weighting")
    for kind in ("rounds", "clients"):
        for run, same in ((0, 0), (1, 2)):  # fractions first, then weightings
            assert rows(expected, kind, range(run, run + 1)).equals(rows(folder, kind, range(same, same + 1)))


def test_rules_with_root_data_share_a_program(directory):
    rules = fedsim.sweep(["median", "zeno", "fltrust"])
    plan = make_plan(parse(FAMILY, {"server.aggregator": rules, "data.root_examples": 20, "seed": 0}))
    assert len(set(plan.families)) == 1
    folder = run_plan(plan, directory / "root")
    assert not folder.read("rounds")["diverged"].any()
    assert (folder.read("clients").group_by("run").agg(pl.col("weight").sum())["weight"] > 0.9).all()


def test_splits_share_a_program_and_later_batches_may_change_more_data(directory):
    """The first batches are clean, and train on the shared labels; the last one has labels of its own."""
    seeds = {"corruption.fraction": 0.5, "seed": fedsim.sweep([0, 1, 2])}
    swept = {"data.seed": fedsim.sweep([0, 1]), "corruption.kind": fedsim.sweep(["none", "flipping"])}
    plan = make_plan(parse(FAMILY, swept | seeds))
    smaller, larger = sorted(plan.groups, key=lambda group: group.dataset.max_num_examples)
    assert smaller.dataset.max_num_examples < larger.dataset.max_num_examples
    assert len(set(plan.families)) == 1
    folder = run_plan(plan, directory / "splits")
    for kind, group, runs in (("none", smaller, smaller.runs[:3]), ("flipping", larger, larger.runs[3:])):
        keys = {"data.seed": group.configs[0].data.seed, "corruption.kind": kind}
        expected = run_plan(make_plan(parse(FAMILY, keys | seeds)), directory / f"splits-{kind}")
        for table in ("rounds", "clients"):
            assert rows(expected, table, range(3)).equals(rows(folder, table, runs))


def test_splits_with_targeted_labels_share_a_program_if_their_test_sets_have_equal_classes():
    y = np.repeat(np.arange(10), 12)
    data = fedsim.from_arrays(y[:, None].astype(np.float32), y, x_test=np.ones((40, 1), np.float32), y_test=y[:40])
    tables = {
        "data": {"num_clients": 6, "partition": "iid", "seed": fedsim.sweep([0, 1])},
        "corruption": {"kind": "targeted", "fraction": 0.5},
        "server": {"cohort_size": 6, "num_rounds": 1},
    }
    for num_test, number in (40, 1), (20, 2):
        plan = make_plan(fedsim.load(tables, data=data, data__num_test=num_test))
        keys = {compiling._key(make_inputs(*pair)) for pair in zip(plan.groups, plan.families, strict=True)}
        assert (len(set(plan.families)), len(keys)) == (number, number)


def test_a_large_state_has_its_own_program():
    rules = {"server.aggregator": fedsim.sweep(["fedavg", "median", "foolsgold"]), "attack.kind": "sign_flip"}
    plan = make_plan(parse(FAMILY, rules | {"corruption.fraction": 0.5}))
    fedavg, median, foolsgold = dataclasses.replace(plan, machine=plan.machine._replace(memory=10_000)).families
    assert fedavg is median
    assert len(foolsgold.servers) == 1


def test_rules_without_losses_do_not_wait_for_losses():
    rules = {"server.aggregator": fedsim.sweep(["fedavg", "median", "arfl"]), "record.losses": False}
    pre = {"server.pre_aggregators": fedsim.sweep([[], ["nnm"]])}
    fedavg, mixed_fedavg, median, mixed_median, *arfl = make_plan(parse(FAMILY, rules | pre)).families
    assert fedavg is mixed_fedavg is median is mixed_median
    assert len(fedavg.servers) == 4
    assert fedavg not in arfl


@pytest.mark.slow
def test_a_longer_plan_with_another_rule_continues_the_states_of_the_first(directory):
    rules = lambda *names: {"server.aggregator": fedsim.sweep(names), "record.final_states": True}
    path = directory / "longer"
    run_plan(make_plan(parse(FAMILY, rules("foolsgold", "arfl"))), path)
    longer = make_plan(parse(FAMILY, rules("foolsgold", "median", "arfl") | {"server.num_rounds": 6}))
    assert sorted(compute(longer, path).computed) == [(2, 2), (4, 2), *[(6, 2)] * 3]
    check_equal(RunFolder(path), run_plan(longer, directory / "fresh"))


def test_whole_and_other_numbers_of_a_plugins_setting_are_floats(tmp_path):
    (tmp_path / "own.py").write_text(
        "from typing import Annotated\nimport fedsim\nfrom fedsim import Traced\n"
        "def flip(*, factor: Annotated[int | float, Traced(ge=0), 'factor'] = 1):\n"
        "    return fedsim.attacks.ipm(tau=factor + 1)\n"
    )
    values = {"flip.factor": fedsim.sweep([1, 0.5]), "attack.kind": "own.py:flip", "corruption.fraction": 0.5}
    plan = make_plan(parse(FAMILY, values, folder=tmp_path))
    (group,), (family,) = plan.groups, plan.families
    assert family.hparams(group.configs).settings["flip.factor"].tolist() == [1, 0.5]
