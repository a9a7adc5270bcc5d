"""All statistics of reports, as queries on `Results.table`: means, deviations, the worst, and paired differences.

The unit of chance is the split: a test split with its partition (`data.seed`). Runs of several splits are first
averaged over the seeds of each split; deviations and intervals are over these means. With one split the seeds are the
units. Numbers that are not finite have no part in means.

Differences are run by run. Runs with the same split and seed share the data, the initial model, the corrupted clients,
the cohorts and the batches, whatever the rule. So the difference of two rules varies far less than either of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from polars import col

from fedsim.report.final import Final
from fedsim.report.metric import Metric
from fedsim.report.settings import Setting
from fedsim.report.statistics import half_width, no_test, p_value

SPLIT = "data.seed"
AUC_DIGITS = 1e5  # of weights relative to FedAvg's: closer ones count as equal
_VALUE = col("value").filter(col("value").is_finite())
IS_BYZANTINE = (col("corrupted") | col("malicious")).fill_null(value=False)
_IS_INFINITE = col("diverged") & ~col("test_loss").is_finite().fill_null(value=False)


def finals(table: pl.DataFrame, metric: Metric, final: Final) -> pl.DataFrame:
    """A row a run: setting, split, seed, its `value` in the unit that is shown, whether it diverged or was skipped.

    The value is the mean over the evaluations that are shown, null if one has none. A run has diverged if its test loss
    is not finite at the end or where its number is taken. It was skipped if no client had a weight since the evaluation
    before the last.
    """
    is_last, best = col("evaluation") > col("evaluation").last() - final.number, col("validation").arg_max()
    is_shown = col("evaluation") == col("evaluation").get(best) if final.kind == "best" else is_last
    has_accuracy = col("test_accuracy").is_finite().any().over("setting")
    validation = pl.when(has_accuracy).then("validation_accuracy").otherwise(-col("validation_loss"))
    values = metric.scale * col(metric.column).filter(is_shown)
    has_diverged = _IS_INFINITE.last() | _IS_INFINITE.filter(is_shown).any()
    return (
        table.with_columns(validation.fill_null(float("-inf")).alias("validation"))
        .group_by("run", maintain_order=True)
        .agg(
            col("setting", SPLIT, "seed").first(),
            pl.when(values.null_count() == 0).then(values.mean()).alias("value"),
            has_diverged.alias("has_diverged"),
            (col("diverged").last() & ~has_diverged).alias("was_skipped"),
        )
    )


def units(values: pl.DataFrame, *by: str, of: str = "setting") -> pl.DataFrame:
    """The means by split, or the runs of one split, of the `value`s of each setting, for each of `by`."""
    has_several = col(SPLIT).n_unique().over(of) > 1
    unit = pl.when(has_several).then(SPLIT).otherwise("run").alias("unit")
    return values.group_by(of, *by, unit, maintain_order=True).agg(_VALUE.mean())


def compare(values: pl.DataFrame, *by: str) -> pl.DataFrame:
    """A row a setting, for each of `by`: mean, deviation (ddof 1), lowest and highest unit; null without numbers."""
    statistics = {"mean": _VALUE.mean(), "std": _VALUE.std(), "low": _VALUE.min(), "high": _VALUE.max()}
    return units(values, *by).group_by("setting", *by, maintain_order=True).agg(**statistics)


def count_runs(values: pl.DataFrame) -> pl.DataFrame:
    """A row a setting of `finals`: its splits and runs, those that diverged, were skipped, or have no number."""
    return values.group_by("setting", maintain_order=True).agg(
        col(SPLIT).n_unique().alias("num_splits"),
        pl.len().alias("num_runs"),
        col("has_diverged").sum().alias("num_diverged"),
        col("was_skipped").sum().alias("num_skipped"),
        (col("has_diverged") | ~col("value").is_finite().fill_null(value=False)).sum().alias("num_failed"),
    )


def over_rounds(table: pl.DataFrame, metric: Metric) -> pl.DataFrame:
    """A row a setting and evaluated round: mean, lowest and highest unit of the metric as it is shown."""
    values = table.select("setting", "run", SPLIT, "round", (metric.scale * col(metric.column)).alias("value"))
    return compare(values, "round")


def byzantine_excess(table: pl.DataFrame) -> pl.DataFrame:
    """A row a run: the share of all rounds in which more of the cohort were corrupted than f; null without an f."""
    excess, rounds = col("byzantine_excess"), col("round").diff()
    share = (excess * rounds).sum() / rounds.filter(excess.is_not_null()).sum()
    return table.group_by("run").agg(share.fill_nan(None))


def detection(clients: pl.DataFrame) -> pl.DataFrame:
    """A row a run: how well its weights tell Byzantine from other clients, in the second half of its rounds (0 to 1).

    Byzantine clients are corrupted or malicious. `weight_auc` is the probability that another client's weight, relative
    to what FedAvg would give it in that round, is larger than a Byzantine one's (area under the ROC curve, by Mann and
    Whitney's U; 1/2: not at all). `exclusion_precision`, `exclusion_recall` and `exclusion_false_positive_rate` are of
    valid clients with a weight of 0, over all rounds together. Null: a share of nothing, as the precision without any;
    so is the precision without Byzantine clients.
    """
    weighted = clients.filter(col("weight").is_not_null(), col("num_examples") > 0)
    in_round = lambda name: col(name).cast(pl.Float64).sum().over("run", "round")
    fedavg = col("num_examples") / in_round("num_examples")
    is_late = (col("round") > col("round").max().over("run") / 2) & (in_round("weight") > 0)
    late = weighted.with_columns((col("weight") / fedavg * AUC_DIGITS).round().alias("score")).filter(is_late)
    ranked = late.with_columns(col("score").rank().over("run"), IS_BYZANTINE.alias("byzantine"))
    byzantine, excluded = col("byzantine"), col("weight") == 0
    count = lambda condition: condition.sum().cast(pl.Float64)
    num_benign, num_byzantine = count(~byzantine), count(byzantine)
    u = col("score").filter(~byzantine).sum() - num_benign * (num_benign + 1) / 2
    measures = {
        "weight_auc": u / (num_benign * num_byzantine),
        "exclusion_precision": pl.when(num_byzantine > 0).then(count(excluded & byzantine) / count(excluded)),
        "exclusion_recall": count(excluded & byzantine) / num_byzantine,
        "exclusion_false_positive_rate": count(excluded & ~byzantine) / num_benign,
    }
    return ranked.group_by("run").agg(**measures).fill_nan(None)


@dataclass(frozen=True)
class Difference:
    """A setting minus another, over the splits and seeds that both have, in the unit that is shown."""

    setting: Setting
    baseline: Setting
    draws: tuple[tuple[int, int], ...]  # split and seed of each pair of runs with both numbers
    values: np.ndarray  # [P] by split, or by seed with one split
    num_runs: int  # all pairs of runs
    num_diverged: int  # pairs with a run that has diverged, or without a number
    num_skipped: int  # pairs with a run in which no client had a weight at the end
    corrected_p: float = math.nan  # `p_value` after Holm's correction for all differences of the data set

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def half_width(self) -> float | None:
        return half_width(self.values)

    @property
    def p_value(self) -> float | None:
        return p_value(self.values)

    @property
    def no_test(self) -> str:
        return no_test(self.values, "seeds" if len({split for split, _ in self.draws}) == 1 else "splits")


def differences(values: pl.DataFrame, pairs: Sequence[tuple[Setting, Setting]]) -> list[Difference]:
    """Settings minus their baselines, by `finals`, of those `pairs` that have a common draw with both numbers."""
    positions = [(setting.position, baseline.position) for setting, baseline in pairs]
    schema = {"setting": pl.Int32, "baseline": pl.Int32}
    wanted = pl.DataFrame(positions, schema, orient="row").with_row_index("pair")
    baselines = values.rename({"setting": "baseline"}).drop("run")
    both = wanted.join(values, on="setting").join(baselines, on=["baseline", SPLIT, "seed"], suffix="_of_baseline")
    value = col("value") - col("value_of_baseline")
    either = lambda name: col(name) | col(f"{name}_of_baseline")
    both = both.sort("pair", "run").with_columns(value, either("has_diverged"), either("was_skipped"))
    is_known = col("value").is_finite().fill_null(value=False)
    counts = both.group_by("pair", maintain_order=True).agg(
        pl.struct(SPLIT, "seed").filter(is_known).alias("draws"),
        pl.len(),
        (col("has_diverged") | ~is_known).sum(),
        col("was_skipped").sum(),
    )
    of_pairs = units(both.filter(is_known), of="pair").group_by("pair", maintain_order=True).agg("value")
    return [
        Difference(setting, baseline, tuple(tuple(draw.values()) for draw in draws), np.asarray(of_units), *numbers)
        for pair, draws, *numbers, of_units in counts.join(of_pairs, on="pair").sort("pair").rows()
        for setting, baseline in [pairs[pair]]
    ]
