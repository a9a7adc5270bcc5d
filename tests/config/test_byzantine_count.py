"""server.num_byzantine, one f for all rules and pre-aggregators."""

import math

import pytest

from fedsim.config.components import flatten
from fedsim.config.resolve import schema
from fedsim.config.toml import parse
from fedsim.errors import ConfigError

GRID = """
[data]
num_clients = 40
[server]
cohort_size = 20
pre_aggregators = ["nnm"]
num_byzantine = {}
[attack]
kind = "ipm"
[[sweep]]
server.aggregator = ["fedavg", "trimmed_mean", "bulyan"]
corruption.fraction = [0.0, 0.1, 0.26, 0.4]
"""


def f_of(config):
    return {name: value for name, value in config.settings if name.endswith("num_byzantine")}


def test_corrupted_is_the_share_of_a_cohort_rounded_up_within_limits():
    for config in parse(GRID.format('"corrupted"')).runs():
        f = math.ceil(config.corruption.fraction * 20)
        expected = {"trimmed_mean": f, "bulyan": min(f, 4)}  # 4 f + 3 <= 20
        of_rule = {name: n for name, n in expected.items() if name == config.server.aggregator}
        assert f_of(config) == {"nnm.num_byzantine": f} | {f"{name}.num_byzantine": n for name, n in of_rule.items()}


def test_corrupted_with_client_ids():
    text = GRID.format('"corrupted"').replace(
        "corruption.fraction = [0.0, 0.1, 0.26, 0.4]", "corruption.clients = [[3, 5, 9]]"
    )
    assert [f_of(config)["nnm.num_byzantine"] for config in parse(text).runs()] == [2, 2, 2]  # 3 of 40, of 20


def test_a_number_applies_to_all():
    assert {f_of(config)["nnm.num_byzantine"] for config in parse(GRID.format(3)).runs()} == {3}


def test_no_effect_without_a_rule_that_takes_it():
    plain = parse("[server]\naggregator = 'fedavg'\n").runs()
    assert parse("[server]\naggregator = 'fedavg'\nnum_byzantine = 3\n").runs() == plain


def test_a_resolved_run_resolves_to_itself_and_contradictions_are_errors():
    (config,) = parse("server.num_byzantine = 2\nserver.aggregator = 'krum'\n").runs()
    assert schema().resolve(flatten(config)) == config
    with pytest.raises(ConfigError, match=r"krum.num_byzantine: must equal server.num_byzantine \(2\), got 3"):
        parse("server.num_byzantine = 2\nserver.aggregator = 'krum'\nkrum.num_byzantine = 3\n").runs()


def test_malicious_clients_of_their_own():
    text = GRID.replace('kind = "ipm"', 'kind = "ipm"\nfraction = 0.16').replace(
        "[attack]", "[corruption]\nkind = 'shuffling'\n[attack]"
    )
    for config in parse(text.format('"malicious"')).runs():
        assert f_of(config)["nnm.num_byzantine"] == 4  # 16 % of 20, rounded up
    for config in parse(text.format('"corrupted"')).runs():
        f = math.ceil(round(20 * (config.corruption.fraction + 0.16), 6))
        assert f_of(config)["nnm.num_byzantine"] == min(f, 9)  # 2 f < 20
    for config in parse(text.format('"malicious"').replace('"ipm"', '"none"')).runs():
        assert f_of(config)["nnm.num_byzantine"] == 0
    same = GRID.format('"malicious"'), GRID.format('"corrupted"')
    assert [f_of(config) for config in parse(same[0]).runs()] == [f_of(config) for config in parse(same[1]).runs()]
