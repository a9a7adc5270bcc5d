"""The widest layout that fits, in few compilations."""

from hypothesis import given
from hypothesis import strategies as st

from fedsim.config.toml import parse
from fedsim.engine import make_plan
from fedsim.engine.compiling import GroupPrograms
from fedsim.engine.fitting import models, widest
from fedsim.engine.layout import Layout, Machine
from fedsim.engine.plan import fitted


@given(clients=st.integers(1, 64), runs=st.integers(1, 64), each=st.integers(1, 1000), fixed=st.integers(0, 10_000))
def test_it_fits_and_what_is_wider_does_not(clients, runs, each, fixed):
    layout, asked, available = Layout(clients, runs), [], 20_000

    def needs(one):
        asked.append(one)
        return fixed + each * models(one)

    candidates = [layout, *layout.narrower()]
    found, needed = widest(candidates, needs, available)
    fitting = [one for one in candidates if fixed + each * models(one) <= available]
    assert needed == fixed + each * models(found)
    assert models(found) == models(fitting[0] if fitting else candidates[-1])
    assert len(asked) <= 1 + len(candidates) // 2


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_compiler_may_refuse(clients, most):
    """It says no number then; half as many models are next."""
    layout = Layout(clients, 4)
    found, needed = widest([layout, *layout.narrower()], lambda one: 1 if models(one) <= most else None, 10)
    assert models(found) <= most or (needed is None and models(found) == 1)


LOCKSTEP = """
[data]
num_clients = 10
num_train = 100
num_test = 20
[mlp]
hidden_sizes = [64]
[server]
aggregator = "fedavg"
cohort_size = 4
num_rounds = 1
[[sweep]]
seed = [0, 1, 2, 3]
"""


def test_an_accelerators_plan_asks_the_compiler(monkeypatch):
    """A CPU in the place of a GPU: with less memory than the widest layout needs, fewer runs go in lockstep."""
    needs = {}
    ask = GroupPrograms.needs

    def asked(self):
        needs[self.layout] = ask(self)
        return needs[self.layout]

    monkeypatch.setattr(GroupPrograms, "needs", asked)
    monkeypatch.setattr(Machine, "here", lambda: Machine("gpu", 1, 2**40))
    (group,) = fitted(make_plan(parse(LOCKSTEP))).groups
    assert (group.layout.client_width, group.layout.run_width, group.layout.backend) == (4, 4, "gpu")
    most = needs[group.layout]
    monkeypatch.setattr(Machine, "here", lambda: Machine("gpu", 1, most - 1))
    monkeypatch.setattr("fedsim.engine.plan.run_bytes", lambda configs, dataset: [1])
    (group,) = fitted(make_plan(parse(LOCKSTEP))).groups
    assert models(group.layout) < 16
    assert needs[group.layout] < most
    given = LOCKSTEP.replace("[[sweep]]", "[engine]\nrun_width = 4\n[[sweep]]")
    (group,) = fitted(make_plan(parse(given))).groups
    assert group.layout.run_width == 4  # what the configuration gives stays
    assert group.layout.client_width < 4
