"""The card of a rule, as tables, in Markdown and as a page."""

import base64
import csv
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedsim.config.experiment import Block, Experiment
from fedsim.rating.costs import SIZES
from fedsim.rating.protocol import DATA_SETS, PARTITION, SHARE, attack_keys
from fedsim.report import markdown, style
from fedsim.report.metric import DETECTION
from fedsim.report.names import aggregator_name, data_name, format_values, join, percent, threat_name
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.report.statistics import half_width
from fedsim.report.table import Column, Number, Row, Table, text_table
from fedsim.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTITIONS = {"iid": "IID", "dirichlet": "Dirichlet(0.1)"}
DRAWN = "fedavg", "median", "multi_krum"  # beside the rule
LIMITS = (
    "These are small networks on one data set, of 20 clients that all take part in each round. Other data, models, "
    "cohorts, learning rates and numbers of rounds may rank rules differently.",
    "The worst of the adversary's attacks bounds robustness from above only: another attack may do more. An attack is "
    "chosen by its mean on other splits, so on a split another one may be worse.",
    "The server knows the number of malicious clients. It seldom does outside of experiments.",
)


class Cell(NamedTuple):
    """The worst accuracy of a rule at a share of malicious clients."""

    rule: str
    """Its name as it is shown."""
    partition: str
    share: float
    attack: str
    """As it is shown; empty without malicious clients."""
    mean: float
    half_width: float | None
    """Of the 95 % interval over splits."""
    num_splits: int

    @property
    def number(self) -> Number:
        return Number(self.mean, self.half_width, num_runs=self.num_splits)


