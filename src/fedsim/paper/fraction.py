"""The fraction of corrupted clients (Sec. 5.3, Fig. 3; the sentence on FEMNIST in Sec. 5.2)."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.plots import of_rule, with_band
from fedsim.paper.published import cell as published_cell
from fedsim.report import style
from fedsim.report.cells import Cell, Results
from fedsim.report.names import aggregator_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LITTLE = 5.0  # percentage points: no great change; Table 2 has 3.8 between clean and 50 % shuffled
FEMNIST_FRACTION, FEMNIST_ACCURACY = 0.7, 79.0  # Sec. 5.2


def over_fraction(results: Results, rule: str) -> dict[float, Cell]:
    """The cells of a rule by the fraction of shuffled clients; 0 is clean data."""
    wanted = {"server.aggregator": rule}
    clean = select.one(results, wanted | {"corruption.kind": "none", "attack.kind": "none"})
    found = select.along(results, "corruption.fraction", wanted | {"corruption.kind": "shuffling"})
    return ({0.0: clean} if clean else {}) | found


def claims(results: Results) -> list[Claim]:
    """ARFL's accuracy hardly changes until 60 % of the clients are corrupted, and falls from there."""
    ours = {share: select.final(cell) for share, cell in over_fraction(results, "arfl").items()}
    fedavg = {share: select.final(cell) for share, cell in over_fraction(results, "fedavg").items()}
    little = "From 0 to {} % corrupted, ARFL loses at most {:g} points"
    return [
        _drop(ours, 0.0, 0.5, little.format(50, LITTLE), "3.76 (Table 2; clean with λ = 10^4 M)", False),
        _drop(ours, 0.0, 0.6, little.format(60, LITTLE), "Sec. 5.3: no significant change", False),
        _drop(ours, 0.6, 0.9, f"From 60 to 90 %, it loses more than {LITTLE:g} points", "Fig. 3", True),
        _gap(ours, fedavg),
    ]


def _drop(accuracy: dict[float, float], start: float, end: float, text: str, published: str, large: bool) -> Claim:
    if start not in accuracy or end not in accuracy:
        return not_run(text, published)
    drop = accuracy[start] - accuracy[end]
    told = f"{drop:.2f} points: {accuracy[start]:.2f} % to {accuracy[end]:.2f} %"
    return claim(text, published, told, drop > LITTLE if large else drop <= LITTLE)


def _gap(ours: dict[float, float], fedavg: dict[float, float]) -> Claim:
    text = "With 50 % corrupted, ARFL is above FedAvg", "+22.66 points (Table 2)"
    if 0.5 not in ours or 0.5 not in fedavg:
        return not_run(*text)
    gap = ours[0.5] - fedavg[0.5]
    return claim(*text, f"{gap:+.2f} points", gap > 0)


def femnist_claims(results: Results) -> list[Claim]:
    """ARFL stays above 79 % on FEMNIST with 70 % corrupted (the paper does not say how: shuffled here)."""
    text = "ARFL's accuracy with 70 % of the clients shuffled is above 79 %", "above 79 %"
    cell = over_fraction(results, "arfl").get(FEMNIST_FRACTION)
    if cell is None:
        return [not_run(*text)]
    accuracy = select.final(cell)
    made = [claim(*text, f"{accuracy:.2f} %", accuracy > FEMNIST_ACCURACY)]
    others = {
        f"{aggregator_name(rule)}, {100 * share:g} %": select.final(cell)
        for rule in ("arfl", "fedavg")
        for share, cell in over_fraction(results, rule).items()
        if (rule, share) != ("arfl", FEMNIST_FRACTION)
    }
    told = ", ".join(f"{name}: {value:.2f} %" for name, value in others.items())
    return [*made, claim("Beside it", "not given", told, None)] if others else made


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 3 for ARFL, with FedAvg beside it, and what Table 2 has of CIFAR-10."""
    found = {rule: over_fraction(results, rule) for rule in ("arfl", "fedavg")}
    found = {rule: cells for rule, cells in found.items() if len(cells) > 1}
    if not found:
        return {}
    figure, (panel,) = style.panels(1)
    figure.set_size_inches(5.2, 3.8)
    handles: dict[str, Any] = {}
    for rule, cells in found.items():
        look, name = of_rule(rule), aggregator_name(rule)
        shares = 100 * np.asarray(list(cells))
        values = [100 * cell.accuracy[:, -1] for cell in cells.values()]
        handles[name] = with_band(panel, shares, values, look | {"marker": "o"})
        for share, cell in cells.items():
            kind = "shuffling" if share else "none"
            if (published := published_cell(cell.data, rule, kind, share)) is not None:
                x, y, spread = 100 * share, published.mean, published.std
                look_of = {"color": look["color"], "marker": "D", "linestyle": "", "markerfacecolor": "white"}
                handles[f"{name}, published"] = panel.errorbar(x, y, spread, capsize=3, elinewidth=0.8, **look_of)
    panel.set_xlabel("Corrupted clients (%)")
    panel.set_ylabel("Test accuracy (%)")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return {"fraction": figure}
