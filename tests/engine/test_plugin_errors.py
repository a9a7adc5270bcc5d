"""A user's own rule in a file: its settings, what it shows of itself, and what goes wrong with it."""

import pytest

from fedsim.config.toml import read
from fedsim.engine import compiling, make_plan, run_plan
from fedsim.engine.compiling import clear_programs
from fedsim.errors import ConfigError
from tests.engine.test_store import SMALL

RULE = '''
from typing import Annotated

import jax.numpy as jnp

import fedsim
from fedsim.aggregators import from_weights


def clipped(*, most: Annotated[fedsim.Scalar, fedsim.Traced(gt=0, le=1), "largest weight before scaling"] = 0.5):
    """The weights of FedAvg, none larger than `most` before they are scaled to sum 1."""

    def compute_weights(state, report, key):
        num_examples = jnp.where(report.valid, report.num_examples, 0)
        shares = num_examples / jnp.sum(num_examples)
        weights = jnp.minimum(shares, most)
        weights = weights / jnp.sum(weights)
        return weights, {"largest": jnp.max(weights), "rounds": state["rounds"] + 1, "most": jnp.float32(most)}

    start = {"largest": jnp.float32(0), "rounds": jnp.int32(0), "most": jnp.float32(most)}
    return from_weights(compute_weights, lambda params, num_examples, losses: start, info=lambda state: state)
'''
CONFIG = SMALL.replace('"fedavg"', '"rule.py:clipped"').replace("run_width = 1", "run_width = 3")
SWEEP = "[[sweep]]\nclipped.most = [0.3, 0.5, 1.0]"


def test_info_is_what_the_rule_shows_round_by_round(tmp_path, tmp_path_factory):
    """Beside the weights that the table of clients has. The rule is next to the configuration, in another folder."""
    config = tmp_path_factory.mktemp("own") / "c.toml"
    config.write_text(CONFIG + SWEEP)
    config.with_name("rule.py").write_text(RULE)
    plan = make_plan(read(config))
    assert len(plan.groups) == 1
    assert str(plan.groups[0]) == "clipped, 3 runs"
    folder = run_plan(plan, tmp_path / "own")
    info = folder.read("info").to_dicts()
    assert [(row["run"], row["round"], row["name"]) for row in info] == [
        (run, round_, name) for run in range(3) for round_ in range(1, 7) for name in ("largest", "most", "rounds")
    ]
    shown = {(row["run"], row["round"], row["name"]): row["value"] for row in info}
    clients = folder.read("clients").to_dicts()
    for run, most in enumerate((0.3, 0.5, 1.0)):
        for round_ in range(1, 7):
            cohort = [row for row in clients if (row["run"], row["round"]) == (run, round_)]
            assert shown[run, round_, "largest"] == pytest.approx(max(row["weight"] for row in cohort))
            assert shown[run, round_, "most"] == pytest.approx(most)
            assert shown[run, round_, "rounds"] == round_
            shares = [row["num_examples"] / sum(r["num_examples"] for r in cohort) for row in cohort]
            clipped = [min(share, most) for share in shares]
            expected = [share / sum(clipped) for share in clipped]
            assert [row["weight"] for row in cohort] == pytest.approx(expected, rel=1e-5)


WRONG = """
import jax.numpy as jnp
import numpy as np
from fedsim.aggregators import fedavg, from_weights
from fedsim import Aggregator


def raises_when_made():
    raise RuntimeError("no luck")


def takes_more(number):
    return fedavg()


def raises_inside():
    def compute_weights(state, report, key):
        if report.num_examples[0] > 3:
            return report.valid / report.valid.sum(), state
        return report.weights, state
    return from_weights(compute_weights)


def misspelled():
    return from_weights(lambda report: report.sizes / 3)


def too_many_parameters():
    return from_weights(lambda report, sizes: report.num_examples / 3)


def uses_numpy():
    return from_weights(lambda report: np.asarray(report.losses))


def uses_int():
    return from_weights(lambda report: report.losses * int(report.num_examples[0]))


def wrong_shape():
    return from_weights(lambda report: jnp.ones(2))


def other_state():
    return from_weights(lambda state, report, key: (report.num_examples / report.num_examples.sum(), jnp.zeros(3)))


def no_rule():
    return None
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises_when_made", "wrong.py, line 9: RuntimeError: no luck"),
        ("raises_inside", "wrong.py, line 18: TracerBoolConversionError: `if` or `while` on a number that is traced"),
        ("misspelled", "wrong.py, line 25: AttributeError: 'CohortReport' object has no attribute 'sizes'"),
        ("takes_more", "failed: TypeError: takes_more() missing 1 required positional argument: 'number'"),
        ("too_many_parameters", "or (state, report, key), got (report, sizes)"),
        ("uses_numpy", "line 33: TracerArrayConversionError: NumPy on a number that is traced, as"),
        ("uses_int", "line 37: ConcretizationTypeError: `int`, `float` or a shape from a number that is traced, as"),
        ("wrong_shape", "a rule's weights must have shape [4], got float32[2]"),
        ("other_state", "a rule's state must be a PyTreeDef("),
        ("no_rule", "wrong.py:no_rule must return a fedsim.Aggregator, got NoneType"),
    ],
)
def test_a_rule_that_goes_wrong_is_named(name, message, tmp_path):
    """With its line, where the error is from there: one line for the command line; its cause tells the whole story."""
    (tmp_path / "wrong.py").write_text(WRONG)
    config = tmp_path / "c.toml"
    config.write_text(CONFIG.replace("rule.py:clipped", f"wrong.py:{name}"))
    with pytest.raises(ConfigError) as failure:
        run_plan(make_plan(read(config)), tmp_path / "out")
    message_text = str(failure.value)
    assert message in message_text
    assert ", line " in message_text or f"server.aggregator: wrong.py:{name} " in message_text
    assert len(message_text) < 500
    assert name == "no_rule" or failure.value.__cause__ is not None


def test_what_is_wrong_with_fedsim_is_not_put_on_the_user(tmp_path, monkeypatch):
    """Without anything of the user's own, an error is one of fedsim's: it comes as it is."""

    def broken(self):
        raise TypeError("mine")

    monkeypatch.setattr(compiling, "_trace", broken)
    clear_programs()
    config = tmp_path / "c.toml"
    config.write_text(CONFIG.replace("rule.py:clipped", "fedavg"))
    with pytest.raises(TypeError, match="mine"):
        run_plan(make_plan(read(config)), tmp_path / "out")
