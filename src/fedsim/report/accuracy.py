"""Tables of the final accuracy (or loss): a row a rule, a column a scenario."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedsim.report.choose import selection_notes
from fedsim.report.metric import BACKDOOR, LOSS, Metric, metrics_by_data, with_backdoor
from fedsim.report.names import data_name, scenario_name, scenario_parts
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import Setting, data_sets, scenarios
from fedsim.report.statistics import mean, std
from fedsim.report.table import Column, Number, Row, Table, mark_notes, with_best_in_bold


class TableEntry(NamedTuple):
    """A number with its place: the row of that name, and the column of the setting's scenario."""

    row: str
    setting: Setting
    number: Number | None


def accuracy_tables(results: Results) -> list[Table]:
    """Final test accuracy in percent, a table a data set: mean and deviation over splits or seeds, best in bold.

    The final test loss for a data set without any accuracy; for one with backdoors a second table, of their success.
    """
    settings, metric_of = results.settings, metrics_by_data(results.settings)
    backdoors = with_backdoor(settings)
    tables = [_data_set_table(results, data, metric_of[data], settings) for data in data_sets(settings)]
    return tables + [_data_set_table(results, data, BACKDOOR, backdoors) for data in data_sets(backdoors)]


def _data_set_table(results: Results, data: str, metric: Metric, settings: Sequence[Setting]) -> Table:
    """The table of those of `settings` that are of the data set."""
    names = row_names(results.settings)
    shown = [setting for setting in settings if setting.data == data]
    over = f"mean ± standard deviation over {draws_text(setting.draws for setting in shown)}"
    has_spread = any(len(setting.runs) > 1 for setting in shown)
    kind = "regression; " if metric == LOSS else ""
    table = tabulate(
        f"{metric.label} {final_text(shown)}",
        f"{kind}{over if has_spread else 'one split, one seed'}; best in bold",
        [TableEntry(names[setting], setting, final_number(setting, metric)) for setting in shown],
    )
    repeated = [f"{results.num_repeated} runs are in several folders; the first folder's are used."]
    notes = (
        *table.notes,
        *(repeated if results.num_repeated else ()),
        *_excess_notes(names, shown),
        *closing_notes(results, data, metric),
    )
    return with_best_in_bold(replace(table, digits=metric.digits, notes=notes), metric)


def _excess_notes(names: dict[Setting, str], settings: Sequence[Setting]) -> list[str]:
    """Which rules assumed fewer corrupted clients than some cohort had."""
    largest: dict[str, float] = {}
    for setting in settings:
        if share := setting.mean_byzantine_excess:
            largest[names[setting]] = max(share, largest.get(names[setting], 0.0))
    rules = "; ".join(
        f"{row}: f was exceeded in up to {100 * share:.0f} % of the rounds" for row, share in largest.items()
    )
    return [f"{rules}."] if rules else []


def closing_notes(results: Results, data: str, metric: Metric) -> tuple[str, ...]:
    """What was chosen, and which runs are not complete."""
    chosen = selection_notes(results.selection, data, metric) if results.selection else ()
    confirmed = (f"Values were {results.choice_remark}.",) if results.selection and results.confirmed else ()
    return (*chosen, *confirmed, *results.incomplete)


def draws_text(draws: Iterable[Sequence[tuple[int, int]]]) -> str:
    """For example "5 splits x 3 seeds", "5 splits", or "5 seeds of one split"; "up to" if some settings have fewer.

    `draws` has the (split, seed) of the runs of each setting. With several splits of a setting, what follows "over" is
    over these: each is the mean of its seeds.
    """
    counts = [Counter(split for split, _ in of_setting) for of_setting in draws]
    num_splits, num_seeds = max(map(len, counts)), max(max(count.values()) for count in counts)
    is_equal = all(len(count) == num_splits and set(count.values()) == {num_seeds} for count in counts)
    up_to = "" if is_equal else "up to "
    if num_splits == 1:
        each = " each" if len(set().union(*counts)) > 1 else ""
        return f"{up_to}{num_seeds} seed{'s' * (num_seeds > 1)} of one split{each}"
    return f"{up_to}{num_splits} splits{f' x {num_seeds} seeds' if num_seeds > 1 else ''}"


def final_text(settings: Iterable[Setting]) -> str:
    """Which evaluations are shown, for example "after 100 rounds"."""
    ends, finals = zip(*((int(setting.rounds[-1]), setting.final) for setting in settings), strict=True)
    of = f" of {ends[0]} rounds" if len(set(ends)) == 1 else ""
    if finals[0].kind == "mean":
        return f"over the last {finals[0].number} evaluations{of}"
    if finals[0].kind == "best":
        return f"at the round that is best on validation data{f',{of}' if of else ''}"
    return f"after {ends[0]} rounds" if of else "after the last round"


def final_number(setting: Setting, metric: Metric) -> Number | None:
    """Its mean and deviation over splits or seeds; None if nothing was measured."""
    final = metric.final_by_split(setting)
    center = mean(final)
    if center is None and not setting.num_diverged:
        return None
    num_diverged = (setting.has_diverged | ~np.isfinite(metric.final(setting))).sum()
    counts = len(setting.runs), int(num_diverged), setting.num_skipped
    return Number(math.nan if center is None else center, std(final), False, *counts)


def final_numbers(results: Results) -> dict[tuple[str, str, str], Number | None]:
    """The number of each setting, by the names of its data set, row and scenario."""
    metric_of = metrics_by_data(results.settings)
    return {
        (data_name(setting.data), name, scenario_name(setting.scenario)): final_number(setting, metric_of[setting.data])
        for setting, name in row_names(results.settings).items()
    }


def tabulate(title: str, subtitle: str, entries: Sequence[TableEntry]) -> Table:
    """A table of one data set: a column a scenario; notes say which runs diverged or had skipped rounds."""
    settings = [entry.setting for entry in entries]
    shown = scenarios(settings)
    numbers = {(entry.row, entry.setting.scenario): entry.number for entry in entries}
    rules = {entry.row: entry.setting.aggregator for entry in entries}
    columns = tuple(Column(*scenario_parts(scenario)) for scenario in shown)
    rows = tuple(
        Row(name, tuple(numbers.get((name, scenario)) for scenario in shown), rules[name])
        for name in ordered_rows((entry.setting, entry.row) for entry in entries)
    )
    notes = mark_notes(columns, rows)
    return Table(title, columns, rows, data=data_name(settings[0].data), subtitle=subtitle, notes=notes)
