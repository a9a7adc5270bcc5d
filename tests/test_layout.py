"""Layouts: the rules for "auto", and memory that is bounded before anything runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import execute, memory
from fedsim.cli import main
from fedsim.config import ClientConfig, Config, EngineConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, choose_layout
from fedsim.models import MLP

PLENTY = 2**40


def layout(num_runs=1, num_params=1000, *, backend="cpu", num_devices=1, free=PLENTY, step=1, batch_size=32, **engine):
    config = Config(engine=EngineConfig(**engine), client=ClientConfig(batch_size=batch_size))  # a cohort is 10 clients
    options = {"backend": backend, "num_devices": num_devices, "memory": free}
    return choose_layout(config, num_runs, num_params, lambda batch: step * batch, **options)


def test_small_models_on_a_cpu_run_in_lockstep():
    assert layout(15) == Layout(2, 15)
    assert layout(1) == Layout(2, 1)
    assert layout(22) == Layout(2, 11)  # 22 = 11 + 11: no idle slot, unlike 16 + 6


def test_large_models_on_a_cpu_run_one_by_one_a_few_examples_at_a_time():
    assert layout(15, 10**6) == Layout(1, 1, 16)
    assert layout(15, 10**6, batch_size=10) == Layout(1, 1, 0)


def test_an_accelerator_runs_all_clients_and_many_runs():
    assert layout(64, backend="gpu") == Layout(10, 64)
    assert layout(64, 10**6, backend="gpu") == Layout(10, 8)  # at most 12 x 10 models; 64 = 8 x 8


def test_lockstep_stays_within_half_the_memory():
    assert layout(64, backend="gpu", free=80 * 32, step=1) == Layout(10, 4)  # 40 models of 32 bytes
    assert layout(64, backend="gpu", free=8 * 32, step=1) == Layout(4, 1)
    assert layout(64, backend="gpu", free=1, step=1) == Layout(1, 1)


def test_what_is_asked_for_is_kept():
    asked = {"client_width": 3, "run_width": 5, "micro_batch": 7}
    assert layout(64, 10**6, free=1, **asked) == Layout(3, 5, 7)
    assert layout(2, micro_batch=32, run_width=9) == Layout(2, 2, 0)


def test_devices_take_runs_unless_they_share_cohorts():
    assert layout(64, num_devices=8) == Layout(2, 8, run_devices=8)
    assert layout(3, num_devices=8) == Layout(2, 1, run_devices=3)
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
