"""The widest layout that fits, in few compilations."""

from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.fitting import models, widest
from fedsim.engine.layout import Layout


@given(clients=st.integers(1, 64), runs=st.integers(1, 64), each=st.integers(1, 1000), fixed=st.integers(0, 10_000))
def test_it_fits_and_what_is_wider_does_not(clients, runs, each, fixed):
    layout, asked, available = Layout(clients, runs), [], 20_000

    def needs(one):
        asked.append(one)
        return fixed + each * models(one)

    found, needed = widest(layout, needs, available)
    candidates = [layout, *layout.narrower()]
    fitting = [one for one in candidates if fixed + each * models(one) <= available]
    assert needed == fixed + each * models(found)
    assert models(found) == models(fitting[0] if fitting else candidates[-1])
    assert len(asked) <= 1 + len(candidates) // 2


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_compiler_may_refuse(clients, most):
    """It says no number then; half as many models are next."""
    found, needed = widest(Layout(clients, 4), lambda one: 1 if models(one) <= most else None, 10)
    assert models(found) <= most or (needed is None and models(found) == 1)
