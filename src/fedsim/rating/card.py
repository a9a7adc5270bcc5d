"""The card of a rule, as tables, in Markdown and as a page."""

import base64
import io
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from markdown_it import MarkdownIt

from fedsim.config.experiment import Block, Experiment
from fedsim.config.values import format_word, option_of
from fedsim.rating.costs import SIZES
from fedsim.rating.protocol import DATA_SETS, PARTITION, RULE, SHARE, attack_keys
from fedsim.report import markdown, style
from fedsim.report.metric import DETECTION
from fedsim.report.names import aggregator_name, data_name, percent, threat_name
from fedsim.report.render import escape_markdown
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.report.statistics import half_width
from fedsim.report.table import Column, Entry, Number, Row, Table, mark_notes, text_table
from fedsim.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTITIONS = {"iid": "IID", "dirichlet": "Dirichlet(0.1)"}
BESIDE = "fedavg", "median", "multi_krum"  # the rule, in the figure and among the costs
EXCLUSION = DETECTION[1:]
EXCLUSION_COLUMNS = "precision (%)", "recall (%)", "false positives (%)"
LIMITS = (
    "These are small networks on one data set, of 20 clients that all take part in each round. Other data, models, "
    "cohorts, learning rates and numbers of rounds may rank rules differently.",
    "The worst of the adversary's attacks bounds robustness from above only: another attack may do more. The attack is "
    "chosen on other splits, so on a split another one may be worse.",
)
KNOWN_NUMBER = "Rules with an f are given the number of malicious clients. It is seldom known outside of experiments."


class Cell(NamedTuple):
    """The worst accuracy of a rule at a share of malicious clients."""

    rule: str
    """Its name as it is shown."""
    partition: str
    share: float
    attack: str
    """As it is shown; empty without malicious clients."""
    mean: float
    """In percent, of all runs with a finite accuracy."""
    half_width: float | None
    """Of the 95 % interval over splits."""
    num_splits: int
    num_diverged: int


