"""A table of texts, for the terminal and in Markdown."""

from dataclasses import dataclass

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Grid:
    """Rows of texts under a header; columns from the second on are numbers unless `is_text`."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_text: bool = False


def terminal(grid: Grid) -> Group:
    """The grid for a terminal."""
    table = Table()
    for position, name in enumerate(grid.header):
        table.add_column(escape(name), justify="left" if grid.is_text or position == 0 else "right", overflow="fold")
    for row in grid.rows:
        table.add_row(*map(escape, row))
    return Group(Text(grid.title), table) if grid.title else Group(table)


def markdown(grid: Grid) -> str:
    """The grid in GitHub's Markdown."""
    rule = ["---", *["---" if grid.is_text else "---:"] * (len(grid.header) - 1)]
    lines = [grid.header, rule, *grid.rows]
    literal = lambda text: text.replace("|", "\\|").replace("_", "\\_")
    table = "\n".join("| " + " | ".join(literal(text) for text in line) + " |" for line in lines)
    return f"{grid.title}\n\n{table}\n" if grid.title else f"{table}\n"
