"""Programs that are compiled in the background."""

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import pytest

import fedsim
from fedsim.engine import compiling
from fedsim.engine.compiling import clear_programs, start_compiling, trace
from fedsim.engine.devices import compiler_options
from fedsim.engine.programs import Executables
from fedsim.engine.streamed.inputs import make_inputs
from tests.conftest import watch_tracing
from tests.engine.test_store import plan_of


@pytest.fixture(scope="module")
def plan():
    """Two groups with a program each."""
    return plan_of([0], client__epochs=fedsim.sweep([1, 2]))


@pytest.fixture
def tiny_programs(monkeypatch):
    """Programs that do nothing, in place of traced ones; the groups of which they are."""
    clear_programs()
    groups = []

    def trace(inputs):
        groups.append(inputs.group)
        return compiling.Programs((), {name: jax.jit(lambda: 0).lower() for name in Executables._fields}, {}, 0.0)

    monkeypatch.setattr(compiling, "_trace", trace)
    yield groups
    clear_programs()


def test_a_started_group_is_not_compiled_again(plan, tiny_programs):
    with ThreadPoolExecutor(1) as background:
        (_, first), (_, second), (_, again) = (start_compiling(plan, number, background) for number in (0, 1, 1))
        assert first.compile()[1] > 0
        executables, seconds = second.compile()
        assert seconds > 0
        assert again.compile() == (executables, 0.0)  # the time of compiling counts once
    assert tiny_programs == list(plan.groups)


def _losses(folder, **changes):
    """The test losses of a run in `folder`."""
    config = {
        "data": {"num_clients": 4, "num_train": 200, "num_test": 20},
        "model": {"name": "logistic"},
        "server": {"cohort_size": 2, "num_rounds": 2},
        "corruption": {"kind": "shuffling", "fraction": 0.5},
    }
    result = fedsim.run(fedsim.load(config, **changes), out=folder / "run", force=True, progress=False)
    return result.rounds["test_loss"].to_list()


def test_a_later_run_with_an_equal_program_does_not_compile(monkeypatch, tmp_path):
    lowered = watch_tracing(monkeypatch)
    first = _losses(tmp_path)
    changes = {"seed": 3, "data__seed": 1, "corruption__fraction": 0.25, "client__learning_rate": 0.5}
    second = _losses(tmp_path, **changes)
    assert len(lowered) == 1
    clear_programs()
    assert second == _losses(tmp_path, **changes) != first
    assert len(lowered) == 2


def test_settings_of_jax_may_change_a_program(plan, tiny_programs):
    inputs = make_inputs(plan.groups[0], plan.families[0])
    programs = trace(inputs)
    assert trace(inputs) is programs
    with jax.numpy_rank_promotion("allow"):
        assert trace(inputs) is not programs


def test_a_program_with_a_plugin_is_not_kept(tmp_path, monkeypatch):
    """It may depend on more than its code, such as a variable of a module that is changed in a notebook."""
    lowered = watch_tracing(monkeypatch)
    (tmp_path / "sizes.py").write_text("HIDDEN = 4\n")
    code = "import sizes\nfrom fedsim.models import MLP\ndef net(spec): return MLP(spec.num_classes, (sizes.HIDDEN,))\n"
    (tmp_path / "model.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    model = f"{tmp_path / 'model.py'}:net"
    first = _losses(tmp_path, model__name=model)
    monkeypatch.setattr(sys.modules.pop("sizes"), "HIDDEN", 8)
    assert _losses(tmp_path, model__name=model) != first
    assert len(lowered) == 2


def test_programs_of_a_plan_are_kept_until_it_ends(tiny_programs, monkeypatch):
    """Two families in turn."""
    monkeypatch.setattr(compiling, "MAX_FAMILIES", 2)
    plan = plan_of([0], data__seed=fedsim.sweep([0, 1]), client__epochs=fedsim.sweep([1, 2]))
    with ThreadPoolExecutor(1) as background:
        for number in range(4):
            start_compiling(plan, number, background)[1].compile()
    assert (len(plan.groups), len(tiny_programs)) == (4, 2)


def test_failed_background_compilation_is_tried_again(plan, tiny_programs, monkeypatch):
    """For example because memory was short while another group ran."""
    right, calls = compiling.Executables, []

    def once(**programs):
        calls.append(1)
        if len(calls) == 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return right(**programs)

    monkeypatch.setattr(compiling, "Executables", once)
    with ThreadPoolExecutor(1) as background:
        assert start_compiling(plan, 0, background)[1].compile()[1] > 0
    assert len(calls) == 2


def test_llvm_level_unless_xla_flags_set_one(plan, monkeypatch):
    device = jax.devices("cpu")[0]
    assert compiler_options(device) == {}  # tests have chosen a level
    monkeypatch.delenv("XLA_FLAGS")
    assert compiler_options(device) == {"xla_backend_optimization_level": "1"}
    assert compiler_options(SimpleNamespace(platform="gpu")) == {}
    given = []
    compile_ = jax.stages.Lowered.compile
    patched = lambda self, options=None: given.append(options) or compile_(self, options)
    monkeypatch.setattr(jax.stages.Lowered, "compile", patched)
    clear_programs()
    trace(make_inputs(plan.groups[0], plan.families[0])).compile()
    assert given == [{"xla_backend_optimization_level": "1"}] * 3
