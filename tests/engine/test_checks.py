"""Runs that are refused because they would be meaningless, or end the process."""

import pytest

from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan
from fedsim.errors import ConfigError

PLUGIN = """
import flax.linen as nn
from fedsim import Corruption

def three(spec):
    return nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(3)])

def one_more():
    def apply(data, corrupted, spec, key):
        return data._replace(y=data.y + 1)
    return Corruption(apply, frozenset({"y"}))

def key_first():
    return Corruption(lambda key, data, corrupted, spec: data)
"""
SMALL = """
[data]
num_clients = 4
[mlp]
hidden_sizes = [4]
[server]
cohort_size = 4
num_rounds = 1
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(PLUGIN)


def test_a_model_with_fewer_outputs_than_classes(plugin):
    with pytest.raises(ConfigError, match=r"^model\.name: plugin\.py:three .*at least 10 outputs.*got 3"):
        make_plan(parse(SMALL, {"model.name": "plugin.py:three"}))


def test_a_corruption_with_the_arguments_of_earlier_versions(plugin):
    message = r"^corruption\.kind: plugin\.py:key_first: apply: key must be its last argument, not its first"
    with pytest.raises(ConfigError, match=message):
        make_plan(parse(SMALL, {"corruption.kind": "plugin.py:key_first", "corruption.fraction": 0.5}))


def test_a_corruption_that_makes_labels_which_are_no_classes(plugin, tmp_path):
    plan = make_plan(parse(SMALL, {"corruption.kind": "shuffling+plugin.py:one_more", "corruption.fraction": 0.5}))
    with pytest.raises(ConfigError, match=r"^corruption\.kind: .*0 to 9 .*got 10 from plugin\.py:one_more"):
        run_plan(plan, tmp_path / "run")


def test_a_model_that_no_memory_holds_is_refused_before_anything_is_allocated():
    with pytest.raises(ConfigError, match=r"model\.name: mlp has 40,015,200,010 parameters, .* use a smaller model"):
        make_plan(parse(SMALL, {"mlp.hidden_sizes": [200000, 200000]}))
