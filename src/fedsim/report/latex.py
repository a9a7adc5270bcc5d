"""Tables in LaTeX (booktabs), laid out as the paper's Table 2: a block a data set, fractions below kinds."""

from collections.abc import Sequence
from itertools import groupby

from fedsim.report.table import Entry, Number, Table

ESCAPES = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "§": r"\S{}",
    "¶": r"\P{}",
    "‖": r"$\|$",
    "–": "--",
}


def latex(tables: Sequence[Table], label: str = "tab:accuracy") -> str:
    """One `table*` with a tabular a data set; needs the package booktabs."""
    captions = list(dict.fromkeys(f"{table.title}: {table.subtitle}." for table in tables))
    if len(captions) > 1:
        captions = [f"{table.heading(tables)}: {table.subtitle}." for table in tables]
    blocks = [line for table in tables for line in _tabular(table)]
    head = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"  \centering",
        f"  \\caption{{{escape(' '.join(captions))}}}",
        f"  \\label{{{label}}}",
        r"  \smallskip",
    ]
    return "\n".join([*head, *blocks, r"\end{table*}"]) + "\n"


def escape(text: str) -> str:
    """`text` with all characters that are special to LaTeX escaped."""
    return "".join(ESCAPES.get(character, character) for character in text)


def _tabular(table: Table) -> list[str]:
    groups = [(name, len(list(columns))) for name, columns in groupby(table.columns, key=lambda column: column.group)]
    first = [_group(table.data, 1), *(_group(name, width) for name, width in groups)]
    alignment = "l" + "".join("l" if column.is_text else "c" for column in table.columns)
    lines = [f"  \\begin{{tabular}}{{{alignment}}}", r"    \toprule", _line(first)]
    if any(column.name for column in table.columns):
        starts = [2 + sum(width for _, width in groups[:position]) for position in range(len(groups))]
        rules = [f"\\cmidrule(lr){{{s}-{s + width - 1}}}" for s, (_, width) in zip(starts, groups, strict=True)]
        parts = [escape(column.name).replace(" ", r"\,") or "--" for column in table.columns]
        lines += ["    " + " ".join(rules), _line(["Corrupted", *parts])]
    lines.append(r"    \midrule")
    for position, (is_arfl, rows) in enumerate(groupby(table.rows, key=lambda row: row.aggregator == "arfl")):
        lines += [r"    \midrule"] if is_arfl and position else []
        lines += [_line([escape(row.name), *(_format(entry, table) for entry in row.entries)]) for row in rows]
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    return lines + [f"  \\par\\smallskip {escape(note)}" for note in table.notes] + [r"  \par\medskip"]


def _line(entries: list[str]) -> str:
    return "    " + " & ".join(entries) + r" \\"


def _group(name: str, width: int) -> str:
    text = f"\\textbf{{{escape(name)}}}"
    return text if width == 1 else f"\\multicolumn{{{width}}}{{c}}{{{text}}}"


def _format(entry: Entry, table: Table) -> str:
    """For example $\\mathbf{95.32 \\pm 0.57}$."""
    if not isinstance(entry, Number):
        return escape(entry or "")
    text = table.format_number(entry, r"\pm")
    text = f"\\mathbf{{{text}}}" if entry.bold else text
    return f"${text}^{{{escape(entry.marks).replace('$', '')}}}$" if entry.marks else f"${text}$"
