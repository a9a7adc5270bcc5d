"""Swept keys in tables and names."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config.components import flatten
from fedsim.config.toml import parse
from fedsim.runs.sweep import append_swept_columns, run_names, swept_keys

SWEEP = """
[corruption]
fraction = 0.5
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
client.learning_rate = [0.1, 1]
attack.kind = ["ipm", "alie"]
mlp.hidden_sizes = [[8], [8, 4]]
arfl.lam = [0.5, 2.0]
seed = [0, 1]
[[sweep]]
server.aggregator = "krum"
server.pre_aggregators = [["nnm"]]
"""
RUNS = [flatten(config) for config in parse(SWEEP).runs()]


def test_each_swept_key_is_a_column_with_each_runs_own_value():
    rows = pl.DataFrame({"run": [*range(len(RUNS)), 3, 0]})
    table = append_swept_columns(rows.with_columns(aggregator=pl.lit("")), RUNS)
    assert {"client.learning_rate", "attack.kind", "mlp.hidden_sizes", "server.pre_aggregators"} <= {*table.columns}
    assert not {"seed", "server.aggregator", "arfl.lam", "data.num_clients"} & {*table.columns}  # or elsewhere
    for row in table.to_dicts():
        run = RUNS[row["run"]]
        assert row["client.learning_rate"] == run["client.learning_rate"]
        assert row["attack.kind"] == run["attack.kind"]
        assert row["mlp.hidden_sizes"] == " ".join(map(str, run["mlp.hidden_sizes"]))
        assert row["server.pre_aggregators"] == " ".join(run["server.pre_aggregators"])
    others = {"seed", "server.aggregator", "corruption.fraction", "arfl.lam"}  # as columns of other tables
    assert {*append_swept_columns(rows, RUNS).columns} == {*table.columns, *others} - {"aggregator"}


def test_names_distinguish_all_runs():
    names = run_names(RUNS, ["0123456789"] * len(RUNS))
    assert len(set(names)) == len(RUNS)
    assert names[0].startswith("fedavg-none0.5-ipm-seed0-")
    assert names[0].endswith("-01234567")
    expected = ("arfl-none0.5-alie-lam2.0-seed1-", "client.learning_rate=0.1", "mlp.hidden_sizes=8_4")
    assert sum(all(part in name for part in expected) for name in names) == 1


def test_lambda_of_a_weighting_is_a_column_if_the_rule_is_another_one():
    """`lam` is the lambda of the rule, so it does not have those of the runs of a median."""
    text = """
    server.weighting = "arfl"
    [[sweep]]
    server.aggregator = ["arfl", "median"]
    arfl.lam = [1.0, 10.0]
    """
    runs = [flatten(config) for config in parse(text).runs()]
    assert swept_keys(runs) == ["arfl.lam"]
    assert len(set(run_names(runs, [""] * 4))) == 4


@given(values=st.lists(st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3)))
def test_any_values_are_a_column_where_they_differ(values):
    runs = [{} if value is None else {"x.y": value} for value in values]
    table = append_swept_columns(pl.DataFrame({"run": range(len(runs))}, {"run": pl.Int32}), runs)
    different = {repr(value) for value in values if value is not None}
    assert swept_keys(runs) == (["x.y"] if len(different) > 1 else [])
    missing = [value is None for value in values]
    assert [value is None for value in table["x.y"].to_list()] == missing if len(different) > 1 else True
