"""Tables: means, deviations and the best, in Markdown and LaTeX."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from fedsim import report
from fedsim.report.latex import escape
from fedsim.report.render import escape_markdown
from fedsim.report.table import Column, Number, Row, Table
from tests.report.synthetic import GRID, RULES, check_latex, final, make_folder, run


def test_markdown_and_latex_have_the_same_content(tmp_path):
    tables = report.accuracy_tables(report.load(make_folder(tmp_path / "a", GRID)))
    markdown, latex = report.markdown(tables), report.latex(tables)
    mean, deviation = final("arfl", 0.5).mean(), np.std(final("arfl", 0.5), ddof=1)
    (line,) = (line for line in markdown.splitlines() if line.startswith("| ARFL"))
    assert line.split(" | ")[-1] == f"**{mean:.2f} ± {deviation:.2f}** |"
    lines = [line.strip() for line in latex.splitlines()]
    (line,) = (line for line in lines if line.startswith("ARFL"))
    assert line.split(" & ")[-1] == rf"$\mathbf{{{mean:.2f} \pm {deviation:.2f}}}$ \\"
    assert r"\textbf{Digits} & \textbf{Clean} & \multicolumn{2}{c}{\textbf{Shuffling}} \\" in lines
    assert r"\cmidrule(lr){2-2} \cmidrule(lr){3-4}" in lines
    assert r"Corrupted & -- & 30\,\% & 50\,\% \\" in lines
    assert lines[lines.index(line) - 1] == r"\midrule"  # ARFL is separated, as in the paper
    check_latex(latex)


@pytest.mark.parametrize(("styles", "shown"), [(None, "**95.32**"), ("standard", "\033[1m95.32\033[0m")])
def test_bold_is_seen_in_a_log_file_too(styles, shown):
    console = Console(width=100, file=StringIO(), force_terminal=styles is not None, color_system=styles)
    rows = (Row("RFA", (Number(95.32, bold=True),), "rfa"), Row("ARFL", (Number(94.1),), "arfl"))
    console.print(report.terminal([Table("Accuracy", (Column("Clean"),), rows)]))
    printed = console.file.getvalue()
    assert shown in printed
    assert printed.count("*") == 4 * (styles is None)


NAMES = (
    "FedAvg",
    "Centered clipping with ARFL's weights, λ = 10 M, client.learning_rate=0.05",
    "my_rule_" * 6 + "(my.py)",
)
HEADINGS = [("Clean", ""), ("Clean", "dirichlet.alpha=0.1"), ("Targeted + Model replacement by 10 %", "50 %")]
WIDE = (*(Column(*heading) for heading in HEADINGS), *(Column("Noisy", f"{n} %") for n in range(10, 100, 10)))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("num_columns", [1, 3, 12])
@pytest.mark.parametrize("is_text", [False, True])
def test_nothing_vanishes_in_a_narrow_terminal(width, num_columns, is_text):
    """Names are complete in each block of columns, numbers are never cut, and no line is too long.

    If there is room, a number is in one line.
    """
    number = lambda row, column: Number(-10 * row - column / 100, 10.57, False, 5, 1)
    entry = (lambda row, column: f"claim {row}.{column} holds ([preliminary])") if is_text else number
    rows = [Row(name, tuple(entry(r, c) for c in range(num_columns)), "own") for r, name in enumerate(NAMES)]
    columns = tuple(replace(column, is_text=is_text) for column in WIDE[:num_columns])
    console = Console(width=width, file=StringIO())
    console.print(report.terminal([Table("Accuracy", columns, tuple(rows))]))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    blocks = "\n".join(lines).split("┏")[1:]
    bare = lambda text: "".join(text.split())
    shown, headings = "", ""
    for block in blocks:
        cells = [
            [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in block.splitlines()
        ]
        cells = [line for line in cells if len(line) == len(cells[1])]
        in_columns = [bare("".join(column)) for column in zip(*cells, strict=True)]
        assert all(bare(name) in in_columns[0] for name in NAMES)
        shown, headings = shown + "".join(in_columns[1:]), headings + "".join(in_columns[1:])
    assert len(blocks) == 1 or width < 200
    for column in columns:
        assert bare(column.label) in headings
    for row in rows:
        for value in row.entries:
            text = value if is_text else f"{value.mean:.2f} ± 10.57†"
            assert bare(text) in shown
            assert width < 200 or num_columns > 3 or any(text in line for line in lines)


def test_markdown_escapes_what_ends_an_entry_or_begins_emphasis():
    assert escape_markdown("a|b_c, whole=('Dense_0/*',)") == r"a\|b\_c, whole=('Dense\_0/\*',)"


def test_latex_escapes_special_characters():
    awkward = r"a&b_50%#$~^\{λ}|<"
    assert escape(awkward) == (r"a\&b\_50\%\#\$\textasciitilde{}\textasciicircum{}\textbackslash{}\{$\lambda$\}$|$$<$")
    row = Row(awkward, (Number(1.0, None, True, 1, 1), None), "own")
    table = Table(
        awkward, (Column("A_1", "5 %"), Column("B&")), (row,), data=awkward, subtitle="±", notes=("† 1 of 1",)
    )
    check_latex(report.latex([table]))
    assert r"$\mathbf{1.00}^{\dagger}$" in report.latex([table])


def test_each_data_set_has_a_table_without_keys_that_are_constant_in_it(tmp_path):
    keys = {"data.name": "cifar10", "client.learning_rate": 0.01}
    small = [run(rule, seed=seed, **keys) for rule in RULES for seed in (0, 1)]
    results = report.load(make_folder(tmp_path / "a", GRID), make_folder(tmp_path / "b", small))
    tables = report.accuracy_tables(results)
    assert [table.data for table in tables] == ["Digits", "CIFAR-10"]
    assert all(setting.swept_values == () for setting in results.settings)  # the learning rate follows the data set
    latex = report.latex(tables)
    assert latex.count(r"\begin{tabular}") == 2
    assert latex.count(r"\begin{table*}") == 1
    check_latex(latex)
    assert "CIFAR-10: Test accuracy (%) after 20 rounds" in report.markdown(tables)
    titles = [panel.get_title() for panel in report.figures(results)["accuracy"].axes]
    assert titles == ["Digits: Clean", "Digits: Shuffling 30 %", "Digits: Shuffling 50 %", "CIFAR-10: Clean"]
