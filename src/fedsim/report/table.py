"""A table like the paper's Table 2, for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedsim.report.cells import Results, scenarios, std
from fedsim.report.names import row_names, scenario_name


def accuracy_table(results: Results) -> Group:
    """Final test accuracy in percent: a row a rule, a column a scenario; mean ± deviation over seeds, best in bold."""
    cells, names = results.cells, row_names(results.cells)
    columns = scenarios(cells)
    values: dict[tuple[str, tuple[str, float]], tuple[str, str | None]] = {}
    for position, cell in enumerate(cells):
        final = 100 * cell.accuracy[:, -1]
        deviation = std(final)
        key = names[position], (cell.corruption, cell.fraction)
        values[key] = f"{final.mean():.2f}", None if deviation is None else f"{deviation:.2f}"
    best = {column: max(float(mean) for (_, c), (mean, _) in values.items() if c == column) for column in columns}

    seeds = {len(cell.runs) for cell in cells}
    number = f"{max(seeds)} seeds" if len(seeds) == 1 else f"up to {max(seeds)} seeds"
    over = f"mean ± standard deviation over {number}" if max(seeds) > 1 else "one seed"
    lengths = {int(cell.rounds[-1]) for cell in cells}
    when = f"{lengths.pop()} rounds" if len(lengths) == 1 else "the last round"
    title = f"Test accuracy (%) after {when}\n{over}; best in bold"
    table = Table()
    table.add_column("Aggregator")
    for column in columns:
        table.add_column(scenario_name(column), justify="right")
    for row in dict.fromkeys(names.values()):
        texts = []
        for column in columns:
            mean, spread = values.get((row, column), ("", None))
            text = mean if spread is None else f"{mean} ± {spread}"
            texts.append(f"[bold]{text}[/bold]" if mean and float(mean) == best[column] else text)
        table.add_row(row, *texts)
    return Group(Text(title), table)
