"""Memory that is bounded before anything runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.config.toml import parse
from fedsim.core.method import client_sgd
from fedsim.engine import build, devices, make_plan, memory, run_plan
from fedsim.engine.data import load_dataset
from fedsim.engine.layout import Machine
from fedsim.errors import ConfigError
from fedsim.models import MLP
from tests.conftest import make_dataset
from tests.engine.test_fitting import LOCKSTEP

TEXT = """
data.num_clients = 8
mlp.hidden_sizes = [16]
server = {cohort_size = 4, num_rounds = 10}
[[sweep]]
corruption = {kind = "noisy", fraction = 0.5}
seed = [0, 1, 2, 3, 4, 5, 6]
"""


@pytest.mark.parametrize("size", [8, 512])
def test_step_bytes_bound_what_xla_needs(size):
    """At least what the compiled step allocates, at most a few times as much."""
    dataset = make_dataset(num_features=64)
    task = fedsim.classification(MLP(10, (256,)), dataset.train.x[0])
    variables, key = task.init(jax.random.key(0)), jax.random.key(0)
    batch = jnp.zeros((size, 64)), jnp.zeros(size, jnp.int32), jnp.ones(size, bool), key
    program = jax.jit(jax.grad(task.loss, has_aux=True)).lower(variables, *batch).compile()
    bound, needed = memory.step_bytes(task, dataset, size), memory.program_memory(program).temp_bytes
    assert needed <= bound <= 10 * needed
    momentum = memory.step_bytes(task, dataset, size, client_sgd(fedsim.HParams(momentum=0.9)).transformation)
    assert momentum - bound == 2 * memory.tree_bytes(variables.params)  # before and after the step
    assert memory.step_bytes(task, dataset, size, client_sgd(fedsim.HParams()).transformation) == bound


def test_a_layout_counts_the_labels_that_depend_on_the_model():
    """The step of the task that the corruption changes bounds the models in lockstep."""
    config = "data = {num_train = 700, num_test = 20}\nmodel.name = 'logistic'\ncorruption = {fraction = 0.5, kind = "
    models = []
    for kind in ("flipping", "furthest_flipping"):
        (group,) = make_plan(parse(f"{config}'{kind}'}}"), Machine("cpu", 1, 2**20)).groups
        step_bytes = memory.step_bytes(build.task(group.configs[0], group.dataset), group.dataset, 32)
        assert group.layout.num_models * step_bytes <= 2**19
        models.append(group.layout.num_models)
    assert models[0] > models[1]


def test_a_group_that_does_not_fit_names_widths_that_do(tmp_path, monkeypatch):
    """As on a device with no memory left, and on one with what a run needs."""
    plan = make_plan(parse(LOCKSTEP, {"engine.client_width": 1, "engine.run_width": 2, "seed": fedsim.sweep([0, 1])}))
    needs, peak = [], memory.peak

    def recorded(programs):
        needs.append(peak(programs).temp_bytes)
        return memory.ProgramMemory(0, needs[-1])

    monkeypatch.setattr(memory, "peak", recorded)
    monkeypatch.setattr(devices, "free_bytes", lambda: 0)
    with pytest.raises(ConfigError, match=r"^engine\.client_width: .*use a smaller model"):
        run_plan(plan, tmp_path / "none")
    two, one = needs
    assert two > one
    monkeypatch.setattr(devices, "free_bytes", lambda: one)
    message = r"1 clients x 2 runs in lockstep need .*; use engine\.client_width = 1 and engine\.run_width = 1,"
    with pytest.raises(ConfigError, match=message):
        run_plan(plan, tmp_path / "one")


@pytest.mark.parametrize(("size", "text"), [(20 * 2**20, "20 MiB"), (3.1 * 2**30, "3.1 GiB"), (0, "0 MiB")])
def test_sizes(size, text):
    assert memory.gibibytes(size) == text


def run_bytes(overrides=None):
    """What a run without corruption holds, and the shapes of what it carries from round to round."""
    config = parse(TEXT, {"corruption.kind": "none"} | (overrides or {})).runs()[0]
    dataset = load_dataset(config)
    (estimated,) = memory.run_bytes([config], dataset)
    init = build.simulation(config, dataset).init
    return estimated, jax.eval_shape(lambda data: init(jax.random.key(0), data, build.hparams(config)), dataset.train)


@pytest.mark.parametrize(
    "overrides",
    [{"server.optimizer": "adam"}, {"client.algorithm": "scaffold"}, {"mlp.hidden_sizes": [40, 9]}],
    ids=["adam", "scaffold", "wider"],
)
def test_a_state_counts_with_all_that_it_carries(overrides):
    """Two moments of every parameter for Adam, a control of every client for SCAFFOLD: as the true states hold."""
    (plain, before), (more, after) = run_bytes(), run_bytes(overrides)
    num_bytes = lambda leaf: leaf.size * leaf.dtype.itemsize
    true_bytes = lambda state: sum(map(num_bytes, jax.tree.leaves(state._replace(key=()))))
    params = memory.tree_bytes(before.variables.params)
    least = {"server.optimizer": 2 * params, "client.algorithm": 9 * params}.get(next(iter(overrides)), params)
    assert true_bytes(after) - true_bytes(before) >= least
    assert more - plain == memory.NUM_COPIES * (true_bytes(after) - true_bytes(before))


def test_a_noisy_run_holds_its_own_images():
    config = parse(TEXT).runs()[0]
    dataset = load_dataset(config)
    clean = parse(TEXT, {"corruption.kind": "none"}).runs()[0]
    noisy, benign = memory.run_bytes([config, clean], dataset)
    assert noisy - benign == memory.NUM_COPIES * dataset.train.x.nbytes


def test_groups_are_cut_to_the_memory(monkeypatch):
    """With memory for three runs at a time, seven runs are three equal groups, each run once."""
    runs = parse(TEXT).runs()
    each, *_ = memory.run_bytes(runs, load_dataset(runs[0]))
    monkeypatch.setattr(devices, "free_bytes", lambda: 2 * 3 * each)
    groups = make_plan(parse(TEXT)).groups
    assert [len(group.runs) for group in groups] == [3, 2, 2]
    assert sorted(np.concatenate([group.runs for group in groups])) == list(range(7))
    monkeypatch.undo()
    assert len(make_plan(parse(TEXT)).groups) == 1
