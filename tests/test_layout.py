"""Layouts: the rules for "auto", and memory that is bounded before anything runs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsim
from fedsim.cli.main import main
from fedsim.config.schema import ClientConfig, Config, EngineConfig
from fedsim.engine import group as execute
from fedsim.engine import memory
from fedsim.engine.layout import Layout, choose_layout, num_slots, useful_width
from fedsim.errors import ConfigError
from fedsim.models import MLP

PLENTY = 2**40


UNEQUAL = 2 ** np.arange(20)
EQUAL = np.full(20, 50)


def layout(
    num_runs=1, num_params=1000, *, counts=UNEQUAL, backend="cpu", num_devices=1, free=PLENTY, batch_size=32, **engine
):
    """A cohort is 10 clients; a step needs a byte for an example."""
    config = Config(engine=EngineConfig(**engine), client=ClientConfig(batch_size=batch_size))
    options = {"backend": backend, "num_devices": num_devices, "memory": free}
    return choose_layout(config, num_runs, num_params, counts, lambda batch: batch, **options)


def test_small_models_on_a_cpu_run_in_lockstep():
    assert layout(15) == Layout(2, 15)
    assert layout(1) == Layout(2, 1)
    assert layout(22) == Layout(2, 11)  # 22 = 11 + 11: no idle slot, unlike 16 + 6
    assert layout(1, counts=EQUAL) == Layout(10, 1)  # nobody waits
    assert layout(6, counts=EQUAL) == Layout(5, 6)
    assert layout(64, counts=EQUAL) == Layout(2, 16)


def test_large_models_on_a_cpu_run_one_by_one_a_few_examples_at_a_time():
    assert layout(15, 10**6) == Layout(1, 1, 8)
    assert layout(15, 10**6, batch_size=10) == Layout(1, 1, 0)
    assert layout(15, 10**6, batch_size=20) == Layout(1, 1, 10)  # in equal parts


def test_an_accelerator_runs_all_clients_and_many_runs():
    assert layout(64, backend="gpu") == Layout(10, 64)
    assert layout(64, 10**6, backend="gpu") == Layout(10, 8)  # at most 12 x 10 models; 64 = 8 x 8


def test_lockstep_stays_within_half_the_memory():
    assert layout(64, backend="gpu", free=80 * 32) == Layout(10, 4)  # 40 models of 32 bytes
    assert layout(64, backend="gpu", free=8 * 32) == Layout(4, 1)
    assert layout(64, backend="gpu", free=1) == Layout(1, 1)


@given(
    sizes=st.lists(st.integers(0, 70), min_size=1, max_size=9),
    width=st.integers(1, 9),
    batch_size=st.integers(1, 20),
    micro_batch=st.integers(0, 19),
)
def test_slots_are_those_of_a_loop(sizes, width, batch_size, micro_batch):
    """Wave by wave, step by step, micro-batch by micro-batch."""
    width, micro_batch = min(width, len(sizes)), min(micro_batch, batch_size - 1)
    sizes = sorted(sizes, reverse=True)
    slots = 0
    for start in range(0, len(sizes), width):
        left = sizes[start]
        while left > 0:
            in_batch = min(left, batch_size)
            slots += width * (batch_size if not micro_batch else micro_batch * math.ceil(in_batch / micro_batch))
            left -= in_batch
    assert num_slots(np.asarray([sizes]), width, batch_size, micro_batch) == [slots]


def test_useful_width_keeps_the_share():
    counts = np.random.default_rng(0).integers(1, 200, 100)
    width = useful_width(counts, 20, 8, most=20)
    assert 1 < width < 20
    cohort = np.sort(counts)[None, :-21:-1]
    slots = [num_slots(cohort, w, 8)[0] for w in (1, width)]
    assert slots[0] >= 0.9 * slots[1]  # the rule is about random cohorts, this is one of the largest
    assert useful_width(counts, 20, 8, most=1) == 1


def test_what_is_asked_for_is_kept():
    asked = {"client_width": 3, "run_width": 5, "micro_batch": 7}
    assert layout(64, 10**6, free=1, **asked) == Layout(3, 5, 7)
    assert layout(2, micro_batch=32, run_width=9) == Layout(2, 2, 0)


def test_devices_take_runs_unless_they_share_cohorts():
    assert layout(64, num_devices=8) == Layout(2, 8, run_devices=8)
    assert layout(3, num_devices=8) == Layout(2, 1, run_devices=3, client_devices=2)
    assert layout(1, num_devices=64, counts=EQUAL) == Layout(1, 1, client_devices=10)
    assert layout(64, num_devices=8, client_devices=4) == Layout(2, 16, run_devices=2, client_devices=4)
    with pytest.raises(ConfigError, match=r"engine\.client_devices: 3, but the number of devices is 2"):
        layout(num_devices=2, client_devices=3)


def test_narrower_layouts_halve_runs_then_clients():
    assert [(n.client_width, n.run_width) for n in Layout(4, 5, 8).narrower()] == [(4, 2), (4, 1), (2, 1), (1, 1)]


def test_step_bytes_bound_what_xla_needs():
    """For each batch size: at least what the compiled step allocates, at most a few times as much."""
    task = fedsim.classification(MLP(10, (256,)), np.zeros(64, np.float32))
    params, key = task.init(jax.random.key(0)), jax.random.key(0)
    for size in (8, 512):
        batch = jnp.zeros((size, 64)), jnp.zeros(size, jnp.int32), jnp.ones(size, bool), key
        program = jax.jit(jax.grad(task.loss)).lower(params, *batch).compile()
        bound = memory.step_bytes(task, np.zeros(64, np.float32), size)
        assert memory.needed([program]) <= bound <= 10 * memory.needed([program])


def test_available_memory_is_that_of_the_machine():
    assert 2**27 < memory.available() < 2**45


SMALL = """
[data]
num_clients = 10
[model]
hidden_sizes = [256]
[client]
batch_size = 64
[server]
num_rounds = 1
[[sweep]]
seed = [0, 1, 2, 3]
"""


def test_a_run_that_cannot_fit_says_which_widths_would(tmp_path, monkeypatch, capsys):
    """As on a device with less memory: between what four runs in lockstep need and what one does."""
    path = tmp_path / "c.toml"
    path.write_text(SMALL)
    needs = []
    needed = memory.needed
    monkeypatch.setattr(execute.memory, "needed", lambda programs: needs.append(needed(programs)) or needs[-1])
    command = ["run", str(path), "--out", str(tmp_path / "out"), "--engine.client-width", "1", "--engine.run-width"]
    assert main([*command, "1"]) == 0
    assert main([*command, "4", "--force"]) == 0
    alone, together = needs
    assert alone < together
    capsys.readouterr()
    monkeypatch.setattr(execute.memory, "available", lambda: (alone + together) // 2)
    assert main([*command, "4", "--force"]) == 2
    message = capsys.readouterr().err
    assert "1 clients x 4 runs in lockstep need" in message
    assert "these would fit: engine.client_width = 1, engine.run_width = 2" in message or "run_width = 1" in message
    monkeypatch.setattr(execute.memory, "available", lambda: 0)
    assert main([*command, "4", "--force"]) == 2
    assert "lower client.batch_size" in capsys.readouterr().err
