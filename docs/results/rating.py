"""Writes docs/results/rating-<data>.md, .png and the numbers that come with `fedsim rate`, from rating-<data>.csv.

python docs/results/rating.py                              pages and figures, and src/fedsim/rating/<data>.csv
python docs/results/rating.py --keep runs/rating-digits    first adds the accuracy of each run of complete rules in
                                                           folders of `fedsim rate`
"""

import argparse
import hashlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from polars import col

from fedsim import report
from fedsim.rating.card import PARTITIONS, Cell, attack_name
from fedsim.rating.protocol import DATA_SETS, PARTITION, RULE, SHARE, attack_keys, name_of, read
from fedsim.report import style
from fedsim.report.compare import finals
from fedsim.report.heatmap import draw_heat_maps
from fedsim.report.metric import ACCURACY
from fedsim.report.names import data_name, percent
from fedsim.report.statistics import half_width
from fedsim.report.table import Column, Number, Row, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
CELLS = HERE.parents[1] / "src" / "fedsim" / "rating"
DIGEST = "Cells"  # in a figure's metadata: the digest of the cells that it shows
ADVERSARY, CHOICE, NUM_SHARES = "standard-1", (50, 51), 5
SETTINGS = {"server.pre_aggregators": (), "server.weighting": None, "arfl.source": "clients", "rfa.num_iters": 4}
"""What rules may differ by, with the defaults; all else has the defaults of the protocol."""
PLACE = ["rule", "partition", "share"]
INTRO = """\
# {name}: rules under the adversary standard-1

What `fedsim rate RULE{option}` measured ([how](../how-to/rate.md)): the worst test accuracy in percent of the
adversary's 17 attacks by share of malicious clients, after 50 rounds. Each cell has the attack that was worst on splits
50 and 51, and the mean of splits 60 to {last}, ± half of the 95 % interval. `docs/results/rating-{data}.csv` has the
accuracy of each run, from which `python docs/results/rating.py` computes this page. One class for all has 10 %; models
that confuse classes have less.{training}
"""
TRAINING = {
    "mnist": " Clients take 5 steps a round, on the digits an epoch; the MLP has 32 hidden units.\n"
    "A run that diverged counts with its accuracy."
}
FIGURE = (
    "![Each rule's test accuracy under the worst of 17 attacks, over the share of malicious clients](rating-{data}.png)"
)
SETTINGS_CHANGE = """\
## What a setting changes

Its accuracy minus that of the rule with its defaults, each under its own worst attack, split by split. Each of these
{count} differences has a 95 % interval of its own, so some that exclude 0 do so by chance. Without ± they are equal on
all splits.
"""
DIFFERENCE = """\
## What `ascent` changes

On the two splits of the choice, so exploratory: the worst mean without `ascent`, and with it where that is lower, with
its objective.
"""


