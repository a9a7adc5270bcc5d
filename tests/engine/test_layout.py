"""Layouts: what "auto" comes to is within its limits, for any run on any machine."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config.schema import Config
from fedsim.config.sections import ClientConfig, EngineConfig, ServerConfig
from fedsim.engine.layout import SHARE_OF_MEMORY, Layout, Machine, choose_layout
from fedsim.engine.padding import efficient_width, most_computed, num_computed
from fedsim.errors import ConfigError

PLENTY = 2**40
SMALL, LARGE = 1000, 10**6  # parameters
UNEQUAL = 2 ** np.arange(20)
EQUAL = np.full(20, 50)


def layout(
    num_runs=1,
    num_params=SMALL,
    *,
    num_examples=UNEQUAL,
    backend="cpu",
    num_devices=1,
    free=PLENTY,
    batch_size=32,
    cohort_size=10,
    **engine,
):
    """A step needs a byte for an example."""
    client, server = ClientConfig(batch_size=batch_size), ServerConfig(cohort_size=cohort_size)
    config = Config(engine=EngineConfig(**engine), client=client, server=server)
    machine = Machine(backend, num_devices, free)
    return choose_layout(config, num_runs, num_params, num_examples, lambda batch: batch, machine)


@given(
    num_runs=st.integers(1, 200),
    num_params=st.sampled_from([SMALL, LARGE]),
    num_examples=st.sampled_from([UNEQUAL, EQUAL]),
    backend=st.sampled_from(["cpu", "gpu"]),
    num_devices=st.integers(1, 64),
    free=st.sampled_from([1, 300, 10_000, PLENTY]),
    batch_size=st.integers(1, 100),
    cohort_size=st.integers(1, 20),
)
def test_layouts_are_within_their_limits(num_runs, num_devices, free, batch_size, cohort_size, **rest):
    got = layout(num_runs, num_devices=num_devices, free=free, batch_size=batch_size, cohort_size=cohort_size, **rest)
    assert got.run_devices <= num_runs
    assert got.client_devices <= cohort_size
    assert got.run_devices * got.client_devices <= num_devices
    runs_a_device = math.ceil(num_runs / got.run_devices)
    assert 1 <= got.run_width <= runs_a_device
    assert 1 <= got.client_width <= math.ceil(cohort_size / got.client_devices)
    assert 0 <= got.micro_batch < batch_size
    models = got.client_width * got.run_width
    if rest["backend"] == "cpu":  # elsewhere the compiler says what fits
        assert models == 1 or models * (got.micro_batch or batch_size) <= SHARE_OF_MEMORY * free
    if num_runs % num_devices == 0:  # devices share cohorts only if some would be idle otherwise
        assert got.run_devices == num_devices


def test_small_models_run_in_lockstep_and_large_ones_on_a_cpu_one_by_one():
    small, large = layout(15), layout(15, LARGE)
    assert small.client_width * small.run_width > 1
    assert small.micro_batch == 0
    assert (large.client_width, large.run_width) == (1, 1)
    assert 0 < large.micro_batch < 32
    assert 32 % large.micro_batch == 0  # in equal parts
    assert layout(num_examples=EQUAL).client_width > layout().client_width  # no client waits for a larger one
    assert layout(64, LARGE, backend="gpu").client_width == 10


@pytest.mark.parametrize("num_runs", [22, 33, 50])
def test_run_width_divides_the_runs(num_runs):
    width = layout(num_runs).run_width
    assert 1 < width < num_runs
    assert num_runs % width == 0


@given(
    sizes=st.lists(st.integers(0, 70), min_size=1, max_size=9),
    width=st.integers(1, 9),
    batch_size=st.integers(1, 20),
    micro_batch=st.integers(0, 19),
    steps=st.none() | st.integers(1, 30),
)
def test_computed_examples_are_those_of_a_loop(sizes, width, batch_size, micro_batch, steps):
    """Wave by wave, step by step, micro-batch by micro-batch: an epoch, or steps through as many as it takes."""
    width, micro_batch = min(width, len(sizes)), min(micro_batch, batch_size - 1)
    sizes = sorted(sizes, reverse=True)
    computed = 0
    for start in range(0, len(sizes), width):
        left, made = sizes[start], 0
        while left > 0 and made != steps:
            in_batch = min(left, batch_size)
            computed += width * (batch_size if not micro_batch else micro_batch * math.ceil(in_batch / micro_batch))
            left, made = left - in_batch, made + 1
            left = sizes[start] if left == 0 and steps else left
    assert num_computed(np.asarray([sizes]), width, batch_size, micro_batch, steps) == [computed]


def test_efficient_width_keeps_the_share():
    num_examples = np.random.default_rng(0).integers(1, 200, 100)
    width = efficient_width(num_examples, 20, 8, max_width=20)
    assert 1 < width < 20
    cohort = np.sort(num_examples)[None, :-21:-1]
    computed = [num_computed(cohort, w, 8)[0] for w in (1, width)]
    assert computed[0] >= 0.9 * computed[1]  # the rule is about random cohorts, this is one of the largest
    assert efficient_width(num_examples, 20, 8, max_width=1) == 1
    assert efficient_width(num_examples, 20, 8, max_width=20, steps=3) == 20  # no client waits for another


@given(
    cohorts=st.integers(1, 9).flatmap(
        lambda size: st.lists(st.lists(st.integers(0, 70), min_size=size, max_size=size), min_size=1)
    ),
    num_devices=st.integers(1, 5),
    micro_batch=st.integers(0, 9),
)
def test_the_busiest_device_is_that_of_a_deal_in_serpentine_order(cohorts, num_devices, micro_batch):
    cohorts = [sorted(sizes, reverse=True) for sizes in cohorts]
    order = [*range(num_devices), *reversed(range(num_devices))]
    most = []
    for sizes in cohorts:
        hands = [[0] for _ in range(num_devices)]
        for position, size in enumerate(sizes):
            hands[order[position % len(order)]].append(size)
        most.append(max(num_computed(np.asarray([hand]), 1, 10, micro_batch)[0] for hand in hands))
    assert most_computed(np.asarray(cohorts), num_devices, 10, micro_batch) == pytest.approx(np.mean(most))


def test_given_widths_are_kept():
    given_widths = {"client_width": 3, "run_width": 5, "micro_batch": 7}
    assert layout(64, LARGE, free=1, **given_widths) == Layout(3, 5, 7)
    assert layout(2, micro_batch=32, run_width=9) == Layout(2, 2, 0)  # as many runs and examples as there are


def test_devices_share_cohorts_if_given_or_if_there_are_few_runs():
    spread = lambda *args, **options: (lambda got: (got.run_devices, got.client_devices))(layout(*args, **options))
    assert spread(64, num_devices=8) == (8, 1)
    assert spread(3, num_devices=8) == (3, 2)
    assert spread(1, num_devices=64) == (1, 10)
    assert spread(64, num_devices=8, client_devices=4) == (2, 4)
    with pytest.raises(ConfigError, match=r"engine\.client_devices: .* got 3"):
        layout(num_devices=2, client_devices=3)


def test_devices_share_cohorts_if_large_models_would_leave_them_idle():
    def spread(num_runs, num_params=LARGE, num_devices=2, **options):
        got = layout(num_runs, num_params, num_devices=num_devices, **{"num_examples": EQUAL} | options)
        return got.run_devices, got.client_devices

    assert spread(3) == (1, 2)  # 3 halves instead of 2 turns
    assert spread(4) == (2, 1)
    assert spread(5) == (2, 1)  # 5 halves instead of 3 turns: not worth it
    assert spread(3, client_devices=1) == (2, 1)
    assert spread(3, SMALL) == (2, 1)
    assert spread(3, backend="gpu") == (2, 1)
    assert spread(9, num_devices=8) == (4, 2)  # of cohorts of ten: 3 turns of 5 clients instead of 2 of 10
    assert spread(3, num_examples=UNEQUAL, cohort_size=20) == (2, 1)  # one client has half of all examples


def test_narrower_layouts_halve_runs_then_clients():
    assert [(n.client_width, n.run_width) for n in Layout(4, 5, 8).narrower()] == [(4, 2), (4, 1), (2, 1), (1, 1)]
