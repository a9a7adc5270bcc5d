"""The widest layout that fits into memory, in few compilations."""

from hypothesis import given
from hypothesis import strategies as st

from fedsim.config.sections import EngineConfig
from fedsim.config.toml import parse
from fedsim.engine import fitting, make_plan
from fedsim.engine.layout import Layout, Machine, widest_fitting


@given(clients=st.integers(1, 64), runs=st.integers(1, 64), each=st.integers(1, 1000), fixed=st.integers(0, 10_000))
def test_widest_fitting_layout(clients, runs, each, fixed):
    layout, compiled, available = Layout(clients, runs), [], 20_000

    def peak_bytes(layout):
        compiled.append(layout)
        return fixed + each * layout.num_models

    candidates = [layout, *layout.narrower()]
    widest, needed = widest_fitting(layout, EngineConfig(), peak_bytes, available)
    fitting = [candidate for candidate in candidates if fixed + each * candidate.num_models <= available]
    assert needed == fixed + each * widest.num_models
    assert widest.num_models == (fitting[0] if fitting else candidates[-1]).num_models
    assert len(compiled) <= 1 + len(candidates) // 2


@given(st.integers(1, 64), st.integers(1, 64))
def test_half_as_many_models_after_a_compiler_runs_out_of_memory(clients, max_models):
    peak_bytes = lambda layout: 1 if layout.num_models <= max_models else None
    widest, needed = widest_fitting(Layout(clients, 4), EngineConfig(), peak_bytes, 10)
    assert widest.num_models <= max_models or (needed is None and widest.num_models == 1)
    assert 4 * widest.num_models > min(max_models, 4 * clients)  # each step at least halves what is left


LOCKSTEP = """
data = {num_clients = 10, num_train = 100, num_test = 20}
mlp.hidden_sizes = [64]
server = {aggregator = "fedavg", cohort_size = 4, num_rounds = 1}
[[sweep]]
seed = [0, 1, 2, 3]
"""


def test_layouts_are_fitted_on_accelerators(monkeypatch):
    """A CPU instead of a GPU: with less memory than the widest layout needs, fewer runs go in lockstep."""
    peaks = {}
    peak_memory = fitting.peak_memory

    def recorded(inputs):
        peak = peak_memory(inputs)
        peaks[inputs.group.layout] = sum(peak)
        return peak

    monkeypatch.setattr(fitting, "peak_memory", recorded)
    monkeypatch.setattr(Machine, "current", lambda: Machine("gpu", 1, 2**40))
    (group,) = fitting.fit_layouts(make_plan(parse(LOCKSTEP))).groups
    assert (group.layout.client_width, group.layout.run_width, group.layout.backend) == (4, 4, "gpu")
    largest = peaks[group.layout]
    monkeypatch.setattr(Machine, "current", lambda: Machine("gpu", 1, largest - 1))
    monkeypatch.setattr("fedsim.engine.plan.run_bytes", lambda configs, dataset, is_on_host: [1])
    (group,) = fitting.fit_layouts(make_plan(parse(LOCKSTEP))).groups
    assert group.layout.num_models < 16
    assert peaks[group.layout] < largest
    fixed = LOCKSTEP.replace("[[sweep]]", "[engine]\nrun_width = 4\n[[sweep]]")
    (group,) = fitting.fit_layouts(make_plan(parse(fixed))).groups
    assert group.layout.run_width == 4  # as in the configuration
    assert group.layout.client_width < 4
