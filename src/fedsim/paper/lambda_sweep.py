"""Tuning lambda (Sec. 5.5, Fig. 5): the clients' weights and the accuracy, over lambda."""

from itertools import filterfalse
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement, check_all
from fedsim.paper.figures import set_lambda_axes
from fedsim.paper.settings import accuracy_differences, final_accuracy, read_histories, settings_by_lam
from fedsim.report import style
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.report.weights import LABEL, benign_first, draw_client

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST_LAM, MAX_ZERO_LAM = 1.0, 2.5
"""In units of M: the best accuracy, and the largest lambda at which corrupted clients have no weight."""
BEST_LAM_FACTOR = 2.0
"""Factor within which a lambda counts as the best one."""


class LambdaWeights(NamedTuple):
    """A lambda of the sweep with the clients' weights. S seeds, N clients."""

    lam: float
    """In units of M."""
    setting: Setting
    alpha: np.ndarray
    """[S, N] after the last round."""
    corrupted: np.ndarray
    """[S, N]"""

    @property
    def accuracy(self) -> float:
        """After the last round, in percent."""
        return final_accuracy(self.setting)

    @property
    def excludes_corrupted(self) -> np.ndarray:
        """Whether no corrupted client has weight, [S]."""
        return np.all(~self.corrupted | (self.alpha == 0), axis=1)

    @property
    def num_weighted(self) -> np.ndarray:
        """Number of clients with weight, [S]."""
        return (self.alpha > 0).sum(axis=1)

    @property
    def includes_benign(self) -> np.ndarray:
        """Whether all benign clients have weight, [S]."""
        return np.all(self.corrupted | (self.alpha > 0), axis=1)


def sweep_lambda(results: Results) -> list[LambdaWeights]:
    """ARFL over lambda, in ascending order; settings with other seeds than the first one's are left out."""
    sweep: list[LambdaWeights] = []
    for lam, setting in settings_by_lam(results).items():
        seeds = read_histories(results, setting)
        if len(seeds) == len(setting.runs) and (not sweep or setting.seeds == sweep[0].setting.seeds):
            alpha, corrupted = np.stack([s.alpha for s in seeds]), np.stack([s.corrupted for s in seeds])
            sweep.append(LambdaWeights(lam, setting, alpha[:, -1], corrupted))
    return sweep


def claims(results: Results) -> list[Claim]:
    """Sec. 5.5 on the weights and on the best lambda."""
    sweep = sweep_lambda(results)
    is_sweep = len(sweep) > 1 and any(point.corrupted.any() for point in sweep)
    has_accuracy = not np.isnan([point.accuracy for point in sweep]).all()
    return check_all(STATEMENTS, sweep if is_sweep and has_accuracy else None)


def find_best(sweep: list[LambdaWeights]) -> LambdaWeights:
    """The lambda with the highest accuracy."""
    return sweep[int(np.nanargmax([point.accuracy for point in sweep]))]


def _single_client(sweep: list[LambdaWeights]) -> Measurement:
    first = sweep[0]
    return Measurement(f"{_format_counts(first.num_weighted)} at λ = {first.lam:g} M", first.num_weighted == 1)


def _zero_up_to(sweep: list[LambdaWeights]) -> Measurement:
    excluded = np.logical_and.accumulate([point.excludes_corrupted for point in sweep])  # at this λ and below [L, S]
    lams = np.asarray([point.lam for point in sweep])
    up_to = [float(np.where(seed, lams, 0.0).max()) for seed in excluded.T]
    known, never = [lam for lam in up_to if lam], f"not at the smallest λ in {up_to.count(0.0)} of {len(up_to)} runs"
    text = "; ".join([f"λ ≤ {_format_lams(known)} M"] * bool(known) + [never] * (0.0 in up_to))
    checked = np.flatnonzero(lams <= MAX_ZERO_LAM)
    return Measurement(text, excluded[checked[-1]] if len(checked) else None)


def _sparse(sweep: list[LambdaWeights]) -> Measurement:
    is_sparse = np.asarray([point.excludes_corrupted & (point.num_weighted > 1) for point in sweep])  # [L, S]
    lams = [point.lam for point, sparse in zip(sweep, is_sparse, strict=True) if sparse.any()]
    text = f"λ = {', '.join(f'{lam:g}' for lam in lams)} M" if lams else "at no λ"
    return Measurement(text, is_sparse.any(axis=0))


