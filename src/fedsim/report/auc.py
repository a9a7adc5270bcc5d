"""How well rules' weights tell corrupted from benign clients."""

import polars as pl
from polars import col

DIGITS = 1e5  # of weights relative to FedAvg's: closer ones count as equal


def weight_auc(clients: pl.DataFrame) -> dict[int, float]:
    """By run, how well its weights tell corrupted from benign clients, over the second half of its rounds.

    The probability that a benign client's weight, relative to what FedAvg would give it in that round, is larger than a
    corrupted one's (area under the ROC curve, by Mann and Whitney's U; 1/2: not at all). None where either is missing.
    """
    weighted = clients.filter(col("weight").is_not_null(), col("num_examples") > 0)
    in_round = lambda name: col(name).cast(pl.Float64).sum().over("run", "round")
    fedavg = col("num_examples") / in_round("num_examples")
    is_late = (col("round") > col("round").max().over("run") / 2) & (in_round("weight") > 0)
    late = weighted.with_columns((col("weight") / fedavg * DIGITS).round().alias("score")).filter(is_late)
    ranked = late.with_columns(col("score").rank().over("run"), (~col("corrupted")).alias("benign"))
    num_benign, num_corrupted = col("benign").sum().cast(pl.Int64), col("corrupted").sum().cast(pl.Int64)
    u = col("score").filter("benign").sum() - num_benign * (num_benign + 1) / 2
    auc = ranked.group_by("run").agg((u / (num_benign * num_corrupted)).alias("auc"), num_benign, num_corrupted)
    return dict(auc.filter(col("benign") > 0, col("corrupted") > 0).select("run", "auc").iter_rows())
