"""Figures of the clients' weights alpha, of rules that keep one for every client: a line a client, Byzantine dashed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from polars import col

from fedsim.report import style
from fedsim.report.compare import IS_BYZANTINE
from fedsim.report.lines import MIN_VALUES, panel_title, scale_x
from fedsim.report.results import Results
from fedsim.report.rows import LAM, lam_label, row_names
from fedsim.report.settings import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BENIGN, BYZANTINE = ("benign client", "-", "#0072B2"), ("corrupted or malicious client", "--", "#D55E00")
MAX_CLIENTS = 60


class Panel(NamedTuple):
    """What a panel shows."""

    title: str
    clients: pl.DataFrame  # client_id, x, alpha, corrupted, malicious; ordered by x
    finish_x: "Callable[[Axes], None]"


def plot_client_weights(results: Results) -> "Figure | None":
    """Each client's weight among all clients over rounds, in the first seed; None if no rule keeps such weights."""
    clients, panels = _with_alpha(results), []
    for setting, name in row_names(results.settings).items():
        if setting.runs[0] in clients:
            scenario = panel_title(setting.scenario, results.settings)
            title = f"{name}\n{scenario}, seed {setting.draws[0][1]}"
            panels.append(Panel(title, clients[setting.runs[0]].with_columns(x="round"), style.over_rounds))
    return _figure(panels, "Client's weight α (%)")


def plot_weights_over_lam(results: Results) -> "Figure | None":
    """Each client's final weight over lambda, for one seed; None with fewer than three lambdas."""
    clients = _with_alpha(results)
    groups: dict[tuple[str, str], list[Setting]] = {}  # by the names of row and scenario
    for setting, row in row_names(results.settings, without=(LAM,)).items():
        if setting.lam is not None and setting.runs[0] in clients:
            groups.setdefault((row, panel_title(setting.scenario, results.settings)), []).append(setting)
    has_several_rows = len({row for row, _ in groups}) > 1
    panels = []
    for (row, scenario), settings in groups.items():
        draw, runs = settings[0].draws[0], {}
        for setting in settings:
            run = dict(zip(setting.draws, setting.runs, strict=True)).get(draw)
            if setting.lam and run in clients:
                runs[setting.lam] = run
        if len(runs) >= MIN_VALUES:
            lams, last = sorted(runs), col("round") == col("round").max()
            finals = pl.concat([clients[runs[lam]].filter(last).with_columns(x=pl.lit(lam)) for lam in lams])
            finish_x = lambda panel, lams=lams, of=settings: scale_x(panel, lams, lam_label(of), log_from=0)
            title = f"{row}\n{scenario}" if has_several_rows else scenario
            in_all = finals.filter(pl.len().over("client_id") == len(runs))
            panels.append(Panel(f"{title}, seed {draw[1]}", in_all, finish_x))
    return _figure(panels, "Client's final weight α (%)")


def _with_alpha(results: Results) -> dict[int, pl.DataFrame]:
    """By run with the first seed of a setting, the rows of clients that have a weight among all clients."""
    seeds = {setting.draws[0][1] for setting in results.settings}  # the first ones: no figure shows others
    runs = results.table.filter(col("seed").is_in(seeds))["run"].unique().to_list()
    shown = results.clients.filter(col("alpha").is_not_null(), col("run").is_in(runs))
    parts = shown.partition_by("run", as_dict=True)
    return {run: rows for (run,), rows in parts.items()}


def _figure(panels: Sequence[Panel], label: str) -> "Figure | None":
    if not panels:
        return None
    shown = panels[: style.MAX_PANELS]
    figure, axes = style.panels(len(shown))
    handles: dict[str, Any] = {}
    notes = [style.cut(len(shown), len(panels), "panels")]
    for axis, panel in zip(axes, shown, strict=True):
        ids = panel.clients["client_id"].unique().sort().to_numpy()
        drawn = thin_out(ids)
        for client in drawn:
            rows = panel.clients.filter(col("client_id") == client)
            name, linestyle, color = BYZANTINE if rows.select(IS_BYZANTINE).item(0, 0) else BENIGN
            x, alpha = rows["x"].to_numpy(), 100 * rows["alpha"].to_numpy()
            handles[name] = axis.plot(x, alpha, linestyle, color=color, linewidth=0.9, alpha=0.8)[0]
        axis.set_title(style.literal(panel.title))
        panel.finish_x(axis)
        notes.append(style.cut(len(drawn), len(ids), "clients"))
    axes[0].set_ylim(bottom=0)  # shared by all, once everything is drawn
    in_order = {name: handles[name] for name, *_ in (BENIGN, BYZANTINE) if name in handles}
    return style.finish(figure, axes, label, in_order, notes)


def thin_out(ids: np.ndarray) -> np.ndarray:
    """At most as many of the clients `ids` [N] as a panel shows, evenly spaced."""
    return ids[:: -(-len(ids) // MAX_CLIENTS)]
