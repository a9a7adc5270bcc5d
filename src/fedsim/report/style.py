"""One style for all figures: fonts, sizes, colors, lines, panels, legends. Draw and save inside `context()`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain, cycle, islice
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
    """Color and line of each row, whose `rules` are given; a built-in rule with one row has the same in all figures.

    Rows of one rule have its color and other lines; many of them have shades of it, darker for the first. A plug-in, or
    a rule with several rows, has a color that no other rule has, as long as there are any.
    """
    known, numbers, taken = list(AGGREGATORS), Counter(rules), list[dict[str, Any]]()
    of_rule: dict[str, Iterator[dict[str, Any]]] = {}
    for rule in sorted(numbers, key=lambda rule: (rule not in known, numbers[rule] > 1)):
        number, place = numbers[rule], known.index(rule) if rule in known else len(known) + crc32(rule.encode())
        lines = [LINES[(place // len(COLORS) + i) % len(LINES)] for i in range(len(LINES))]
        colors = [_paler(COLORS[(place + i) % len(COLORS)], 0.0) for i in range(len(COLORS))]
        if number > 1 or rule not in known:
            colors.sort(key=[look["color"] for look in taken].__contains__)
        every: list[list[dict[str, Any]]]
        every = [[{"color": color, "linestyle": line} for line in lines] for color in colors]
        free = [[look for look in of_color if look not in taken] for of_color in every]
        num_lines = 1 if number >= len(LINES) else number
        chosen = next((of_color[:num_lines] for of_color in free if len(of_color) >= num_lines), [])
        if not chosen:
            chosen = list(islice(cycle([*chain(*free)] or every[0]), number))
        elif num_lines < number:
            shades = (_paler(chosen[0]["color"], MAX_PALE * i / (number - 1)) for i in range(number))
            chosen = [chosen[0] | {"color": shade} for shade in shades]
        taken += chosen
        of_rule[rule] = iter(chosen)
    return [next(of_rule[rule]) for rule in rules]


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
