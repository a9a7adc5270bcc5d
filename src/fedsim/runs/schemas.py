"""The columns of a run folder's tables. NaN is written as null."""

from typing import Any

import pyarrow as pa

ROUNDS = pa.schema(
    [
        ("run", pa.int32()),  # position in the manifest's list of runs
        ("aggregator", pa.string()),
        ("corruption", pa.string()),  # its kind; "none" for clean data
        ("fraction", pa.float64()),  # share of the clients that is corrupted, as configured
        ("lam", pa.float64()),  # null: the rule has no lambda
        ("seed", pa.int64()),
        ("round", pa.int32()),  # completed rounds; 0 is the initial model
        ("test_accuracy", pa.float64()),  # 0 to 1
        ("test_loss", pa.float64()),  # mean loss (cross-entropy: in nats); null: not a number
        ("validation_accuracy", pa.float64()),  # the same on the validation data; null: no validation data
        ("validation_loss", pa.float64()),
        ("corrupted_weight", pa.float64()),  # share of the weight, since the row before, of corrupted clients; or null
        ("malicious_weight", pa.float64()),  # the same of malicious clients; null: there is no attack
        ("byzantine_excess", pa.float64()),  # share of the rounds since the row before in which more of the cohort's
        # valid clients were Byzantine (`fedsim.runs.tables.byzantine`) than the rule's f; null: it has no f
        ("backdoor_success", pa.float64()),  # share of triggered test examples with the target label; null: none
        ("accuracy_p10", pa.float64()),  # percentiles of the test accuracy over clients, each on its own test examples;
        ("accuracy_p50", pa.float64()),  # null: test examples do not belong to clients
        ("accuracy_p90", pa.float64()),
        ("diverged", pa.bool_()),  # the test loss is not finite, or no client had a weight since the row before
    ]
)
CLIENTS = pa.schema(
    [
        ("run", pa.int32()),
        ("round", pa.int32()),  # 1 is the first; 0: the weights alpha before it
        ("client_id", pa.int32()),
        ("num_examples", pa.int32()),  # training examples
        ("loss", pa.float32()),  # as reported, at the parameters before the round; null: no report, or not recorded
        ("alpha", pa.float32()),  # weight among all clients after the round; null: not kept, or round not evaluated
        ("weight", pa.float32()),  # share in the round; null: not in the cohort, or no valid report
        ("corrupted", pa.bool_()),
        ("malicious", pa.bool_()),  # whether it forges reports
        ("test_accuracy", pa.float32()),  # on the client's test examples; null: has none, or round not evaluated
    ]
)
INFO = pa.schema(
    [
        ("run", pa.int32()),
        ("round", pa.int32()),  # 1 is the first
        ("name", pa.string()),
        ("value", pa.float64()),  # a measurement of the rule in that round; null: not a number
    ]
)
SCHEMAS = {"rounds": ROUNDS, "clients": CLIENTS, "info": INFO}
Columns = dict[str, Any]
Tables = dict[str, Columns]  # by the table's name


def as_table(kind: str, columns: Columns) -> pa.Table:
    """The columns of "rounds", "clients" or "info" as a table; NaN becomes null."""
    schema = SCHEMAS[kind]
    return pa.table([pa.array(columns[f.name], f.type, from_pandas=True) for f in schema], schema=schema)
