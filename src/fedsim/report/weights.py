"""Figures of the clients' weights alpha, of rules that keep one for every client: a line a client, corrupted dashed."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.report import style
from fedsim.report.auc import by_run
from fedsim.report.cells import Cell, Results
from fedsim.report.curves import place_name
from fedsim.report.rows import LAM, lam_label, row_names
from fedsim.report.swept import LEAST, scale_x

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BENIGN, CORRUPTED = ("benign client", "-", "#0072B2"), ("corrupted client", "--", "#D55E00")
MAX_CLIENTS = 60
LABEL = "Client's weight α (%)"


def client_weights(results: Results) -> "Figure | None":
    """Each client's weight among all clients over rounds, in the first seed; None where no rule keeps such weights."""
    clients = _weighted(results)
    names = row_names(results.cells)
    every = [(cell, name) for cell, name in zip(results.cells, names, strict=True) if len(clients[cell.runs[0]])]
    if not every:
        return None
    shown = every[: style.MAX_PANELS]
    figure, panels = style.panels(len(shown))
    handles: dict[str, Any] = {}
    cuts = [style.cut(len(shown), len(every), "panels")]
    for panel, (cell, name) in zip(panels, shown, strict=True):
        rows = clients[cell.runs[0]]
        ids = np.unique(rows["client_id"].to_numpy())
        chosen = thinned(ids)
        cuts.append(style.cut(len(chosen), len(ids), "clients"))
        for client in chosen:
            of_client = rows.filter(pc.equal(rows["client_id"], client))
            x, alpha = of_client["round"].to_numpy(), 100 * of_client["alpha"].to_numpy()
            draw(panel, x, alpha, of_client["corrupted"][0].as_py(), handles)
        panel.set_title(f"{name}\n{place_name(cell.place, results.cells)}, seed {cell.seeds[0]}")
        style.over_rounds(panel)
    panels[0].set_ylim(bottom=0)  # shared by all, once everything is drawn
    return style.finish(figure, panels, LABEL, ordered(handles), style.note(cuts))


def _weighted(results: Results) -> list[pa.Table]:
    """The rows of clients that have a weight among all clients, of each run."""
    return by_run(results.clients.filter(results.clients["alpha"].is_valid()), len(results.runs))


def thinned(ids: np.ndarray) -> np.ndarray:
    """At most so many clients as a panel shows, evenly spaced."""
    return ids[:: -(-len(ids) // MAX_CLIENTS)]


def draw(panel: Any, x: np.ndarray, alpha: np.ndarray, corrupted: bool, handles: dict[str, Any]) -> None:
    """A client's line."""
    label, linestyle, colour = CORRUPTED if corrupted else BENIGN
    handles[label] = panel.plot(x, alpha, linestyle, color=colour, linewidth=0.9, alpha=0.8)[0]


def ordered(handles: dict[str, Any]) -> dict[str, Any]:
    """Benign first."""
    return {label: handles[label] for label, *_ in (BENIGN, CORRUPTED) if label in handles}


class Panel(NamedTuple):
    """A rule in a scenario, over lambda."""

    place: str
    row: str


class Weight(NamedTuple):
    """A client's weight after the last round."""

    alpha: float
    corrupted: bool


def weights_over_lam(results: Results) -> "Figure | None":
    """Each client's final weight over lambda, for one seed, where there are three or more lambdas; else None."""
    clients = _weighted(results)
    groups: dict[Panel, list[Cell]] = {}
    for cell, row in zip(results.cells, row_names(results.cells, without=(LAM,)), strict=True):
        if cell.lam is not None and len(clients[cell.runs[0]]):
            groups.setdefault(Panel(place_name(cell.place, results.cells), row), []).append(cell)
    runs_of = {panel: _of_first_seed(cells) for panel, cells in groups.items()}
    every = [panel for panel, runs in runs_of.items() if len(runs) >= LEAST]
    if not every:
        return None
    shown, has_several_rows = every[: style.MAX_PANELS], len({panel.row for panel in groups}) > 1
    figure, panels = style.panels(len(shown))
    handles: dict[str, Any] = {}
    cuts = [style.cut(len(shown), len(every), "panels")]
    for panel, key in zip(panels, shown, strict=True):
        lams = np.asarray(sorted(runs_of[key]))
        finals = [_final(clients[runs_of[key][lam]]) for lam in lams]
        ids = np.asarray(sorted(set.intersection(*(set(final) for final in finals))))
        cuts.append(style.cut(len(thinned(ids)), len(ids), "clients"))
        for client in thinned(ids):
            alpha = np.asarray([100 * final[client].alpha for final in finals])
            draw(panel, lams, alpha, finals[0][client].corrupted, handles)
        title = f"{key.row}\n{key.place}" if has_several_rows else key.place
        panel.set_title(f"{title}, seed {groups[key][0].seeds[0]}")
        scale_x(panel, lams.tolist(), lam_label(groups[key]), log_from=0)
    panels[0].set_ylim(bottom=0)
    return style.finish(figure, panels, "Client's final weight α (%)", ordered(handles), style.note(cuts))


def _of_first_seed(cells: list[Cell]) -> dict[float, int]:
    """By lambda, the run with the first seed of the first cell, where a cell has it."""
    seed = cells[0].seeds[0]
    return {cell.lam: cell.runs[cell.seeds.index(seed)] for cell in cells if cell.lam and seed in cell.seeds}


def _final(clients: pa.Table) -> dict[int, Weight]:
    """Each client's weight after the last round of a run."""
    last = clients.filter(pc.equal(clients["round"], pc.max(clients["round"]))).to_pydict()
    rows = zip(last["client_id"], last["alpha"], last["corrupted"], strict=True)
    return {client: Weight(alpha, corrupted) for client, alpha, corrupted in rows}
