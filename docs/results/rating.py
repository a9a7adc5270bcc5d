"""Writes docs/results/rating-digits.md and the numbers that come with `fedsim rate`, from rating-digits.csv.

python docs/results/rating.py                              the page, and src/fedsim/rating/digits.csv
python docs/results/rating.py --keep runs/rating-digits    first the accuracy of each run in a folder of `fedsim rate`
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from polars import col

from fedsim import report
from fedsim.rating.card import PARTITIONS, Cell, attack_name
from fedsim.rating.protocol import attack_keys
from fedsim.report.names import aggregator_name, percent
from fedsim.report.statistics import half_width
from fedsim.report.table import text_table

HERE = Path(__file__).parent
RUNS, PAGE = HERE / "rating-digits.csv", HERE / "rating-digits.md"
CELLS = HERE.parents[1] / "src" / "fedsim" / "rating" / "digits.csv"
ADVERSARY, CHOICE = "standard-1", (50, 51)
NUM_EVALUATED = 2 * 5 * 5  # partitions, shares, splits: the runs of a rule that are no part of the choice
DEFAULTS = {"server.pre_aggregators": [()], "server.weighting": [None], "server.num_byzantine": [None, "corrupted"]}
PLACE = ["rule", "partition", "share"]
INTRO = """\
# Rules under the adversary standard-1

What `fedsim rate` measured on the digits ([how](../how-to/rate.md)): the worst test accuracy in percent of the
adversary's 17 attacks by share of malicious clients, after 50 rounds. Each cell has the attack that was worst on splits
50 and 51, and the mean of splits 60 to 64, ± half of the 95 % interval. `docs/results/rating-digits.csv` has the
accuracy of each run, from which `python docs/results/rating.py` computes this page.
"""
DIFFERENCE = """\
## What `ascent` changes

On the two splits of the choice, so exploratory: the worst mean without `ascent`, and with it where that is lower, with
its objective.
"""


def main() -> None:
    """Writes the page and the cells, after keeping the runs of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="RUN", type=Path, help="a folder of `fedsim rate`")
    if (folder := parser.parse_args().keep) is not None:
        runs(folder).write_csv(RUNS, float_precision=4)
    table = pl.read_csv(RUNS)
    every = list(cells(table))
    CELLS.write_text(report.as_csv([cell._asdict() for cell in every]), encoding="utf-8")
    PAGE.write_text(page(table, every), encoding="utf-8")


def runs(folder: Path) -> pl.DataFrame:
    """A row a run of complete rules with their defaults: its accuracy in percent, and whether it diverged."""
    results = report.load(folder)
    rows = []
    finals = results.table.filter(col("evaluation") == col("evaluation").max().over("run"))
    for row in finals.filter(col("corruption.kind") == "none").iter_rows(named=True):
        run = results.runs[row["run"]]
        if any(run[key] not in values for key, values in DEFAULTS.items()):
            continue
        attack = "" if run["attack.kind"] == "none" else attack_name(attack_keys(ADVERSARY, run))
        place = row["server.aggregator"], row["data.partition"], row["corruption.fraction"]
        has_diverged = row["test_loss"] is None or not np.isfinite(row["test_loss"])
        rows.append((*place, attack, row["seed"], 100 * row["test_accuracy"], has_diverged))
    names = [*PLACE, "attack", "split", "accuracy", "diverged"]
    table = pl.DataFrame(rows, names, orient="row").sort(names[:5], descending=[False, True, False, False, False])
    evaluated = table.filter(~col("split").is_in(CHOICE)).group_by("rule").len()
    complete = evaluated.filter(col("len") == NUM_EVALUATED)["rule"]
    return table.filter(col("rule").is_in(complete.implode()))


def cells(table: pl.DataFrame) -> Iterator[Cell]:
    """The cells of `fedsim rate`, from the accuracies of the runs."""
    evaluated = table.filter(~col("split").is_in(CHOICE)).with_columns(col("attack").fill_null(""))
    for (rule, partition, share), of_cell in evaluated.group_by(PLACE, maintain_order=True):
        (attack,), values = of_cell["attack"].unique(), of_cell["accuracy"].to_numpy()
        numbers = values.mean(), half_width(values), len(values), int(of_cell["diverged"].sum())
        yield Cell(aggregator_name(rule), partition, share, attack, *numbers)


def page(table: pl.DataFrame, every: list[Cell]) -> str:
    """The page."""
    shares = sorted({cell.share for cell in every})
    parts = [INTRO.strip()]
    for partition, name in PARTITIONS.items():
        of = {(cell.rule, cell.share): cell for cell in every if cell.partition == partition}
        mean = lambda rule, of=of: sum(of[rule, share].mean for share in shares)
        width = lambda cell: "" if cell.half_width is None else f" ± {cell.half_width:.1f}"
        text = lambda cell, width=width: f"{cell.mean:.1f}{width(cell)} {cell.attack}".strip()
        rules = sorted({rule for rule, _ in of}, key=mean, reverse=True)
        rows = [[rule, *(text(of[rule, share]) for share in shares)] for rule in rules]
        parts += [
            f"## {name} data",
            report.markdown([text_table("", ("rule", *map(percent, shares)), rows, 9)]).strip(),
        ]
    parts += [DIFFERENCE.strip(), report.markdown([difference(table)]).strip()]
    return "\n\n".join(parts) + "\n"


def difference(table: pl.DataFrame) -> report.Table:
    """The worst attack of each cell without ascent, and with it."""
    means = table.filter(col("split").is_in(CHOICE)).group_by(*PLACE, "attack").agg(col("accuracy").mean())
    lowest = means.sort(*PLACE, "accuracy", "attack", descending=[False, True, False, False, False])
    rows, shares = [], sorted(set(lowest["share"]))
    for (rule, partition), of in lowest.group_by("rule", "partition", maintain_order=True):
        entries = []
        for share in shares:
            attacks = of.filter(col("share") == share).select("attack", "accuracy").rows()
            before = next(value for attack, value in attacks if not attack.startswith("Ascent"))
            name, after = attacks[0]
            with_it = f" → {after:.1f} ({name.removeprefix('Ascent (')}" if name.startswith("Ascent") else ""
            entries.append(f"{before:.1f}{with_it}")
        rows.append((f"{aggregator_name(rule)}, {PARTITIONS[partition]}", *entries))
    return text_table("", ("rule", *map(percent, shares)), rows, num_text=9)


if __name__ == "__main__":
    main()
