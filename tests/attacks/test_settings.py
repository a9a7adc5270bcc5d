"""Settings of attacks, and their documentation."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.aggregators import fedavg
from fedsim.config.fields import settings_of
from fedsim.config.kinds import KINDS
from fedsim.config.registry import find
from tests.attacks.contexts import KEY, first_update, make_context

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text()
TRACED = {
    name: {
        field.name.rpartition(".")[2]: 0.7 if field.default is None else field.default
        for field in settings_of(find("attack.kind", name))
        if field.is_traced
    }
    for name in KINDS["attack.kind"].built_in
}


@pytest.mark.parametrize("name", [name for name, settings in TRACED.items() if settings])
def test_numbers_may_be_traced(name):
    make, context = find("attack.kind", name).make, make_context(rule=fedavg())
    context = context._replace(variables=first_update(context))
    options = {"target": "fixed"} if "client_id" in TRACED[name] else {}

    def result(settings):
        attack = make(**options, **settings)
        if attack.forge_report is not None:
            return attack.forge_report((), context.report._replace(updates=()), context.malicious, KEY)
        return attack.forge_updates(attack.init(first_update(context), context.report.num_examples), context, KEY)[0]

    traced, plain = jax.jit(result)(jax.tree.map(jnp.asarray, TRACED[name])), jax.jit(partial(result, TRACED[name]))()
    for a, b in zip(jax.tree.leaves(traced), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_all_numbers_but_sizes_of_searches_are_traced():
    for name in KINDS["attack.kind"].built_in:
        for field in settings_of(find("attack.kind", name)):
            is_string = isinstance(field.default, str)
            assert field.is_traced != (
                is_string or field.name.endswith(("num_strengths", "num_halvings", "num_steps"))
            ), field.name


def test_the_page_documents_all_attacks_and_corruptions():
    elsewhere = {"none", "noisy", "shift", "exclude"}
    for key in ("attack.kind", "corruption.kind"):
        for name in set(KINDS[key].built_in) - elsewhere:
            assert f"| `{name}` |" in PAGE
            for field in settings_of(find(key, name)):
                assert f"`{field.name.rpartition('.')[2]}`" in PAGE, field.name
