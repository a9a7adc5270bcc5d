"""Programs that are compiled ahead."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from fedsim.config.toml import parse
from fedsim.engine import compiling, make_plan, run_plan
from fedsim.engine.compiling import Ahead, GroupPrograms
from fedsim.engine.devices import compiler_options
from tests.conftest import check_equal

TWO_GROUPS = """
[data]
num_clients = 4
num_train = 40
num_test = 20
[mlp]
hidden_sizes = [4]
[server]
cohort_size = 2
num_rounds = 2
[[sweep]]
server.aggregator = ["fedavg", "rfa"]
"""


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(TWO_GROUPS))


@pytest.fixture
def made(plan):
    """What makes a group's programs, and the numbers of the groups that it made."""
    numbers = []

    def make(number):
        numbers.append(number)
        group = plan.groups[number]
        return GroupPrograms(plan.configs(group), plan.dataset(group), group.layout)

    return make, numbers


def test_a_group_that_was_begun_is_not_made_again(made):
    make, numbers = made
    with Ahead(make) as ahead:
        first = ahead.take(0)
        ahead.start(1)
        ahead.start(1)
        assert first.compiled()[1] > 0
        second = ahead.take(1)
        assert second.compiled() is second.compiled()
        assert numbers == [0, 1]
        ahead.start(0)
        ahead.take(1)  # 0 was somebody else's
        ahead.take(0)
        assert numbers == [0, 1, 0, 1, 0]


def test_what_fails_in_the_background_is_tried_again(made, monkeypatch):
    """Memory that was short while another group ran, say."""
    make, _ = made
    right, calls = compiling._compile, []

    def once(*args):
        calls.append(1)
        if len(calls) == 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return right(*args)

    monkeypatch.setattr(compiling, "_compile", once)
    with Ahead(make) as ahead:
        assert ahead.take(0).compiled()[1] > 0
    assert len(calls) == 2


def test_rows_do_not_depend_on_it(plan, tmp_path, monkeypatch):
    ahead = run_plan(plan, tmp_path / "ahead")
    monkeypatch.setattr(Ahead, "start", lambda self, number: None)
    monkeypatch.setattr(Ahead, "take", lambda self, number: self._make(number))
    check_equal(run_plan(plan, tmp_path / "alone"), ahead)


def test_llvm_does_less_unless_told_otherwise(made, monkeypatch):
    device = jax.devices("cpu")[0]
    assert compiler_options(device) == {}  # tests have chosen a level
    monkeypatch.delenv("XLA_FLAGS")
    assert compiler_options(device) == {"xla_backend_optimization_level": "1"}
    assert compiler_options(SimpleNamespace(platform="gpu")) == {}
    given = []
    compile_ = jax.stages.Lowered.compile
    patched = lambda self, options=None: given.append(options) or compile_(self, options)
    monkeypatch.setattr(jax.stages.Lowered, "compile", patched)
    programs = made[0](0)
    placed = programs.place()
    compiled, _ = programs.compiled()
    assert given == [{"xla_backend_optimization_level": "1"}] * 3
    states = compiled.init(placed.shared, placed.inputs)
    states, _ = compiled.chunk(states, placed.shared, placed.inputs, programs.number_of_rounds(1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(states.variables))
