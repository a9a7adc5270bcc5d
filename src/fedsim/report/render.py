"""Tables for the terminal, in Markdown, and for programs."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from fedsim.report.table import Entry, Number, Table

NO_BREAK = "\u00a0"
MAX_HEADING = 9  # characters of a heading's line in a wide table
MIN_TEXT = 12  # characters of a text's line, however narrow the terminal


def terminal(tables: Sequence[Table]) -> Group:
    """The tables for a terminal."""
    parts: list[RenderableType] = []
    for table in tables:
        title = "\n".join(filter(None, [table.heading(tables), table.subtitle]))
        parts += [*([Text(title)] if title else []), TerminalTable(table), *map(Text, table.notes)]
    return Group(*parts)


@dataclass(frozen=True)
class _Entries:
    """A column as it is shown: the heading, then an entry a row."""

    texts: Sequence[Text]
    is_text: bool

    @property
    def width(self) -> int:
        """Without wrapping."""
        return max(line.cell_len for text in self.texts for line in text.split(allow_blank=True))

    @property
    def min_width(self) -> int:
        """To which texts are wrapped; numbers are never cut."""
        return min(self.width, MIN_TEXT) if self.is_text else self.width


@dataclass(frozen=True)
class TerminalTable:
    """A table of which nothing vanishes, however narrow the terminal.

    If it is too wide, spreads are below their means, then texts are wrapped, then columns follow in further blocks.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bold = "{}" if console.color_system else "**{}**"  # a pipe or a log file has no styles
        names, *columns = self._columns(bold, is_narrow=False)
        if _total(column.width for column in (names, *columns)) > options.max_width:
            names, *columns = self._columns(bold, is_narrow=True)
        for block in _blocks(names, columns, options.max_width):
            shown = RichTable()
            for column in block:
                look: dict[str, Any] = {"overflow": "fold"} if column.is_text else {"justify": "right", "no_wrap": True}
                shown.add_column(column.texts[0], min_width=column.min_width, **look)
            for entries in zip(*(column.texts[1:] for column in block), strict=True):
                shown.add_row(*entries)
            yield shown

    def _columns(self, bold_form: str, is_narrow: bool) -> list[_Entries]:
        table = self.table
        columns = [_Entries([Text(table.header), *(Text(row.name) for row in table.rows)], is_text=True)]
        for position, column in enumerate(table.columns):
            entries = [row.entries[position] for row in table.rows]
            texts = [_text(entry, table, bold_form) for entry in entries]
            heading = column.label
            if is_narrow and not column.is_text:
                heading, texts = _narrow(heading), [text.replace(" ±", "\n±") for text in texts]
            styles = ("bold" if _is_bold(entry) else "" for entry in entries)
            columns.append(_Entries([Text(heading), *map(Text, texts, styles)], column.is_text))
        return columns


def _total(widths: Iterable[int]) -> int:
    """The width of a table with its lines."""
    return sum(width + 3 for width in widths) + 1


def _narrow(heading: str) -> str:
    """In several lines, also within a key such as "dirichlet.alpha=0.1"."""
    parts = re.sub(r"(?<=[.=])(?=\w)(?<![0-9].)", " ", heading.replace(" %", NO_BREAK + "%"))
    width = min(max(MAX_HEADING, *map(len, parts.split())), MIN_TEXT)
    return "\n".join(line.replace(". ", ".").replace("= ", "=") for line in wrap(parts, width))


def _blocks(names: _Entries, columns: Sequence[_Entries], max_width: int) -> list[list[_Entries]]:
    """The columns in blocks that are at most `max_width` wide, if a column is; each begins with the names."""
    blocks = [[names]]
    for column in columns:
        is_full = _total(entries.min_width for entries in (*blocks[-1], column)) > max_width
        if is_full and len(blocks[-1]) > 1:
            blocks.append([names])
        blocks[-1].append(column)
    return blocks


def markdown(tables: Sequence[Table], literal: bool = True) -> str:
    """The tables in GitHub's Markdown; unless `literal`, texts are Markdown themselves."""
    parts = []
    as_text: Callable[[str], str] = escape_markdown if literal else str
    for table in tables:
        header = map(as_text, (table.header, *(column.label for column in table.columns)))
        rule = ["---", *("---" if column.is_text else "---:" for column in table.columns)]
        texts = lambda row, table=table: [_text(entry, table, "**{}**", as_text) for entry in row.entries]
        rows = [[as_text(row.name), *texts(row)] for row in table.rows]
        title = "; ".join(filter(None, [table.heading(tables), table.subtitle]))
        parts += [title] if title else []
        parts += ["\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows)), *table.notes]
    return "\n\n".join(parts) + "\n"


def escape_markdown(text: str) -> str:
    """Without the characters that would end an entry, or begin emphasis within a name."""
    return re.sub(r"[|_*]", r"\\\g<0>", text)


def _text(entry: Entry, table: Table, bold: str, as_text: Callable[[str], str] = str) -> str:
    """The entry; `bold` is the form of one that is, such as "**{}**"."""
    text = as_text(table.format_number(entry) + entry.marks if isinstance(entry, Number) else entry or "")
    return bold.format(text) if _is_bold(entry) else text


def _is_bold(entry: Entry) -> bool:
    return isinstance(entry, Number) and entry.bold


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same keys as CSV; numbers with six digits, empty for None."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return file.getvalue()
