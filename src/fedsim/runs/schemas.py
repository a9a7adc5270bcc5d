"""The columns of a run folder's tables. NaN is written as null, and a run as its id."""

from typing import Any

import numpy as np
import polars as pl

ROUNDS = pl.Schema(
    [
        ("run", pl.Int32),  # position; in files: its id
        ("aggregator", pl.String),
        ("corruption", pl.String),  # its kind; "none" for clean data
        ("fraction", pl.Float64),  # share of the clients that is corrupted, as configured
        ("lam", pl.Float64),  # null: the rule has no lambda
        ("seed", pl.Int64),
        ("round", pl.Int32),  # completed rounds; 0 is the initial model
        ("test_accuracy", pl.Float64),  # 0 to 1
        ("test_loss", pl.Float64),  # mean loss (cross-entropy: in nats); null: not a number
        ("validation_accuracy", pl.Float64),  # the same on the validation data; null: no validation data
        ("validation_loss", pl.Float64),
        ("corrupted_weight", pl.Float64),  # share of the weight, since the row before, of corrupted clients; or null
        ("malicious_weight", pl.Float64),  # the same of malicious clients; null: there is no attack
        ("byzantine_excess", pl.Float64),  # share of the rounds since the row before in which more of the cohort's
        # valid clients were Byzantine (`fedsim.runs.tables.counted_by_f`) than the rule's f; null: it has no f
        ("backdoor_success", pl.Float64),  # share of attacked test examples that get the target label; null: none
        ("accuracy_p10", pl.Float64),  # percentiles of the test accuracy over clients, each on its own test examples;
        ("accuracy_p50", pl.Float64),  # null: test examples do not belong to clients
        ("accuracy_p90", pl.Float64),
        ("diverged", pl.Boolean),  # the test loss is not finite, or no client had a weight since the row before
    ]
)
CLIENTS = pl.Schema(
    [
        ("run", pl.Int32),
        ("round", pl.Int32),  # 1 is the first; 0: the weights alpha before it
        ("client_id", pl.Int32),
        ("num_examples", pl.Int32),  # training examples
        ("loss", pl.Float32),  # as reported, at the model of `client.loss_at`; null: no report, or not recorded
        ("alpha", pl.Float32),  # weight among all clients after the round; null: not kept, or round not evaluated
        ("weight", pl.Float32),  # share in the round; null: not in the cohort, or no valid report
        ("corrupted", pl.Boolean),
        ("malicious", pl.Boolean),  # whether it forges reports
        ("test_accuracy", pl.Float32),  # on the client's test examples; null: has none, or round not evaluated
    ]
)
INFO = pl.Schema(
    [
        ("run", pl.Int32),
        ("round", pl.Int32),  # 1 is the first; 0: quantities of the initial model
        ("name", pl.String),
        ("value", pl.Float64),  # what the rule, or in evaluated rounds the test, measured; null: not a number
    ]
)
SCHEMAS = {"rounds": ROUNDS, "clients": CLIENTS, "info": INFO}
Columns = dict[str, Any]
Tables = dict[str, Columns]  # by the table's name


def as_table(kind: str, columns: Columns) -> pl.DataFrame:
    """The columns of "rounds", "clients" or "info" as a table; NaN becomes null."""
    schema = SCHEMAS[kind]
    arrays = {name: columns[name] if isinstance(columns[name], list) else np.asarray(columns[name]) for name in schema}
    return pl.DataFrame(arrays, strict=False).cast(schema).fill_nan(None)
