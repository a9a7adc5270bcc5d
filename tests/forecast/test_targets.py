"""Programs for accelerators that are not there: what must not be in them.

Their intermediate code is made without any compiler; tests that compile are marked and need libtpu.
"""

import importlib.util
import re
from dataclasses import replace

import jax
import numpy as np
import pytest

import fedsim
from fedsim.config.toml import parse
from fedsim.core.client import loss_gradient
from fedsim.core.rewriting import for_backend
from fedsim.engine import make_plan
from fedsim.engine.compiling import run_functions, trace
from fedsim.engine.families import make_family
from fedsim.engine.fitting import fit_layout
from fedsim.engine.layout import Layout, Machine, make_mesh
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.errors import ConfigError
from fedsim.forecast import targets
from fedsim.models import MLP, CharLSTM, Cifar10CNN, FemnistCNN

NETWORKS = {
    "cifar10_cnn": (Cifar10CNN(10), np.zeros((32, 32, 3), np.uint8)),
    "femnist_cnn": (FemnistCNN(62), np.zeros((28, 28, 1), np.uint8)),
    "char_lstm": (CharLSTM(80), np.zeros(80, np.int32)),
    "mlp": (MLP(10, (32,)), np.zeros(64, np.float32)),
}
TINY = """
data = {num_clients = 16, num_train = 160}
mlp.hidden_sizes = [8]
client.batch_size = 4
server = {aggregator = "arfl", cohort_size = 8, num_rounds = 4, eval_every = 2}
corruption = {kind = "shuffling", fraction = 0.25}
[[sweep]]
seed = [0, 1]
"""
COLLECTIVES = "all-reduce all-gather all-to-all collective-permute reduce-scatter collective-broadcast".split()  # noqa: SIM905


def compiles(test):
    """A test that compiles for a TPU; nothing here could load what JAX's cache keeps of that."""
    for mark in (
        pytest.mark.targets,
        pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"),
        pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache"),
    ):
        test = mark(test)
    return test


@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_neither_scatters_nor_gathers(network):
    """On a CPU; it computes in single precision and has no convolution."""
    module, example = NETWORKS[network]
    task = for_backend(fedsim.classification(module, example), "cpu")
    key = jax.random.key(0)
    batch = np.zeros((4, *example.shape), example.dtype), np.zeros(4, np.int32), np.ones(4, bool), key
    arguments = jax.eval_shape(lambda: (*task.init(key), *batch))
    lockstep = jax.tree.map(lambda a: jax.ShapeDtypeStruct((3, *a.shape), a.dtype), arguments)
    text = jax.jit(jax.vmap(loss_gradient(task))).lower(*lockstep).as_text()
    operations = set(re.findall(r"stablehlo\.(\w+)", text))
    assert not operations & {"convolution", "scatter", "gather", "select_and_scatter", "sort", "custom_call"}
    assert "f64" not in text


def inner(jaxpr):
    """All equations of a trace, also those inside others."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for one in value if isinstance(value, tuple | list) else [value]:
                if hasattr(one, "jaxpr") or hasattr(one, "eqns"):
                    yield from inner(getattr(one, "jaxpr", one))


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(TINY), Machine("tpu", 8, 2**30))


def inputs_of(plan, layout, devices=None):
    group = replace(plan.groups[0], layout=layout)
    return make_inputs(group, make_family([group]), devices)


@pytest.mark.parametrize("layout", [Layout(8, 2, backend="tpu"), Layout(2, 1, backend="gpu")])
def test_loops_of_a_chunk_have_unbatched_bounds(plan, layout):
    """A batched condition becomes a reduction over all models, and selects over everything that the loop carries."""
    inputs = inputs_of(plan, layout)
    states, (shared, _, runs, *_) = trace(inputs).states, inputs.shapes
    chunk = jax.make_jaxpr(run_functions(inputs).chunk)(states, shared, runs, jax.ShapeDtypeStruct((), np.int32))
    loops = [eqn for eqn in inner(chunk.jaxpr) if eqn.primitive.name == "while"]
    assert len(loops) >= 3  # rounds, epochs, steps
    for loop in loops:
        assert [eqn.primitive.name for eqn in loop.params["cond_jaxpr"].jaxpr.eqns] == ["lt"]


def test_parse():
    assert targets.parse("v5e:4") == targets.Target("v5e", 4)
    assert targets.parse("v5e:16").machine == Machine("tpu", 16, int(15.75 * 2**30), 4)
    assert targets.parse("h200:8").machine[:2] == ("gpu", 8)
    assert str(targets.parse("h100")) == "h100"
    assert targets.parse("sm_120-32gb:2").machine == Machine("gpu", 2, 24 * 2**30, 1)
    for text, message in (
        (
            "h1000",
            "must be one of v5e, v5p, v6e, a100, h100, h200, or a GPU's compute capability and memory as sm_86-24gb",
        ),
        (
            "sm_87-24gb",
            "must be one of sm_70, sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, and its memory in GiB",
        ),
        ("v5e:3", "must be v5e with one of 1, 2, 4, 8, 16, 32, 64 devices, got v5e:3"),
        ("v5p:x", "got v5p:x"),
        ("h100:0", "must be h100 with one of 1, 2, 3, 4, 5, 6, 7, 8 devices, got h100:0"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            targets.parse(text)


@pytest.mark.parametrize(("name", "extra"), [("v5e", "tpu-compile"), ("h100", "cuda")])
def test_missing_compilers_are_named(monkeypatch, name, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *args: None)
    with pytest.raises(ConfigError, match=rf"--target {name}: needs .*; pip install 'fedsim-jax\[{extra}\]'"):
        targets.devices(targets.parse(name))


@pytest.fixture(scope="module")
def eight():
    return targets.devices(targets.parse("v5e:8"))


@compiles
@pytest.mark.parametrize(
    ("layout", "collectives"),
    [
        (Layout(8, 1, run_devices=2, backend="tpu"), set()),
        (Layout(2, 1, run_devices=2, client_devices=4, backend="tpu"), {"all-gather"}),
    ],
)
def test_a_chunk_for_eight_tpus_stays_on_its_device(plan, eight, layout, collectives):
    """Devices that share a cohort gather its results, those that share runs exchange nothing; no host takes part."""
    text = trace(inputs_of(plan, layout, eight)).lowered["chunk"].compile().as_text()
    opcodes = set(re.findall(r" ([a-z-]+?)(?:-start|-done)?\(", text))
    assert "while" in opcodes
    assert opcodes & set(COLLECTIVES) == collectives
    assert not opcodes & {"infeed", "outfeed", "send", "recv"}
    assert "callback" not in text
    assert "S(5)" not in text  # the host's memory
    assert "f64[" not in text


@compiles
@pytest.mark.parametrize("number", [3, 5])
def test_runs_take_any_number_of_chips(eight, number):
    """Also a number that is no box of neighbors."""
    mesh = make_mesh(Layout(run_devices=number), eight)
    assert mesh.devices.ravel().tolist() == list(eight[:number])


@compiles
def test_a_plan_fits_as_the_compiler_says(plan, eight):
    """The widest layout if the memory suffices, which holds the data at least; the narrowest one if none does."""
    (group,), crowded = plan.groups, replace(plan, machine=plan.machine._replace(memory=1))
    layout, needed = fit_layout(plan, plan.families[0], eight)
    assert layout == group.layout
    assert group.dataset.train.x.nbytes < needed < plan.machine.memory
    narrow, needed = fit_layout(crowded, crowded.families[0], eight)
    assert (narrow.client_width, narrow.run_width) == (1, 1)
    assert needed > 1
