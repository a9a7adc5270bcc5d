"""What each key reaches: ids, groups, families and data sets of runs."""

import msgspec
import pytest

from fedsim.config import roles
from fedsim.config.components import flatten
from fedsim.config.resolve import schema
from fedsim.config.schema import Config
from fedsim.config.toml import parse


def resolve(**values) -> Config:
    return schema().resolve({key.replace("__", "."): value for key, value in values.items()})


def test_an_id_is_one_of_the_numbers_of_a_run():
    """It depends neither on what is written and where it is computed, nor on the order of keys."""
    base = resolve(server__num_byzantine=2, server__aggregator="trimmed_mean", seed=3)
    same = [
        resolve(seed=3, server__aggregator="trimmed_mean", trimmed_mean__num_byzantine=2, server__num_byzantine=2),
        resolve(**{"server__num_byzantine": 2, "server__aggregator": "trimmed_mean", "seed": 3, "name": "other"}),
    ]
    assert {roles.run_id(config) for config in [base, *same]} == {roles.run_id(base)}
    assert len(roles.run_id(base)) == 16
    stored = msgspec.json.decode(msgspec.json.encode(flatten(base)))
    assert roles.run_id(schema().resolve(stored)) == roles.run_id(base)


@pytest.mark.parametrize("schedule", ["constant", "step", "exponential", "cosine"])
@pytest.mark.parametrize("key", ["client__schedule", "server__schedule"])
def test_more_rounds_are_another_run_only_if_rates_depend_on_them(key, schedule):
    ids = {roles.run_id(resolve(server__num_rounds=rounds, **{key: schedule})) for rounds in (10, 20)}
    assert len(ids) == 1 + (schedule == "cosine")


def test_a_plugin_that_takes_the_rounds_depends_on_them(tmp_path):
    path = tmp_path / "rates.py"
    path.write_text("def late(num_rounds): return lambda rate, t: rate\ndef plain(): return lambda rate, t: rate\n")
    ids = lambda name: {
        roles.run_id(parse(f'client.schedule = "{path}:{name}"\nserver.num_rounds = {rounds}').runs()[0])
        for rounds in (10, 20)
    }
    assert (len(ids("late")), len(ids("plain"))) == (2, 1)
