"""Tables for the terminal, in Markdown, and for programs."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from fedsim.report.table import Entry, Number, Table

NO_BREAK = "\u00a0"
MAX_HEADING = 9  # characters of a heading's line in a wide table
MAX_NAME = 20  # characters of a row's name beside numbers, however narrow the terminal
MAX_WORD = 12  # characters of a word that is never broken, however narrow the terminal


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

    texts: Sequence[str]
    is_text: bool
    min_width: int  # to which texts are wrapped; numbers are never cut
    bold: Sequence[bool] = ()

    @property
    def width(self) -> int:
        """Without wrapping."""
        return max(cell_len(line) for text in self.texts for line in text.split("\n"))

    @property
    def styled(self) -> list[Text]:
        return [Text(text, "bold" if bold else "") for text, bold in zip_longest(self.texts, self.bold)]


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
            widths = _fit(block, options.max_width)
            shown = RichTable()
            for column, width in zip(block, widths, strict=True):
                justify: JustifyMethod = "left" if column.is_text else "right"
                shown.add_column(column.styled[0], width=width, justify=justify, overflow="fold")
            for entries in zip(*(column.styled[1:] for column in block), strict=True):
                shown.add_row(*entries)
            yield from console.render(shown, options.update(max_width=max(_total(widths), options.max_width)))

    def _columns(self, bold_form: str, is_narrow: bool) -> list[_Entries]:
        table = self.table
        columns = [_Entries([table.header, *(row.name for row in table.rows)], True, 0)]
        for position, column in enumerate(table.columns):
            entries = [row.entries[position] for row in table.rows]
            bold = list(map(_is_bold, entries))
            texts = [_text(entry, table, bold_form) for entry in entries]
            heading = column.label
            if is_narrow and not column.is_text:
                heading, texts = _narrow(heading), [text.replace(" ±", "\n±") for text in texts]
            columns.append(_Entries([heading, *texts], column.is_text, 0, [False, *bold]))
        longest = lambda texts: max(cell_len(word) for text in texts for word in text.split() or [""])
        is_all_text = all(column.is_text for column in columns)
        least = lambda column: min(longest(column.texts), MAX_WORD) if is_all_text else min(column.width, MAX_NAME)
        return [replace(c, min_width=least(c) if c.is_text else c.width) for c in columns]


def _total(widths: Iterable[int]) -> int:
    """The width of a table with its lines."""
    return sum(width + 3 for width in widths) + 1


def _narrow(heading: str) -> str:
    """In several lines, also within a key such as "dirichlet.alpha=0.1"."""
    parts = re.sub(r"(?<=[.=])(?=\w)(?<![0-9].)", " ", heading.replace(" %", NO_BREAK + "%"))
    width = min(max(MAX_HEADING, *map(len, parts.split())), MAX_WORD)
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


def _fit(block: Sequence[_Entries], max_width: int) -> list[int]:
    """The width of each column: the narrowest text gets what is left."""
    widths = [column.min_width for column in block]
    while _total(widths) < max_width:
        wrapped = [i for i, column in enumerate(block) if widths[i] < column.width]
        if not wrapped:
            break
        widths[min(wrapped, key=lambda i: widths[i])] += 1
    return widths


def markdown(tables: Sequence[Table], literal: bool = True) -> str:
    """The tables in GitHub's Markdown; unless `literal`, texts are Markdown themselves."""
    parts = []
    as_text: Callable[[str], str] = _literal if literal else str
    for table in tables:
        header = map(as_text, (table.header, *(column.label for column in table.columns)))
        rule = ["---", *("---" if column.is_text else "---:" for column in table.columns)]
        texts = lambda row, table=table: [_text(entry, table, "**{}**", as_text) for entry in row.entries]
        rows = [[as_text(row.name), *texts(row)] for row in table.rows]
        title = "; ".join(filter(None, [table.heading(tables), table.subtitle]))
        parts += [title] if title else []
        parts += ["\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows)), *table.notes]
    return "\n\n".join(parts) + "\n"


def _literal(text: str) -> str:
    """Without the characters that would end an entry, or begin emphasis within a name."""
    return text.replace("|", "\\|").replace("_", "\\_")


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
