"""Figures of the clients' weights alpha, of rules that keep one for every client: a line a client, corrupted dashed."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.report import style
from fedsim.report.auc import by_run
from fedsim.report.cells import Cell, Results
from fedsim.report.curves import place_name
from fedsim.report.names import row_names
from fedsim.report.swept import LEAST, scale_x

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
        style.over_rounds(panel)
    panels[0].set_ylim(bottom=0)  # shared by all, once everything is drawn
    return style.finish(figure, panels, LABEL, ordered(handles), joined(cuts))


def draw(panel: Any, x: np.ndarray, alpha: np.ndarray, corrupted: bool, handles: dict[str, Any]) -> None:
    """A client's line."""
    label, linestyle, colour = CORRUPTED if corrupted else BENIGN
    handles[label] = panel.plot(x, alpha, linestyle, color=colour, linewidth=0.9, alpha=0.8)[0]


def ordered(handles: dict[str, Any]) -> dict[str, Any]:
    """Benign first."""
    return {label: handles[label] for label, *_ in (BENIGN, CORRUPTED) if label in handles}


def weights_over_lam(results: Results) -> "Figure | None":
    """Each client's final weight over lambda, for one seed, where there are three or more lambdas; else None."""
    clients = by_run(results.clients.filter(results.clients["alpha"].is_valid()), len(results.runs))
    names = row_names(results.cells, without=("arfl.lam",))
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell, name in zip(results.cells, names, strict=True):
        if cell.lam is not None and len(clients[cell.runs[0]]):
            title = place_name((cell.data, (cell.corruption, cell.fraction)), results.cells)
            groups.setdefault((title, name), []).append(cell)
    several = len({name for _, name in groups}) > 1
    titled = {f"{name}\n{title}" if several else title: cells for (title, name), cells in groups.items()}
    every = {title: runs for title, cells in titled.items() if len(runs := _of_one_seed(cells)) >= LEAST}
    if not every:
        return None
    shown = dict(list(every.items())[: style.MAX_PANELS])
    figure, panels = style.panels(len(shown))
    handles: dict[str, Any] = {}
    cuts = [style.cut(len(shown), len(every), "panels")]
    for panel, (title, runs) in zip(panels, shown.items(), strict=True):
        final = {lam: _final(clients[run]) for lam, (run, _) in sorted(runs.items())}
        ids = sorted(set.intersection(*(set(alpha) for alpha in final.values())))
        chosen = ids[:: -(-len(ids) // MAX_CLIENTS)]
        cuts.append(style.cut(len(chosen), len(ids), "clients"))
        for client in chosen:
            alpha = np.asarray([100 * of_client[client][0] for of_client in final.values()])
            draw(panel, np.asarray(list(final)), alpha, next(iter(final.values()))[client][1], handles)
        seed = next(seed for _, seed in runs.values())
        panel.set_title(f"{title}, seed {seed}")
        scale_x(panel, list(final), "arfl.lam")
    panels[0].set_ylim(bottom=0)
    return style.finish(figure, panels, "Client's final weight α (%)", ordered(handles), joined(cuts))


def _of_one_seed(cells: list[Cell]) -> dict[float, tuple[int, int]]:
    """{lambda: (run, seed)} of the first seed of the first cell, where a cell has it."""
    seed = cells[0].seeds[0]
    return {cell.lam: (cell.runs[cell.seeds.index(seed)], seed) for cell in cells if cell.lam and seed in cell.seeds}


def _final(clients: pa.Table) -> dict[int, tuple[float, bool]]:
    """{client: (alpha, corrupted)} of the last round of a run."""
    last = clients.filter(pc.equal(clients["round"], pc.max(clients["round"]))).to_pydict()
    return dict(zip(last["client_id"], zip(last["alpha"], last["corrupted"], strict=True), strict=True))


def joined(cuts: list[str]) -> str:
    """What is not shown, each thing once."""
    return "; ".join(dict.fromkeys(filter(None, cuts)))
