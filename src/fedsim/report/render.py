"""Tables for the terminal and in Markdown."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from fedsim.report.table import Number, Table

DAGGER = "†"


def terminal(tables: list[Table]) -> Group:
    """The tables for a terminal."""
    parts: list[RenderableType] = []
    for table in tables:
        shown = RichTable()
        shown.add_column("Aggregator", overflow="fold")
        for column in table.columns:
            shown.add_column(escape(column.label), justify="right", no_wrap=True)
        for row in table.rows:
            shown.add_row(escape(row.name), *(_marked(number, table, "[bold]", "[/bold]") for number in row.numbers))
        parts += [Text(heading(table, tables) + "\n" + table.subtitle), shown]
        parts += [Text(note) for note in table.notes]
    return Group(*parts)


def markdown(tables: list[Table]) -> str:
    """The tables in GitHub's Markdown."""
    parts = []
    for table in tables:
        lines = [["Aggregator", *(column.label for column in table.columns)]]
        lines.append(["---", *["---:"] * len(table.columns)])
        for row in table.rows:
            lines.append([row.name, *(_marked(number, table, "**", "**") for number in row.numbers)])
        grid = "\n".join("| " + " | ".join(_literal(cell) for cell in line) + " |" for line in lines)
        parts.append("\n\n".join([f"{heading(table, tables)}; {table.subtitle}", grid, *table.notes]))
    return "\n\n".join(parts) + "\n"


def heading(table: Table, tables: list[Table]) -> str:
    """The title, with the data set where there are several."""
    return f"{table.data}: {table.title}" if len({t.data for t in tables}) > 1 else table.title


def _marked(number: Number | None, table: Table, before: str, behind: str) -> str:
    """For example "95.32 ± 0.57", between marks if it is bold; "" where there is none."""
    if number is None:
        return ""
    spread = table.spread_text(number)
    text = table.mean_text(number) if spread is None else f"{table.mean_text(number)} ± {spread}"
    text += DAGGER if number.num_diverged else ""
    return f"{before}{text}{behind}" if number.bold else text


def _literal(text: str) -> str:
    """Without the characters that would end a cell, or begin emphasis within a name."""
    return text.replace("|", "\\|").replace("_", "\\_")
