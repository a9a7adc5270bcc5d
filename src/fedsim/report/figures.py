"""Figures from a run folder."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from fedsim.report.cells import Results, in_scenario, scenarios
from fedsim.report.names import row_names, scenario_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart; line styles say the same again.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":", "-")  # five to seven colours: 14 lines before two are alike
BENIGN, CORRUPTED = ("benign client", "-", "#0072B2"), ("corrupted client", "--", "#D55E00")
MAX_PANELS, MAX_LINES = 12, 60


def figures(results: Results) -> Iterator[tuple[str, "Figure"]]:
    """(name, figure) of each picture that the results have something for."""
    yield "accuracy", accuracy(results)
    if any(np.nanmax(cell.corrupted_weight, initial=0) > 0 for cell in results.cells):
        yield "corrupted_weight", corrupted_weight(results)
    if (weights := client_weights(results)) is not None:
        yield "client_weights", weights


def accuracy(results: Results) -> "Figure":
    """Test accuracy over rounds, a panel a scenario; the band reaches from the least to the greatest seed."""
    return _over_rounds(results, lambda cell: 100 * cell.accuracy, "Test accuracy (%)")


def corrupted_weight(results: Results) -> "Figure":
    """The share of the weight that corrupted clients get, over rounds."""
    return _over_rounds(results, lambda cell: 100 * cell.corrupted_weight, "Weight of corrupted clients (%)", True)


def client_weights(results: Results) -> "Figure | None":
    """Each client's weight among all clients over rounds, in the first seed; None where no rule keeps such weights."""
    table = results.clients.filter(results.clients["alpha"].is_valid())
    keepers = set(np.unique(table["run"].to_numpy()))
    cells = [cell for cell in results.cells if cell.runs[0] in keepers][:MAX_PANELS]
    if not cells:
        return None
    names = row_names(results.cells)
    figure, panels = _panels(len(cells))
    handles: dict[str, Any] = {}
    for panel, cell in zip(panels, cells, strict=True):
        run = table.filter(pc.equal(table["run"], cell.runs[0]))
        ids = np.unique(run["client_id"].to_numpy())
        for client in ids[:: -(-len(ids) // MAX_LINES)]:
            rows = run.filter(pc.equal(run["client_id"], client))
            label, style, colour = CORRUPTED if rows["corrupted"][0].as_py() else BENIGN
            alpha = 100 * rows["alpha"].to_numpy()
            line = panel.plot(rows["round"].to_numpy(), alpha, style, color=colour, linewidth=0.9, alpha=0.8)
            handles[label] = line[0]
        scenario = scenario_name((cell.corruption, cell.fraction))
        row = names[results.cells.index(cell)]
        panel.set_title(f"{row}: {scenario}, seed {cell.seeds[0]}", fontsize="medium")
        panel.set_xlabel("Round")
    panels[0].set_ylim(bottom=0)  # shared by all, once everything is drawn
    _label_left(figure, panels, "Client's weight α (%)")
    _legend(figure, handles)
    return figure


def _over_rounds(results: Results, value: Any, label: str, corrupted_only: bool = False) -> "Figure":
    names = row_names(results.cells)
    rows = list(dict.fromkeys(names.values()))
    row_of = {id(cell): names[position] for position, cell in enumerate(results.cells)}
    shown = [s for s in scenarios(results.cells) if s[1] > 0 or not corrupted_only][:MAX_PANELS]
    figure, panels = _panels(len(shown))
    handles: dict[str, Any] = {}
    for panel, scenario in zip(panels, shown, strict=True):
        for cell in in_scenario(results.cells, scenario):
            position = rows.index(row_of[id(cell)])
            colour, style = COLOURS[position % len(COLOURS)], STYLES[position % len(STYLES)]
            values = np.ma.masked_invalid(value(cell))
            line = panel.plot(cell.rounds, values.mean(axis=0), style, color=colour, linewidth=1.5)
            band = values.min(axis=0), values.max(axis=0)
            panel.fill_between(cell.rounds, *band, color=colour, alpha=0.12, linewidth=0)
            handles[row_of[id(cell)]] = line[0]
        panel.set_title(scenario_name(scenario), fontsize="medium")
        panel.set_xlabel("Round")
    _label_left(figure, panels, label)
    _legend(figure, handles)
    return figure


def _panels(number: int) -> tuple["Figure", list["Axes"]]:
    """A figure with `number` panels in rows of four, sharing their vertical axis."""
    from matplotlib.figure import Figure

    columns = min(number, 4)
    rows = -(-number // columns)
    figure = Figure(figsize=(0.9 + 3.1 * columns, 0.7 + 2.7 * rows), layout="constrained", dpi=150)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel().tolist()
    for panel in grid[number:]:
        panel.set_axis_off()
    for panel in grid[:number]:
        panel.grid(alpha=0.3, linewidth=0.5)
    return figure, grid[:number]


def _legend(figure: "Figure", handles: dict[str, Any]) -> None:
    """A legend below the panels, in as many columns as its longest name leaves room for."""
    characters = 10 * figure.get_size_inches()[0]
    columns = max(1, min(len(handles), 5, int(characters // (8 + max(map(len, handles))))))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


def _label_left(figure: "Figure", panels: list["Axes"], label: str) -> None:
    for panel in panels:
        if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            panel.set_ylabel(label)
