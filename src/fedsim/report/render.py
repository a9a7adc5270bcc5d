"""Tables for the terminal and in Markdown."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from fedsim.report.table import Entry, Table

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
            texts = [(entry, entry_text(entry, table.signed)) for entry in row.entries]
            bold = [f"[bold]{text}[/bold]" if entry and entry.bold else text for entry, text in texts]
            shown.add_row(escape(row.name), *bold)
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
            texts = [(entry, entry_text(entry, table.signed)) for entry in row.entries]
            lines.append([row.name, *(f"**{text}**" if entry and entry.bold else text for entry, text in texts)])
        grid = "\n".join("| " + " | ".join(_literal(cell) for cell in line) + " |" for line in lines)
        parts.append("\n\n".join([f"{heading(table, tables)}; {table.subtitle}", grid, *table.notes]))
    return "\n\n".join(parts) + "\n"


def heading(table: Table, tables: list[Table]) -> str:
    """The title, with the data set where there are several."""
    return f"{table.data}: {table.title}" if len({t.data for t in tables}) > 1 else table.title


def entry_text(entry: Entry | None, signed: bool = False) -> str:
    """For example "95.32 ± 0.57", or "" where there is none."""
    if entry is None:
        return ""
    mean = f"{entry.mean:{'+' * signed}.2f}"
    return mean + (f" ± {entry.spread:.2f}" if entry.spread is not None else "") + DAGGER * bool(entry.num_diverged)


def _literal(text: str) -> str:
    """Without the characters that would end a cell, or begin emphasis within a name."""
    return text.replace("|", "\\|").replace("_", "\\_")