@dataclass(frozen=True)
class Card:
    """All that is known of a rule."""

    rule: str
    """Its name as it is shown."""
    data: str
    keys: Mapping[str, Any]
    """The keys that define it: `server.aggregator`, and the settings that were given."""
    adversary: str
    evaluation: Experiment
    """The experiment of its cells, with the chosen attacks."""
    evaluated: Results
    labels: Results
    costs: Mapping[str, Sequence[float | str]]
    """Milliseconds, or why it failed, by rule."""
    checks: Sequence[tuple[str, str]]
    """Each check with its result."""
    others: Sequence[Cell]
    """Of built-in rules, by the same protocol."""
    notes: Sequence[str]
    """What else has to be known about the runs."""

    @property
    def title(self) -> str:
        return f"{self.rule}: how robust? Rated by {self.adversary} on {data_name(self.data)}"

    @property
    def made_by(self) -> str:
        others = " Numbers of other rules come with fedsim." if self.others else ""
        return f"fedsim {__version__}, adversary {self.adversary}.{others}"

    @property
    def limits(self) -> list[str]:
        is_known = isinstance(self.keys.get("server.num_byzantine", "corrupted"), str)
        return [*LIMITS, *([KNOWN_NUMBER] if is_known else [])]

    @cached_property
    def cells(self) -> list[Cell]:
        """A cell for each partition and share of malicious clients."""
        return sorted(map(self._cell, self.evaluated.settings), key=lambda cell: (cell.partition != "iid", cell.share))

    def _cell(self, setting: Setting) -> Cell:
        run = self.evaluated.runs[setting.runs[0]]
        attack = "" if setting.scenario.is_clean else attack_name(attack_keys(self.adversary, run))
        number = _number(self.evaluated, setting)
        splits = number.mean, number.spread, number.num_runs, number.num_diverged
        return Cell(self.rule, run[PARTITION], run[SHARE], attack, *splits)

    def tables(self) -> list[Table]:
        checks = text_table("Checks", ("check", "result"), self.checks)
        partitions = dict.fromkeys(cell.partition for cell in self.cells)
        tables = [*map(self._accuracy, partitions), self._attacks(), self._labels(), self._costs(), checks]
        return [replace(table, notes=tuple(mark_notes(table))) for table in tables]

    def _accuracy(self, partition: str) -> Table:
        own = [cell for cell in self.cells if cell.partition == partition]
        shares = [cell.share for cell in own]
        numbers: dict[str, dict[float, Number]] = {}
        for cell in [cell for cell in self._with_others() if cell.partition == partition]:
            number = Number(cell.mean, cell.half_width, cell.rule == self.rule, cell.num_splits, cell.num_diverged)
            numbers.setdefault(cell.rule, {})[cell.share] = number
        mean = lambda rule: sum(np.nan_to_num(numbers[rule][share].mean) for share in shares if share in numbers[rule])
        rows = [Row(rule, tuple(map(numbers[rule].get, shares))) for rule in sorted(numbers, key=mean, reverse=True)]
        return Table(
            f"Worst test accuracy (%) on {PARTITIONS[partition]} data, by share of malicious clients",
            tuple(Column(percent(share)) for share in shares),
            tuple(rows),
            "rule",
            subtitle=f"± half of the 95 % interval over {own[0].num_splits} splits; sorted by the mean of the columns",
            digits=1,
        )

    def _with_others(self) -> list[Cell]:
        return [*self.cells, *(cell for cell in self.others if cell.rule != self.rule)]

    def _attacks(self) -> Table:
        attacked = [cell for cell in self.cells if cell.attack]
        shares = dict.fromkeys(percent(cell.share) for cell in attacked)
        by_data = groupby(attacked, key=lambda cell: PARTITIONS[cell.partition])
        rows = [(name, *(cell.attack for cell in cells)) for name, cells in by_data]
        return text_table("The worst attack", ("data", *shares), rows)

    def _labels(self) -> Table:
        rows = []
        for setting in self.labels.settings:
            partition = PARTITIONS[self.labels.runs[setting.runs[0]][PARTITION]]
            means = [self.labels.number(setting, metric)["mean"] for metric in EXCLUSION]
            detected: list[Entry] = [None if mean is None else Number(mean) for mean in means]
            name = f"{partition}, {setting.corruption} {percent(setting.fraction)}"
            rows.append(Row(name, (_number(self.labels, setting), *detected)))
        columns = tuple(map(Column, ("accuracy (%)", *EXCLUSION_COLUMNS)))
        number = len(self.labels.settings[0].splits)
        return Table(
            "Wrong labels: accuracy, and whether clients with a weight of 0 are corrupted",
            columns,
            tuple(rows),
            "data",
            subtitle=f"± half of the 95 % interval over {number} splits; precision, recall and false positives of the "
            "second half of the rounds, empty without such clients",
            digits=1,
        )

    def _costs(self) -> Table:
        columns = tuple(Column(f"K = {clients}, d = {size:,}") for clients, size in SIZES)
        entry = lambda value: value if isinstance(value, str) else Number(value)
        rows = tuple(Row(rule, tuple(map(entry, values))) for rule, values in self.costs.items())
        title = "Milliseconds of an aggregation on the machine of this card, by clients K and parameters d"
        return Table(title, columns, rows, "rule", subtitle="without what a rule computes on root data")

    def commands(self) -> list[str]:
        """Commands that run the choice of the attacks, the wrong labels, and each cell again."""
        blocks = [("attacks", {}), ("labels", {}), *(("evaluation", block) for block in self.evaluation.sweep)]
        lines = []
        for preset, block in blocks:
            of_block = {key if len(values) == 1 else f"sweep.{key}": values for key, values in block.items()}
            words = ["fedsim", "run", "rating", "--preset", preset]
            for key, value in {**of_block, **DATA_SETS[self.data], **self.keys}.items():
                words += [option_of(key), *map(format_word, value if isinstance(value, list) else [value])]
            lines.append(shlex.join(words))
        return lines

    def markdown(self, figure: str = "") -> str:
        """The card in Markdown; with `figure`, the address of an image, with that."""
        images = [f"![Accuracies]({figure})"] if figure else []
        tables = [f"## {table.title}\n\n{markdown([replace(table, title='')]).rstrip()}" for table in self.tables()]
        limits = "\n".join(f"- {line}" for line in self.limits)
        commands = "\n".join(self.commands())
        head = [f"# {escape_markdown(self.title)}", self.made_by, *map(escape_markdown, self.notes), *images]
        parts = [*head, *tables, "## What this does not show", limits]
        return "\n\n".join([*parts, "## Its runs again", f"```sh\n{commands}\n```"]) + "\n"

    def page(self) -> str:
        """The same as HTML, with a figure."""
        image = io.BytesIO()
        with style.context():
            self.figure().savefig(image, format="png")
        text = self.markdown(f"data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}")
        body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
        return PAGE.format(title=escape(self.title), body=body)

    def figure(self) -> "Figure":
        """Worst accuracy by share of malicious clients, beside that of some other rules."""
        from matplotlib.figure import Figure

        every = self._with_others()
        known = {cell.rule for cell in every}
        beside = [rule for rule in BESIDE if aggregator_name(rule) in known - {self.rule}]
        names = [self.rule, *map(aggregator_name, beside)]
        looks = style.looks([str(self.keys[RULE]), *beside])
        partitions = list(dict.fromkeys(cell.partition for cell in self.cells))
        figure = Figure(figsize=(7, 2.8))
        panels, handles = figure.subplots(1, len(partitions), sharey=True, squeeze=False)[0], dict[str, Any]()
        for panel, partition in zip(panels, partitions, strict=True):
            for name, look in zip(names, looks, strict=True):
                cells = [cell for cell in every if (cell.rule, cell.partition) == (name, partition)]
                shares, means = [100 * cell.share for cell in cells], [cell.mean for cell in cells]
                widths = [cell.half_width or 0.0 for cell in cells]
                width = 2.5 if name == self.rule else 1.0
                handles[name] = panel.errorbar(shares, means, widths, capsize=2, **look | {"linewidth": width})
            panel.set(title=PARTITIONS[partition], xlabel="malicious clients (%)", ylim=(0, 100))
        return style.finish(figure, list(panels), "worst test accuracy (%)", handles)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; margin: 1em 0 }}