def _every_client(sweep: list[LambdaWeights]) -> Measurement:
    last = sweep[-1]
    return Measurement(f"{_format_counts(last.num_weighted)} of {last.alpha.shape[1]}", (last.alpha > 0).all(axis=1))


def _best_inside(sweep: list[LambdaWeights]) -> Measurement | None:
    low, *inner, high = sweep
    if not inner:
        return None
    best, end = find_best(inner), find_best([low, high])
    text = f"{best.accuracy:.2f} % at {best.lam:g} M; {low.accuracy:.2f} % and {high.accuracy:.2f} % at the ends"
    return Measurement(text, accuracy_differences(best.setting, end.setting), "points")


def _best_near_paper(sweep: list[LambdaWeights]) -> Measurement | None:
    is_near = lambda point: BEST_LAM / BEST_LAM_FACTOR <= point.lam <= BEST_LAM * BEST_LAM_FACTOR
    near, far = list(filter(is_near, sweep)), list(filterfalse(is_near, sweep))
    if not near or not far:
        return None
    inside, outside = find_best(near), find_best(far)
    text = f"{inside.accuracy:.2f} % at {inside.lam:g} M, {outside.accuracy:.2f} % at {outside.lam:g} M"
    return Measurement(text, accuracy_differences(inside.setting, outside.setting), "points")


def _best_weights_benign(sweep: list[LambdaWeights]) -> Measurement:
    best = find_best(sweep)
    num_benign = int((~best.corrupted).sum(axis=1).max())
    text = f"{best.num_weighted.max()} clients with weight, {num_benign} benign"
    return Measurement(text, best.excludes_corrupted & best.includes_benign)


STATEMENTS = (
    Statement("At the smallest λ a single client has all the weight", "Sec. 5.5: one client", _single_client),
    Statement(f"Corrupted clients have zero weight for every λ up to {MAX_ZERO_LAM:g} M", "λ ≤ 2.5 M", _zero_up_to),
    Statement(
        "In between, several clients have weight and no corrupted one has", "Sec. 5.5: sparse solutions", _sparse
    ),
    Statement("At the largest λ every client has weight", "Sec. 5.5: all", _every_client),
    Statement("The accuracy is highest inside the range and lower at both ends", "Fig. 5b", _best_inside),
    Statement(
        f"The best λ is M within a factor of {BEST_LAM_FACTOR:g} (compared with the best λ outside)",
        "λ = M",
        _best_near_paper,
    ),
    Statement(
        "At the best λ all benign clients have weight and no corrupted one has",
        "Sec. 5.5: the case at λ = M",
        _best_weights_benign,
    ),
)


def _format_lams(lams: list[float]) -> str:
    """For example "1", or "0.32 to 1" if seeds differ."""
    return " to ".join(f"{lam:g}" for lam in sorted({min(lams), max(lams)}))


def _format_counts(values: np.ndarray) -> str:
    """For example "3", or "3 to 5" if seeds differ."""
    return f"{values.min()}" if values.min() == values.max() else f"{values.min()} to {values.max()}"


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 5: weights (of the first seed) and accuracy over lambda."""
    sweep = sweep_lambda(results)
    if len(sweep) < 2:
        return {}
    figure, (weights, accuracy) = style.panels(2, share_y=False)
    lams = np.asarray([point.lam for point in sweep])
    handles: dict[str, Any] = {}
    for client, corrupted in enumerate(sweep[0].corrupted[0]):
        alpha = np.asarray([100 * point.alpha[0, client] for point in sweep])
        draw_client(weights, lams, alpha, bool(corrupted), handles)
    weights.set_ylabel(LABEL)
    style.with_band(accuracy, lams, [100 * point.setting.accuracy[:, -1] for point in sweep], style.line(0))
    accuracy.set_ylabel("Test accuracy (%)")
    set_lambda_axes((weights, accuracy))
    return {"lambda": style.finish(figure, [], "", benign_first(handles))}
