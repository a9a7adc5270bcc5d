"""One style for all figures: fonts, sizes, colors, lines, panels, legends. Draw and save inside `context()`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from textwrap import wrap
from typing import TYPE_CHECKING, Any
from zlib import crc32

from fedsim.report.names import AGGREGATORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which color-blind readers can tell apart; line styles repeat the distinction.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
MAX_LINES = 35
MAX_PANELS = 12
MAX_PALE = 0.7  # of white in the color of a line
BAND: dict[str, Any] = {"alpha": 0.12, "linewidth": 0}
STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.5,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "savefig.dpi": "figure",
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
}


def context() -> AbstractContextManager[None]:
    """matplotlib with this style, whatever the user's own is."""
    from matplotlib import style

    return style.context(STYLE, after_reset=True)


def looks(rules: Sequence[str]) -> list[dict[str, Any]]:
    """Color and line of each row, whose `rules` are given, the same in all figures.

    Unless another row has them: of plug-ins, and of rules with many rows. Rows of one rule have its color and other
    lines; many of them have shades of it, darker for the first.
    """
    known, numbers = list(AGGREGATORS), Counter(rules)
    shown: dict[int, dict[str, Any]] = {}
    for position in sorted(range(len(rules)), key=lambda i: (rules[i] not in known, rules[i] in rules[:i])):
        rule = rules[position]
        place = known.index(rule) if rule in known else len(known) + crc32(rule.encode())
        repeat, is_shade = rules[:position].count(rule), numbers[rule] >= len(LINES)
        lightness = MAX_PALE * repeat / (numbers[rule] - 1) if is_shade else 0.0
        line = 0 if is_shade else place // len(COLORS) + repeat
        choices = []
        for i in range(MAX_LINES):  # other lines of the color, then other colors
            color = _paler(COLORS[(place + i // len(LINES)) % len(COLORS)], lightness)
            choices.append({"color": color, "linestyle": LINES[(line + i) % len(LINES)]})
        shown[position] = next((look for look in choices if look not in shown.values()), choices[0])
    return [shown[position] for position in range(len(rules))]


def _paler(color: str, share: float) -> str:
    """A color with this share of white."""
    channels = (int(color[first : first + 2], 16) for first in (1, 3, 5))
    return "#" + "".join(f"{round(channel + share * (255 - channel)):02x}" for channel in channels)


def panels(number: int) -> tuple["Figure", list["Axes"]]:
    """A figure with `number` panels in rows of at most four, which share their vertical axis."""
    from matplotlib.figure import Figure

    rows = -(-number // 4)
    columns = -(-number // rows)
    figure = Figure(figsize=(0.9 + 3.1 * columns, 0.7 + 2.7 * rows))
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel().tolist()
    for panel in grid[number:]:
        panel.set_axis_off()
    return figure, grid[:number]


def over_rounds(panel: "Axes") -> None:
    """The horizontal axis of a panel over rounds."""
    from matplotlib.ticker import MaxNLocator

    panel.set_xlabel("Round")
    panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))


def finish(
    figure: "Figure", panels: list["Axes"], label: str, handles: dict[str, Any], notes: Iterable[str] = ()
) -> "Figure":
    """The vertical axes' label, a legend below, and above notes, each once, on what is not shown."""
    for panel in panels:
        if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            panel.set_ylabel(label)
    width, height = figure.get_size_inches()
    labels = ["\n".join(wrap(literal(label), int(12 * width) - 7)) for label in handles]
    columns = max(1, min(len(handles), 5, int(12 * width // (7 + max(map(len, labels), default=0)))))
    lines = sum(label.count("\n") for label in labels) + -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.19 * (lines - 1))
    figure.legend(handles.values(), labels, loc="outside lower center", ncols=columns)
    for note in dict.fromkeys(filter(None, notes)):
        remark(figure, note)
    return figure


def remark(figure: "Figure", text: str) -> None:
    """Adds a remark above the panels."""
    together = "; ".join(filter(None, (figure.get_suptitle(), literal(text))))
    lines = "\n".join(wrap(together.replace("\n", " "), int(14 * figure.get_size_inches()[0])))
    figure.suptitle(lines, x=0.995, horizontalalignment="right", fontsize="small", color="0.35")


def literal(text: str) -> str:
    """The text with dollars that matplotlib does not take for the limits of a formula."""
    return text.replace("$", r"\$")


def cut(shown: int, number: int, what: str) -> str:
    """For example "12 of 30 panels"; empty where all are shown."""
    return f"{shown} of {number} {what}" if shown < number else ""