th, td {{ padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap }}
img {{ max-width: 100% }} pre {{ overflow-x: auto; background: #f5f5f5; padding: 1em }}
</style></head><body>
{body}
</body></html>
"""


def built_in_cells(data: str) -> list[Cell]:
    """The cells of built-in rules that come along; none if there are none for this data set."""
    path = Path(__file__).with_name(f"{data}.csv")
    if not path.is_file():
        return []
    types = {"half_width": pl.Float64}  # also if none has one
    return [Cell(*row) for row in pl.read_csv(path, schema_overrides=types, empty_string_is_null=False).rows()]


def _number(results: Results, setting: Setting) -> Number:
    """Mean and half of the interval over splits; NaN if no run has a finite accuracy."""
    values, counts = results.numbers(setting), results.number(setting)
    known = np.array([]) if values is None else values[np.isfinite(values)]
    mean = float(known.mean()) if len(known) else math.nan
    return Number(mean, half_width(known), num_runs=counts["num_runs"], num_diverged=counts["num_failed"])


def attack_name(keys: Block) -> str:
    """How an attack of an adversary is shown, for example "Ascent (loss)"."""
    (attack,), *settings = keys.values()
    return threat_name("none", attack) + (f" ({', '.join(str(value) for (value,) in settings)})" if settings else "")
