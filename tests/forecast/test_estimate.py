"""What `--dry-run` says of memory and time on this machine."""

import pytest

from fedsim.config.toml import parse
from fedsim.engine import devices, make_plan
from fedsim.engine.compiling import peak_memory
from fedsim.engine.data import load_dataset
from fedsim.engine.layout import Layout
from fedsim.engine.memory import run_bytes
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.errors import ConfigError
from fedsim.forecast import estimate
from tests.engine.test_memory import TEXT

SLOW_ATTACK = """
import time

import jax

import fedsim


def sleep(updates):
    time.sleep(0.2)
    return updates


def slow():
    def forge_updates(state, context, key):
        time.sleep(1)
        updates = context.report.updates
        return jax.pure_callback(sleep, updates, updates), state

    return fedsim.Attack(forge_updates=forge_updates)
"""


def test_a_group_needs_at_least_what_its_runs_and_data_do():
    configs = parse(TEXT).runs()
    dataset = load_dataset(configs[0])
    one, two = (estimate.group_bytes(configs, dataset, Layout(run_devices=n)) for n in (1, 2))
    of_runs, of_data = sum(run_bytes(configs, dataset)), dataset.train.x.nbytes + dataset.x_test.nbytes
    assert one > of_runs + of_data
    assert two > one + of_data  # each device has a copy


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_the_updates_of_a_wide_cohort_are_most_of_its_memory(algorithm):
    """One client after another, so that a step needs little."""
    keys = {"server.aggregator": "krum", "server.cohort_size": 30, "client.algorithm": algorithm}
    text = "data.num_clients = 30\nmlp.hidden_sizes = [300]\nclient.batch_size = 4\nserver.num_rounds = 10\n"
    plan = make_plan(parse(text, keys | {"engine.client_width": 1}))
    (group,) = plan.groups
    needed = sum(peak_memory(make_inputs(group, plan.families[0])))
    assert needed < estimate.group_bytes(group.configs, group.dataset, group.layout) < 2 * needed


def test_time_grows_with_runs_rounds_and_epochs(monkeypatch):
    """With a second for each example of a step."""
    monkeypatch.setattr(estimate, "_example_seconds", lambda *args: 1.0)

    def seconds(overrides=None, **layout):
        configs = parse(TEXT, {"client.batch_size": 1} | (overrides or {})).runs()
        return estimate.group_seconds(configs, load_dataset(configs[0]), Layout(**layout))

    dataset = load_dataset(parse(TEXT).runs()[0])
    cohort = 4 * dataset.train.num_examples.mean()  # clients have 179 or 180 examples, and batches of one waste nothing
    assert seconds({"client.epochs": 3}) - seconds() == pytest.approx(7 * 10 * 2 * cohort, rel=0.02)
    assert seconds() - seconds({"client.steps": 100}) == pytest.approx(7 * 10 * (cohort - 4 * 100), rel=0.02)
    before_rounds = seconds({"server.num_rounds": 0})
    one_evaluation = (seconds({"server.eval_every": 1}) - seconds({"server.eval_every": 10})) / 9
    assert seconds() - before_rounds == pytest.approx(7 * 10 * cohort * 4 / 3 + 2 * one_evaluation, rel=0.02)
    unrecorded = {"record.losses": False, "server.aggregator": "median"}
    assert seconds() - seconds(unrecorded) == pytest.approx(7 * (10 * cohort + 2 * cohort) / 3, rel=0.02)
    assert seconds(unrecorded | {"server.aggregator": "arfl"}) == seconds()
    assert seconds(run_devices=2) == pytest.approx(4 / 7 * seconds())
    assert seconds(client_devices=2) < seconds()


def test_a_batch_is_at_most_what_the_largest_client_has():
    """However large the number in the configuration is."""
    dataset = load_dataset(parse(TEXT).runs()[0])
    whole, larger = (parse(TEXT, {"client.batch_size": size}) for size in (dataset.max_num_examples, 10**6))
    layout, micro = Layout(client_width=4), Layout(client_width=4, micro_batch=10**5)
    assert estimate.group_bytes(larger.runs(), dataset, layout) == estimate.group_bytes(whole.runs(), dataset, layout)
    work = estimate.example_work(whole.runs()[0], dataset, layout)
    assert [estimate.example_work(larger.runs()[0], dataset, of) for of in (layout, micro)] == [work, work]
    assert make_plan(larger).groups[0].layout == make_plan(whole).groups[0].layout


def test_a_step_is_timed():
    config = parse(TEXT).runs()[0]
    assert 0 < estimate.group_seconds([config], load_dataset(config), Layout(client_width=2)) < 100


def test_attack_and_server_are_timed(tmp_path):
    """With an attack that sleeps, and is slow to trace, a rule with root data, and devices that share a cohort."""
    (tmp_path / "slow.py").write_text(SLOW_ATTACK)
    attacked = {"attack.kind": f"{tmp_path}/slow.py:slow", "corruption.fraction": 0.5}
    config = parse(TEXT, attacked | {"server.aggregator": "fltrust", "data.root_examples": 10}).runs()[0]
    layout = Layout(client_width=2, client_devices=2)
    assert 0.2 < estimate.server_seconds(config, load_dataset(config), layout) < 1


def test_steps_are_timed_only_where_they_fit(monkeypatch):
    plan = make_plan(parse(TEXT, {"seed": 0}))
    (group,) = plan.groups
    monkeypatch.setattr(devices, "free_bytes", lambda: 1000)
    with pytest.raises(ConfigError, match=r"^engine\.client_width: .*lower the widths"):
        estimate.group_seconds(group.configs, group.dataset, group.layout)
