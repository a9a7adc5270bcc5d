"""Tables of the final accuracy (or loss): a row a rule, a column a scenario."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedsim.report.choose import selection_notes
from fedsim.report.final import Final
from fedsim.report.metric import BACKDOOR, EXCESS, LOSS, Metric
from fedsim.report.names import count, data_name, percent, scenario_parts
from fedsim.report.privacy import privacy_notes
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import Setting, scenarios
from fedsim.report.table import Column, Number, Row, Table, mark_notes, with_best_in_bold, with_most_runs


def accuracy_tables(results: Results) -> list[Table]:
    """Final test accuracy in percent, a table a data set: mean and deviation over splits or seeds, best in bold.

    The final test loss of data without any accuracy; with backdoors a second table, of their success.
    """
    return _tables(results, results.settings) + _tables(results, results.with_backdoor, BACKDOOR)


def _tables(results: Results, settings: Sequence[Setting], metric: Metric | None = None) -> list[Table]:
    """Those of the metric by which the settings are compared, or of another."""
    keys = dict.fromkeys(map(results.table_key, settings))
    in_table = lambda key: [setting for setting in settings if results.table_key(setting) == key]
    return [_table(results, in_table(key), metric or key[1]) for key in keys]


def _table(results: Results, shown: Sequence[Setting], metric: Metric) -> Table:
    names = row_names(results.settings)
    over = f"mean ± standard deviation over {draws_text(setting.draws for setting in shown)}"
    has_spread = any(len(setting.runs) > 1 for setting in shown)
    kind = "regression; " if metric == LOSS else ""
    repeated = [f"{results.num_repeated} runs are in several folders; the first folder's, or the longest, are used."]
    table = tabulate(
        f"{metric.label} {final_text(shown, results.final)}",
        f"{kind}{over if has_spread else 'one split, one seed'}; best in bold",
        [(names[setting], setting, final_number(results, setting, metric)) for setting in shown],
    )
    notes = [*_excess_notes(results, names, shown), *privacy_notes(results, {s: names[s] for s in shown})]
    more = [*(repeated if results.num_repeated else []), *notes]
    return with_best_in_bold(complete(table, results, shown[0].data, metric, more), metric)


def _excess_notes(results: Results, names: dict[Setting, str], settings: Sequence[Setting]) -> list[str]:
    """Which rules assumed fewer corrupted clients than some cohort had."""
    largest: dict[str, float] = {}
    for setting in settings:
        if share := results.number(setting, EXCESS)["mean"]:
            largest[names[setting]] = max(share, largest.get(names[setting], 0.0))
    rules = [f"{row}: f was exceeded in up to {percent(share / 100)} of the rounds" for row, share in largest.items()]
    return [f"{'; '.join(rules)}."] if rules else []


def complete(table: Table, results: Results, data: str, metric: Metric, more: Sequence[str] = ()) -> Table:
    """The table with its data set, its digits and all notes: on marks, `more`, what was chosen, incomplete runs."""
    table = with_most_runs(table)
    notes = [*table.notes, *mark_notes(table), *more]
    if results.selection:
        notes += selection_notes(results.selection, data, metric)
    if results.confirmed:
        choice = f"Values were {results.choice_remark}."
        notes.append(choice if results.selection else f"Runs with {results.confirmed} are shown.")
    return replace(table, data=data_name(data), digits=metric.digits, notes=(*notes, *results.notes))


def draws_text(draws: Iterable[Sequence[tuple[int, int]]]) -> str:
    """For example "5 splits x 3 seeds", "5 splits", or "5 seeds of one split"; "up to" if some settings have fewer.

    `draws` has the (split, seed) of the runs of each setting. With several splits of a setting, what follows "over" is
    over these: each is the mean of its seeds.
    """
    draws = list(draws)
    counts = [Counter(split for split, _ in of_setting) for of_setting in draws]
    num_splits, num_seeds = max(map(len, counts)), max(max(count.values()) for count in counts)
    is_equal = all(len(count) == num_splits and set(count.values()) == {num_seeds} for count in counts)
    up_to = "" if is_equal else "up to "
    differ = ", not everywhere the same" if is_equal and len(set(map(frozenset, draws))) > 1 else ""
    if num_splits == 1:
        each = " each" if len(set().union(*counts)) > 1 else differ
        return f"{up_to}{num_seeds} seed{'s' * (num_seeds > 1)} of one split{each}"
    return f"{up_to}{num_splits} splits{f' x {num_seeds} seeds' if num_seeds > 1 else ''}{differ}"


def final_text(settings: Iterable[Setting], final: Final) -> str:
    """Which evaluations are shown, for example "after 100 rounds"."""
    ends = {setting.rounds[-1] for setting in settings}
    of = f" of {max(ends)} rounds" if len(ends) == 1 else ""
    if final.kind == "mean":
        return f"over the last {count(final.number, 'evaluation')}{of}"
    if final.kind == "best":
        return f"at the round that is best on validation data{f',{of}' if of else ''}"
    return f"after {max(ends)} rounds" if of else "after the last round"


def final_number(results: Results, setting: Setting, metric: Metric | None = None) -> Number | None:
    """Its mean and deviation over splits or seeds, by its data's metric or another; None if nothing was measured."""
    metric = metric or results.metric(setting)
    mean, number = results.mean(setting, metric), results.number(setting, metric)
    if math.isnan(mean) and not number["num_diverged"]:
        return None
    counts = number["num_runs"], number["num_failed"], number["num_skipped"]
    return Number(mean, number["std"], False, *counts, missing_rounds=results.missing_rounds(setting))


def tabulate(title: str, subtitle: str, entries: Sequence[tuple[str, Setting, Number | None]]) -> Table:
    """A table of numbers, each with the name of its row and a setting, whose scenario is its column."""
    shown = scenarios([setting for _, setting, _ in entries])
    numbers = {(row, setting.scenario): number for row, setting, number in entries}
    rows = tuple(
        Row(row, tuple(numbers.get((row, scenario)) for scenario in shown), rule)
        for row, rule in ordered_rows((setting, row) for row, setting, _ in entries).items()
    )
    return Table(title, tuple(Column(*scenario_parts(scenario)) for scenario in shown), rows, subtitle=subtitle)
