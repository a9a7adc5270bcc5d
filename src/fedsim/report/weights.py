"""Figures of the clients' weights alpha, of rules that keep one for every client: a line a client, corrupted dashed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from polars import col

from fedsim.report import style
from fedsim.report.lines import MIN_VALUES, panel_title, scale_x
from fedsim.report.results import Results
from fedsim.report.rows import LAM, lam_label, row_names
from fedsim.report.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BENIGN, CORRUPTED = ("benign client", "-", "#0072B2"), ("corrupted client", "--", "#D55E00")
MAX_CLIENTS = 60
Item = TypeVar("Item")
LABEL = "Client's weight α (%)"


def plot_client_weights(results: Results) -> "Figure | None":
    """Each client's weight among all clients over rounds, in the first seed; None if no rule keeps such weights."""
    clients = _with_alpha(results)
    every = [(setting, name) for setting, name in row_names(results.settings).items() if setting.runs[0] in clients]
    if not every:
        return None

    def draw(panel: Any, item: tuple[Setting, str], handles: dict[str, Any]) -> np.ndarray:
        setting, name = item
        rows = clients[setting.runs[0]]
        ids = rows["client_id"].unique().sort().to_numpy()
        for client in thin_out(ids):
            of_client = rows.filter(col("client_id") == client)
            x, alpha = of_client["round"].to_numpy(), 100 * of_client["alpha"].to_numpy()
            draw_client(panel, x, alpha, of_client["corrupted"][0], handles)
        title = panel_title(setting.data_scenario, results.settings)
        panel.set_title(f"{name}\n{title}, seed {setting.draws[0][1]}")
        style.over_rounds(panel)
        return ids

    return _figure(every, LABEL, draw)


def _figure(items: Sequence[Item], label: str, draw: Callable[[Any, Item, dict[str, Any]], np.ndarray]) -> "Figure":
    """A panel for each of `items`: `draw` thins out and draws its clients, and returns the ids of all."""
    shown = items[: style.MAX_PANELS]
    figure, panels = style.panels(len(shown))
    handles: dict[str, Any] = {}
    cuts = [style.cut(len(shown), len(items), "panels")]
    for panel, item in zip(panels, shown, strict=True):
        ids = draw(panel, item, handles)
        cuts.append(style.cut(len(thin_out(ids)), len(ids), "clients"))
    panels[0].set_ylim(bottom=0)  # shared by all, once everything is drawn
    return style.finish(figure, panels, label, benign_first(handles), style.note(cuts))


def _with_alpha(results: Results) -> dict[int, pl.DataFrame]:
    """By run, the rows of clients that have a weight among all clients."""
    parts = results.clients.filter(col("alpha").is_not_null()).partition_by("run", as_dict=True)
    return {run: rows for (run,), rows in parts.items()}


def thin_out(ids: np.ndarray) -> np.ndarray:
    """At most as many of the clients `ids` [N] as a panel shows, evenly spaced."""
    return ids[:: -(-len(ids) // MAX_CLIENTS)]


def draw_client(panel: Any, x: np.ndarray, alpha: np.ndarray, corrupted: bool, handles: dict[str, Any]) -> None:
    """Draws a client's line through `x` [T] and `alpha` [T], and adds it to the legend's `handles`."""
    label, linestyle, color = CORRUPTED if corrupted else BENIGN
    handles[label] = panel.plot(x, alpha, linestyle, color=color, linewidth=0.9, alpha=0.8)[0]


def benign_first(handles: dict[str, Any]) -> dict[str, Any]:
    """The legend's handles in their order."""
    return {label: handles[label] for label, *_ in (BENIGN, CORRUPTED) if label in handles}


def plot_weights_over_lam(results: Results) -> "Figure | None":
    """Each client's final weight over lambda, for one seed; None with fewer than three lambdas."""
    clients = _with_alpha(results)
    groups: dict[tuple[str, str], list[Setting]] = {}  # by the names of scenario and row
    for setting, row in row_names(results.settings, without=(LAM,)).items():
        if setting.lam is not None and setting.runs[0] in clients:
            groups.setdefault((panel_title(setting.data_scenario, results.settings), row), []).append(setting)
    runs_of = {key: _runs_by_lam(settings) for key, settings in groups.items()}
    every = [key for key, runs in runs_of.items() if len(runs) >= MIN_VALUES]
    if not every:
        return None
    has_several_rows = len({row for _, row in groups}) > 1

    def draw(panel: Any, key: tuple[str, str], handles: dict[str, Any]) -> np.ndarray:
        lams = np.asarray(sorted(runs_of[key]))
        finals = [_last_rows(clients[runs_of[key][lam]]) for lam in lams]
        ids = np.asarray(sorted(set.intersection(*map(set, finals))))
        for client in thin_out(ids):
            alpha = np.asarray([100 * final[client]["alpha"] for final in finals])
            draw_client(panel, lams, alpha, finals[0][client]["corrupted"], handles)
        scenario, row = key
        title = f"{row}\n{scenario}" if has_several_rows else scenario
        panel.set_title(f"{title}, seed {groups[key][0].draws[0][1]}")
        scale_x(panel, lams.tolist(), lam_label(groups[key]), log_from=0)
        return ids

    return _figure(every, "Client's final weight α (%)", draw)


def _runs_by_lam(settings: list[Setting]) -> dict[float, int]:
    """By lambda, the run with the first seed of the first setting, of settings that have it."""
    seed = settings[0].draws[0][1]
    seeds = {setting: [seed for _, seed in setting.draws] for setting in settings}
    return {s.lam: s.runs[seeds[s].index(seed)] for s in settings if s.lam and seed in seeds[s]}


def _last_rows(clients: pl.DataFrame) -> dict[int, dict[str, Any]]:
    """Each client's row after the last round of a run."""
    last = clients.filter(col("round") == col("round").max())
    return {row["client_id"]: row for row in last.iter_rows(named=True)}
