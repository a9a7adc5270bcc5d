"""Tables for the terminal and in Markdown."""

from collections.abc import Callable, Sequence
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from fedsim.report.table import Entry, Number, Table

NO_BREAK = "\u00a0"
MAX_HEADING = 9  # characters of a heading's line in a wide table
MAX_WIDTH = 100  # columns of a terminal up to which a number and its spread are on one line
MAX_WORD = 12  # characters of a word that is never broken, however narrow the terminal


def terminal(tables: Sequence[Table]) -> Group:
    """The tables for a terminal."""
    parts: list[RenderableType] = []
    for table in tables:
        title = "\n".join(filter(None, [table.heading(tables), table.subtitle]))
        parts += [*([Text(title)] if title else []), _rich_table(table), *map(Text, table.notes)]
    return Group(*parts)


def _rich_table(table: Table) -> RichTable:
    """One line a row; if that is too wide, spreads are below their means."""
    header, *rows = _lines(table, escape, "[bold]", "[/bold]")
    is_text = [True, *(column.is_text for column in table.columns)]
    widths = [max(Text.from_markup(text).cell_len for text in column) for column in zip(header, *rows, strict=True)]
    if not all(is_text) and sum(widths) + 3 * len(table.columns) + 4 > MAX_WIDTH:
        narrow = lambda heading: "\n".join(wrap(heading.replace(" %", NO_BREAK + "%"), MAX_HEADING))
        header = [header[0], *map(narrow, header[1:])]
        rows = [[name, *(text.replace(" ±", "\n±") for text in entries)] for name, *entries in rows]
    shown = RichTable()
    for heading, column, text, width in zip(header, zip(header, *rows, strict=True), is_text, widths, strict=True):
        if text:
            longest_word = max((len(word) for entry in column for word in entry.split()), default=0)
            min_width = min(longest_word, MAX_WORD) if all(is_text) else min(width, MAX_WIDTH // 3)
            shown.add_column(heading, overflow="fold", min_width=min_width)
        else:
            shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    return shown


def markdown(tables: Sequence[Table], literal: bool = True) -> str:
    """The tables in GitHub's Markdown; unless `literal`, texts are Markdown themselves."""
    parts = []
    for table in tables:
        header, *rows = _lines(table, _literal if literal else str, "**", "**")
        rule = ["---", *("---" if column.is_text else "---:" for column in table.columns)]
        title = "; ".join(filter(None, [table.heading(tables), table.subtitle]))
        parts += [title] if title else []
        parts += ["\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows)), *table.notes]
    return "\n\n".join(parts) + "\n"


def _literal(text: str) -> str:
    """Without the characters that would end an entry, or begin emphasis within a name."""
    return text.replace("|", "\\|").replace("_", "\\_")


def _lines(table: Table, literal: Callable[[str], str], bold: str, end: str) -> list[list[str]]:
    """The header and the rows as texts; a bold number is between `bold` and `end`."""

    def format_entry(entry: Entry) -> str:
        if not isinstance(entry, Number):
            return literal(entry or "")
        text = table.format_number(entry) + entry.marks
        return f"{bold}{text}{end}" if entry.bold else text

    header = [literal(text) for text in (table.header, *(column.label for column in table.columns))]
    return [header, *([literal(row.name), *map(format_entry, row.entries)] for row in table.rows)]
