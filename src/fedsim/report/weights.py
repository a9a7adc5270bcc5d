"""Figures of the clients' weights alpha, of rules that keep one for every client: a line a client, corrupted dashed."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from fedsim.report import style
from fedsim.report.auc import by_run
from fedsim.report.cells import Results
from fedsim.report.curves import place_name
from fedsim.report.names import row_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BENIGN, CORRUPTED = ("benign client", "-", "#0072B2"), ("corrupted client", "--", "#D55E00")
MAX_CLIENTS = 60
LABEL = "Client's weight α (%)"


def client_weights(results: Results) -> "Figure | None":
    """Each client's weight among all clients over rounds, in the first seed; None where no rule keeps such weights."""
    clients = by_run(results.clients.filter(results.clients["alpha"].is_valid()), len(results.runs))
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
        chosen = ids[:: -(-len(ids) // MAX_CLIENTS)]
        cuts.append(style.cut(len(chosen), len(ids), "clients"))
        for client in chosen:
            of_client = rows.filter(pc.equal(rows["client_id"], client))
            x, alpha = of_client["round"].to_numpy(), 100 * of_client["alpha"].to_numpy()
            draw(panel, x, alpha, of_client["corrupted"][0].as_py(), handles)
        scenario = place_name((cell.data, (cell.corruption, cell.fraction)), results.cells)
        panel.set_title(f"{name}\n{scenario}, seed {cell.seeds[0]}")
        panel.set_xlabel("Round")
    panels[0].set_ylim(bottom=0)  # shared by all, once everything is drawn
    return style.finish(figure, panels, LABEL, ordered(handles), "; ".join(dict.fromkeys(filter(None, cuts))))


def draw(panel: Any, x: np.ndarray, alpha: np.ndarray, corrupted: bool, handles: dict[str, Any]) -> None:
    """A client's line."""
    label, linestyle, colour = CORRUPTED if corrupted else BENIGN
    handles[label] = panel.plot(x, alpha, linestyle, color=colour, linewidth=0.9, alpha=0.8)[0]


def ordered(handles: dict[str, Any]) -> dict[str, Any]:
    """Benign first."""
    return {label: handles[label] for label, *_ in (BENIGN, CORRUPTED) if label in handles}