@dataclass(frozen=True)
class Card:
    """All that is known of a rule."""

    rule: str
    """Its name as it is shown."""
    data: str
    keys: Mapping[str, Any]
    """The keys that define it: `server.aggregator`, and what else is not as in the protocol."""
    evaluation: Experiment
    """The experiment of its cells, with the chosen attacks."""
    adversary: str
    cells: Sequence[Cell]
    others: Sequence[Cell]
    """Of built-in rules, by the same protocol."""
    labels: Results
    costs: Mapping[str, Sequence[float | None]]
    checks: Sequence[tuple[str, str]]

    @property
    def title(self) -> str:
        return f"{self.rule}: how robust? Rated by {self.adversary} on {data_name(self.data)}"

    def tables(self) -> list[Table]:
        checks = text_table("Checks", ("check", "result"), self.checks, num_text=2)
        partitions = dict.fromkeys(cell.partition for cell in self.cells)
        return [*map(self._accuracy, partitions), self._attacks(), self._labels(), self._costs(), checks]

    def _accuracy(self, partition: str) -> Table:
        every = [cell for cell in self._all_cells if cell.partition == partition]
        shares = list(dict.fromkeys(cell.share for cell in every))
        by_rule = {rule: {c.share: c.number for c in of} for rule, of in groupby(every, lambda cell: cell.rule)}
        mean = lambda rule: sum(number.mean for number in by_rule[rule].values()) / len(by_rule[rule])
        rows = [Row(rule, tuple(map(by_rule[rule].get, shares))) for rule in sorted(by_rule, key=mean, reverse=True)]
        rows = [replace(row, entries=tuple(map(_bold, row.entries))) if row.name == self.rule else row for row in rows]
        return Table(
            f"Worst test accuracy (%) on {PARTITIONS[partition]} data, by share of malicious clients",
            tuple(map(Column, map(percent, shares))),
            tuple(rows),
            subtitle=f"± half of the 95 % interval over {every[0].num_splits} splits; by the mean of the columns",
            digits=1,
        )

    @property
    def _all_cells(self) -> list[Cell]:
        """Those of other rules, too."""
        return [*self.cells, *(cell for cell in self.others if cell.rule != self.rule)]

    def _attacks(self) -> Table:
        attacked = [cell for cell in self.cells if cell.attack]
        shares = list(dict.fromkeys(cell.share for cell in attacked))
        by_place = {(cell.partition, cell.share): cell.attack for cell in attacked}
        rows = [
            (PARTITIONS[partition], *(by_place[partition, share] for share in shares))
            for partition in dict.fromkeys(cell.partition for cell in attacked)
        ]
        return text_table("The worst attack", ("data", *map(percent, shares)), rows, num_text=1 + len(shares))

    def _labels(self) -> Table:
        rows = []
        for setting in self.labels.settings:
            run, numbers = self.labels.runs[setting.runs[0]], [_number(self.labels, setting)]
            for metric in DETECTION[1:]:
                number = self.labels.number(setting, metric)
                numbers.append(None if number["mean"] is None else Number(number["mean"], num_runs=number["num_runs"]))
            name = f"{PARTITIONS[run[PARTITION]]}, {setting.corruption} {percent(setting.fraction)}"
            rows.append(Row(name, tuple(numbers)))
        columns = tuple(map(Column, ("accuracy (%)", "precision (%)", "recall (%)", "false positives (%)")))
        title = "Wrong labels: accuracy, and how well clients without weight are the corrupted ones"
        return Table(title, columns, tuple(rows), header="data", digits=1)

    def _costs(self) -> Table:
        columns = tuple(Column(f"K = {clients}, d = {size:,}") for clients, size in SIZES)
        entry = lambda value: None if value is None else Number(value)
        rows = tuple(Row(rule, tuple(map(entry, values))) for rule, values in self.costs.items())
        return Table("Milliseconds of aggregation on this machine, by clients K and parameters d", columns, rows)

    def commands(self) -> list[str]:
        """A command for each cell, which computes its runs again."""
        commands = []
        shared = DATA_SETS[self.data] | dict(self.keys)
        for block in self.evaluation.sweep:
            values = {key: value for key, (value, *more) in block.items() if not more} | shared
            words = lambda value: " ".join(map(str, value)) if isinstance(value, list) else value
            options = (f"--{key.replace('_', '-')} {words(value)}" for key, value in values.items())
            commands.append(f"fedsim run rating --preset evaluation {' '.join(options)}")
        return commands

    def markdown(self) -> str:
        """The card in Markdown."""
        tables = [f"## {table.title}\n\n{markdown([replace(table, title='')])}" for table in self.tables()]
        commands = "\n".join(self.commands())
        limits = "\n".join(f"- {line}" for line in LIMITS)
        made = f"fedsim {__version__}, adversary {self.adversary}"
        parts = [f"# {self.title}", made, *tables, f"## What this does not show\n\n{limits}"]
        return "\n\n".join([*parts, f"## Every cell again\n\n```sh\n{commands}\n```"]) + "\n"

    def page(self) -> str:
        """The card as HTML, with a figure."""
        image = io.BytesIO()
        with style.context():
            self.figure().savefig(image, format="png")
        title, picture = html.escape(self.title), base64.b64encode(image.getvalue()).decode()
        body = [
            f"<h1>{title}</h1>",
            f"<p>fedsim {__version__}, adversary {self.adversary}</p>",
            f'<img alt="Worst accuracy by share" src="data:image/png;base64,{picture}">',
            *map(_html_table, self.tables()),
            "<h2>What this does not show</h2>",
            f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in LIMITS)}</ul>",
            f"<h2>Every cell again</h2><pre>{html.escape(chr(10).join(self.commands()))}</pre>",
        ]
        return PAGE.format(title=title, body="\n".join(body))

    def figure(self) -> "Figure":
        """Worst accuracy by share of malicious clients, beside that of some other rules."""
        from matplotlib.figure import Figure

        names = [self.rule, *(name for name in map(aggregator_name, DRAWN) if name != self.rule)]
        figure = Figure(figsize=(7, 2.8))
        panels = figure.subplots(1, len(PARTITIONS), sharey=True)
        for panel, (partition, label) in zip(panels, PARTITIONS.items(), strict=True):
            for name, look in zip(names, style.looks(names), strict=True):
                cells = sorted(
                    (c for c in self._all_cells if (c.rule, c.partition) == (name, partition)), key=lambda c: c.share
                )
                if cells:
                    numbers = (
                        [100 * c.share for c in cells],
                        [c.mean for c in cells],
                        [c.half_width or 0 for c in cells],
                    )
                    is_own = name == self.rule
                    panel.errorbar(*numbers, label=name, capsize=2, **look | {"linewidth": 2.5 if is_own else 1})
            panel.set(title=label, xlabel="malicious clients (%)", ylim=(0, 100))
        panels[0].set_ylabel("worst test accuracy (%)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
        return figure


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; margin: 1em 0 }}
th, td {{ padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }}
th:first-child, td:first-child, .text {{ text-align: left }}
img {{ max-width: 100% }} pre {{ overflow-x: auto; background: #f5f5f5; padding: 1em }}
</style></head><body>
{body}
</body></html>
"""


def name_of(keys: Mapping[str, Any]) -> str:
    """The name of a rule as it is shown, with the keys that are not as in the protocol."""
    rule, others = keys["server.aggregator"], {key: keys[key] for key in keys if key != "server.aggregator"}
    return join(aggregator_name(rule), format_values(tuple(others.items())))


def cells_of(rule: str, adversary: str, results: Results) -> list[Cell]:
    """A cell for each setting of a rule's evaluation, by partition and share."""
    cells = []
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        values = results.numbers(setting)
        values = values if values is None else values[values == values]  # without NaN
        attack = "" if setting.scenario.is_clean else _attack_name(attack_keys(adversary, run))
        mean = float("nan") if values is None else float(values.mean())
        width = None if values is None else half_width(values)
        cells.append(Cell(rule, run[PARTITION], run[SHARE], attack, mean, width, 0 if values is None else len(values)))
    return sorted(cells, key=lambda cell: (list(PARTITIONS).index(cell.partition), cell.share))


def _attack_name(keys: Block) -> str:
    """For example "Ascent (loss)"."""
    (attack,), *settings = keys.values()
    return threat_name("none", attack) + (f" ({', '.join(str(value) for (value,) in settings)})" if settings else "")


def as_csv(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Rows for `report.as_csv`."""
    return [cell._asdict() for cell in cells]


def built_in_cells(data: str) -> list[Cell]:
    """The cells of built-in rules that come along; none if there are none for this data set."""
    path = Path(__file__).with_name(f"{data}.csv")
    if not path.is_file():
        return []
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    number = lambda text: float(text) if text else None
    return [
        Cell(
            row["rule"],
            row["partition"],
            float(row["share"]),
            row["attack"],
            float(row["mean"]),
            number(row["half_width"]),
            int(row["num_splits"]),
        )
        for row in rows
    ]


def _number(results: Results, setting: Setting) -> Number | None:
    values = results.numbers(setting)
    return None if values is None else Number(float(values.mean()), half_width(values), num_runs=len(values))


def _bold(entry: Any) -> Any:
    return replace(entry, bold=True) if isinstance(entry, Number) else entry


def _html_table(table: Table) -> str:
    kind = lambda column: ' class="text"' if column.is_text else ""
    head = "".join(f"<th{kind(column)}>{html.escape(column.label)}</th>" for column in table.columns)
    rows = []
    for row in table.rows:
        cells = [f"<td>{html.escape(row.name)}</td>"]
        for column, entry in zip(table.columns, row.entries, strict=True):
            text = table.format_number(entry) + entry.marks if isinstance(entry, Number) else entry or ""
            text = f"<b>{html.escape(text)}</b>" if isinstance(entry, Number) and entry.bold else html.escape(text)
            cells.append(f"<td{kind(column)}>{text}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in (table.subtitle, *table.notes) if note)
    title, header = html.escape(table.title), html.escape(table.header)
    return f"<h2>{title}</h2><table><tr><th>{header}</th>{head}</tr>{''.join(rows)}</table>{notes}"