def main() -> None:
    """Writes the pages, figures and cells, after keeping the runs of folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="RUN", type=Path, nargs="+", default=[], help="folders of `fedsim rate`")
    for folder in parser.parse_args().keep:
        keep(report.load(folder))
    for data in DATA_SETS:
        if path_of(data).exists():
            table = pl.read_csv(path_of(data))
            every = list(cells(table))
            cells_text = report.as_csv([cell._asdict() for cell in every])
            (CELLS / f"{data}.csv").write_text(cells_text, encoding="utf-8")
            path_of(data).with_suffix(".md").write_text(page(data, table, every), encoding="utf-8")
            with style.context():
                figure(every).savefig(path_of(data).with_suffix(".png"), metadata={DIGEST: digest(cells_text)})


def path_of(data: str) -> Path:
    """The accuracies of a data set."""
    return HERE / f"rating-{data}.csv"


def keep(results: report.Results) -> None:
    """Writes the runs of complete rules in place of earlier ones of these rules."""
    path = path_of(str(results.runs[0]["data.name"]))
    new = runs(results)
    old = [pl.read_csv(path).filter(~col("rule").is_in(new["rule"].implode()))] if path.exists() else []
    names, descending = [*PLACE, "attack", "split"], [False, True, False, False, False]
    pl.concat([*old, new], how="vertical_relaxed").sort(names, descending=descending).write_csv(path, float_precision=4)


def runs(results: report.Results) -> pl.DataFrame:
    """A row a run of complete rules: its accuracy in percent, and whether it diverged."""
    rows = []
    clean = results.table.filter(col("corruption.kind") == "none")
    for row in finals(clean, ACCURACY, results.final).iter_rows(named=True):
        run = results.runs[row["run"]]
        keys = {RULE: run[RULE]} | {key: run[key] for key in SETTINGS if run.get(key) not in (SETTINGS[key], None)}
        attack = "" if run["attack.kind"] == "none" else attack_name(attack_keys(ADVERSARY, run))
        place = name_of(keys), run[PARTITION], run[SHARE]
        rows.append((*place, attack, row["seed"], row["value"], row["has_diverged"]))
    table = pl.DataFrame(rows, [*PLACE, "attack", "split", "accuracy", "diverged"], orient="row")
    num_evaluated = NUM_SHARES * len(read(str(results.runs[0]["data.name"]), "evaluation", {}).runs())
    evaluated = table.filter(~col("split").is_in(CHOICE)).group_by("rule").len()
    complete = evaluated.filter(col("len") == num_evaluated)["rule"]
    return table.filter(col("rule").is_in(complete.implode()))


def cells(table: pl.DataFrame) -> Iterator[Cell]:
    """The cells of `fedsim rate`, from the accuracies of the runs."""
    evaluated = table.filter(~col("split").is_in(CHOICE)).with_columns(col("attack").fill_null(""))
    for (rule, partition, share), of_cell in evaluated.group_by(PLACE, maintain_order=True):
        (attack,), values = of_cell["attack"].unique(), of_cell["accuracy"].to_numpy()
        numbers = values.mean(), half_width(values), len(values), int(of_cell["diverged"].sum())
        yield Cell(rule, partition, share, attack, *numbers)


def page(data: str, table: pl.DataFrame, every: list[Cell]) -> str:
    """The page of a data set."""
    option = "" if data == "digits" else f" --data {data}"
    parts = [
        INTRO.format(
            data=data, name=data_name(data), option=option, last=table["split"].max(), training=TRAINING.get(data, "")
        ).strip()
    ]
    for partition, name in PARTITIONS.items():
        rows = [[rule, *map(cell_text, of_rule)] for rule, of_rule in by_rule(every, partition).items()]
        parts += [f"## {name} data", report.markdown([text_table("", ("rule", *shares(every)), rows)]).strip()]
    parts += [FIGURE.format(data=data)]
    changes = what_settings_change(table)
    count = sum(len(row.entries) for row in changes.rows)
    parts += [SETTINGS_CHANGE.format(count=count).strip(), report.markdown([changes]).strip()]
    parts += [DIFFERENCE.strip(), report.markdown([difference(table)]).strip()]
    return "\n\n".join(parts) + "\n"


def cell_text(cell: Cell) -> str:
    """For example "86.8 ± 0.7 Sign flip"."""
    width = "" if cell.half_width is None else f" ± {cell.half_width:.1f}"
    diverged = f", {cell.num_diverged} of {cell.num_splits} diverged" if cell.num_diverged else ""
    return f"{cell.mean:.1f}{width} {cell.attack}".strip() + diverged


def shares(every: list[Cell]) -> list[str]:
    """The columns of pages and figures."""
    return list(map(percent, sorted({cell.share for cell in every})))


def by_rule(every: list[Cell], partition: str) -> dict[str, list[Cell]]:
    """The cells of each rule on a partition, which are sorted by rule and share; the best rule first."""
    of_partition = [cell for cell in every if cell.partition == partition]
    rules = {rule: list(of_rule) for rule, of_rule in groupby(of_partition, key=lambda cell: cell.rule)}
    return dict(sorted(rules.items(), key=lambda item: -sum(cell.mean for cell in item[1])))


def figure(every: list[Cell]) -> "Figure":
    """A heat map of rules and shares for each partition; the order of the rules is that of the first one."""
    panels = {f"{name} data": by_rule(every, partition) for partition, name in PARTITIONS.items()}
    rules = list(next(iter(panels.values())))
    means = {title: np.asarray([[cell.mean for cell in of[rule]] for rule in rules]) for title, of in panels.items()}
    labels, when = ("Rule", "Malicious clients"), "under the worst of 17 attacks"
    return draw_heat_maps(means, (rules, shares(every)), labels, ACCURACY, when)


def digest(cells_text: str) -> str:
    """Changes with any cell of a figure."""
    return hashlib.blake2b(cells_text.encode(), digest_size=8).hexdigest()


def what_settings_change(table: pl.DataFrame) -> report.Table:
    """Differences of each rule that has settings from the rule itself, by split."""
    evaluated = table.filter(~col("split").is_in(CHOICE))
    rules = set(evaluated["rule"])
    changed = evaluated.with_columns(rule=col("rule").str.split(", ").list.first(), variant="rule")
    changed = changed.filter((col("variant") != col("rule")) & col("rule").is_in(rules))
    both = changed.join(evaluated, on=[*PLACE, "split"], suffix="_of_rule", validate="m:1", maintain_order="left")
    rows: dict[str, list[Number]] = {}
    for (variant, partition, _), of_place in both.group_by("variant", "partition", "share", maintain_order=True):
        changes = (of_place["accuracy"] - of_place["accuracy_of_rule"]).to_numpy()
        number = Number(float(changes.mean()), half_width(changes))
        rows.setdefault(f"{variant}, {PARTITIONS[partition]}", []).append(number)
    columns = tuple(Column(percent(share)) for share in both["share"].unique().sort())
    lines = tuple(Row(name, tuple(numbers)) for name, numbers in rows.items())
    return report.Table("", columns, lines, "rule", signed=True, digits=1)


def difference(table: pl.DataFrame) -> report.Table:
    """The worst attack of each cell without ascent, and with it."""
    means = table.filter(col("split").is_in(CHOICE)).group_by(*PLACE, "attack").agg(col("accuracy").mean())
    lowest = means.sort(*PLACE, "accuracy", "attack", descending=[False, True, False, False, False])
    rows: dict[str, list[str]] = {}
    for (rule, partition, _), of_place in lowest.group_by(PLACE, maintain_order=True):
        attacks = of_place.select("attack", "accuracy").rows()
        before = next(f"{value:.1f}" for attack, value in attacks if not attack.startswith("Ascent"))
        name, after = attacks[0][0], f"{attacks[0][1]:.1f}"
        with_it = f" → {after} ({name.removeprefix('Ascent (')}" if after != before else ""
        rows.setdefault(f"{rule}, {PARTITIONS[partition]}", []).append(f"{before}{with_it}")
    header = "rule", *map(percent, lowest["share"].unique().sort())
    return text_table("", header, [(row, *texts) for row, texts in rows.items()])


if __name__ == "__main__":
    main()
