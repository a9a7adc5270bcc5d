"""What the paper (arXiv 2101.05880) says about the clients' weights and models: Sec. 3.3, 4, 5.5, 5.6, 6.

`report.claims` of the configurations names these functions; `figures` are those that no other report draws.
"""

from typing import Any, NamedTuple

import numpy as np
from polars import col

from fedsim import Claim
from fedsim.datasets.separable_2d import NORMAL
from fedsim.errors import RunFolderError
from fedsim.report import style
from fedsim.report.names import aggregator_name
from fedsim.report.results import Results
from fedsim.report.settings import Setting

BEST_LAM, MAX_ZERO_LAM = 1.0, 2.5  # in units of M: the best, and the largest at which corrupted clients have no weight
BEST_LAM_FACTOR = 2.0  # within which a lambda counts as the best one
MIN_EXAMPLES = 10  # that the hardest client must have
TOLERANCE = 1e-4  # of float32 weights; weights of few examples at a large lambda are the least precise
MAX_ANGLE = 10.0  # degrees between a learned line and the true one
KINDS = {"none": "Clean", "shift": "Features of {} shifted", "flipping": "Labels of {} all one class"}


class History(NamedTuple):
    """The clients of a run of a rule that keeps weights of all clients. T evaluated rounds, N clients."""

    rounds: np.ndarray  # [T]
    alpha: np.ndarray  # [T, N] weight among all clients after the round
    losses: np.ndarray  # [T, N] last reported training loss, nats; NaN: none yet, or perhaps not recorded
    accuracy: np.ndarray  # [T, N] on the client's own test examples, 0 to 1; NaN: has none
    num_examples: np.ndarray  # [N]
    corrupted: np.ndarray  # [N] bool

    @property
    def fedavg(self) -> np.ndarray:
        """FedAvg's weights m_i / M, [N]."""
        return self.num_examples / self.num_examples.sum()

    @property
    def benign_fedavg(self) -> np.ndarray:
        """The weights m_i / M_B of FedAvg with benign clients only, [N] (Sec. 5.6)."""
        num_examples = np.where(self.corrupted, 0, self.num_examples)
        return num_examples / num_examples.sum()


def read_histories(results: Results, setting: Setting | None) -> list[History]:
    """Of the setting's runs, without those whose clients were not recorded."""
    every = [_read_history(results, run) for run in setting.runs] if setting else []
    return [history for history in every if history is not None]


def _read_history(results: Results, run: int) -> History | None:
    rows = results.clients.filter(col("run") == run).sort("round", "client_id")
    if results.runs[run]["record.clients"] == "all":  # else losses reported in between are unknown
        rows = rows.with_columns(col("loss").forward_fill().over("client_id"))
    rows = rows.filter(col("alpha").is_not_null())
    if rows.is_empty():
        return None
    rounds = rows["round"].unique().sort().to_numpy()
    array = lambda name: rows[name].to_numpy().reshape(len(rounds), -1)
    numbers = (array(name).astype(float) for name in ("alpha", "loss", "test_accuracy"))
    return History(rounds, *numbers, array("num_examples")[-1], array("corrupted")[-1])


def _not_run(texts: dict[str, str]) -> list[Claim]:
    return [Claim(text, published=published) for text, published in texts.items()]


def _accuracy(results: Results, setting: Setting) -> float:
    value = results.number(setting)["mean"]
    return float(np.nan) if value is None else float(value)


def _arfl_over_lambda(results: Results) -> dict[float, Setting]:
    """ARFL's settings by lambda in units of M, in ascending order."""
    return {s.lam: s for s in sorted(results.settings, key=lambda s: s.lam or 0) if s.aggregator == "arfl" and s.lam}


# Tuning lambda (Sec. 5.5, Fig. 5)


def _sweep(results: Results) -> dict[float, list[History]]:
    """By lambda, the clients of ARFL's runs; settings with other seeds than the first one's are left out."""
    settings = _arfl_over_lambda(results)
    draws = next((setting.draws for setting in settings.values()), ())
    every = {lam: read_histories(results, s) for lam, s in settings.items() if s.draws == draws}
    return {lam: runs for lam, runs in every.items() if len(runs) == len(draws)}


def _range(values: Any) -> str:
    """For example "1", or "0.32 to 1" if runs differ."""
    return " to ".join(f"{value:g}" for value in sorted({min(values), max(values)}))


def lambda_(results: Results) -> list[Claim]:
    """Sec. 5.5 on the weights and on the best lambda. L lambdas, S runs, N clients."""
    near_best = f"The best λ is M within a factor of {BEST_LAM_FACTOR:g} (compared with the best λ outside)"
    texts = {
        "At the smallest λ a single client has all the weight": "Sec. 5.5: one client",
        f"Corrupted clients have zero weight for every λ up to {MAX_ZERO_LAM:g} M": "λ ≤ 2.5 M",
        "In between, several clients have weight and no corrupted one has": "Sec. 5.5: sparse solutions",
        "At the largest λ every client has weight": "Sec. 5.5: all",
        "The accuracy is highest inside the range and lower at both ends": "Fig. 5b",
        near_best: "λ = M",
        "At the best λ all benign clients have weight and no corrupted one has": "Sec. 5.5: the case at λ = M",
    }
    sweep, settings = _sweep(results), _arfl_over_lambda(results)
    accuracy = {lam: _accuracy(results, settings[lam]) for lam in sweep}
    has_corrupted = any(history.corrupted.any() for runs in sweep.values() for history in runs)
    if len(sweep) < 2 or not has_corrupted or np.isnan(list(accuracy.values())).all():
        return _not_run(texts)
    lams = list(sweep)
    alpha = np.asarray([[history.alpha[-1] for history in runs] for runs in sweep.values()])  # [L, S, N]
    corrupted = np.asarray([history.corrupted for history in sweep[lams[0]]])  # [S, N]
    excludes, includes = (~corrupted | (alpha == 0)).all(axis=2), (corrupted | (alpha > 0)).all(axis=2)  # [L, S]
    num_weighted = (alpha > 0).sum(axis=2)  # [L, S]
    excluded = np.logical_and.accumulate(excludes)  # at this λ and below
    up_to = [float(np.where(run, lams, 0.0).max()) for run in excluded.T]
    known, never = [lam for lam in up_to if lam], f"not at the smallest λ in {up_to.count(0.0)} of {len(up_to)} runs"
    is_sparse = excludes & (num_weighted > 1)
    sparse = ", ".join(f"{lam:g}" for lam, of_runs in zip(lams, is_sparse, strict=True) if of_runs.any())
    best = lambda lams: max(lams, key=lambda lam: np.nan_to_num(accuracy[lam], nan=-np.inf))
    at = lambda lam: f"{accuracy[lam]:.2f} % at {lam:g} M"
    top, checked = lams.index(best(lams)), [place for place, lam in enumerate(lams) if lam <= MAX_ZERO_LAM]
    num_benign = (~corrupted).sum(axis=1).max()
    measured = [
        f"{_range(num_weighted[0])} at λ = {lams[0]:g} M",
        "; ".join([f"λ ≤ {_range(known)} M"] * bool(known) + [never] * (0.0 in up_to)),
        f"λ = {sparse} M" if sparse else "at no λ",
        f"{_range(num_weighted[-1])} of {alpha.shape[2]}",
        f"{num_weighted[top].max()} clients with weight, {num_benign} benign",
    ]
    of_runs = [num_weighted[0] == 1, excluded[checked[-1]] if checked else None, is_sparse.any(axis=0)]
    of_runs += [(alpha[-1] > 0).all(axis=1), excludes[top] & includes[top]]
    first = settings[lams[0]]
    numbers = [None if values is None else results.per_unit(first, values) for values in of_runs]
    pairs: Any = [(numbers[place], measured[place], "", "yes or no") for place in range(5)]
    near = [lam for lam in lams if BEST_LAM / BEST_LAM_FACTOR <= lam <= BEST_LAM * BEST_LAM_FACTOR]
    ends = f"{accuracy[lams[0]]:.2f} % and {accuracy[lams[-1]]:.2f} % at the ends"
    compared = (lams[1:-1], [lams[0], lams[-1]], "; " + ends), (near, [lam for lam in lams if lam not in near], "")
    for place, (inside, outside, what) in enumerate(compared, start=4):
        values, shown = None, ""
        if inside and outside:
            values = results.difference(settings[best(inside)], settings[best(outside)])
            shown = at(best(inside)) + (what or f", {at(best(outside))}")
        pairs.insert(place, (values, shown, "points", "direction"))
    rows = zip(texts.items(), pairs, strict=True)
    return [Claim(text, values, given, shown, unit, kind) for (text, given), (values, shown, unit, kind) in rows]


# Auto-weighting (Sec. 5.6, Fig. 6 and 7)


def _corrupted_arfl(results: Results) -> tuple[Setting | None, list[History]]:
    arfl = [s for s in results.settings if s.aggregator == "arfl" and s.corruption != "none"]
    histories = read_histories(results, arfl[0]) if arfl else []
    return (arfl[0], histories) if histories and all(h.corrupted.any() for h in histories) else (None, [])


def autoweight(results: Results) -> list[Claim]:
    """Sec. 5.6 on the weights; the paper does not give the accuracies."""
    setting, histories = _corrupted_arfl(results)
    texts = {
        "The corrupted clients' weights become zero and stay zero": "after 350 of 1,000 rounds",
        "The final weights are closer to benign FedAvg's than to FedAvg's (total variation)": (
            "Fig. 7: similar to benign"
        ),
        "All benign clients have weight at the end": "Sec. 5.5, at λ = M",
    }
    claims = _not_run(texts)
    if setting:
        since = [_zero_since(history) for history in histories]
        known = sorted({first for first in since if first is not None})
        rounds = " to ".join(f"{first:,}" for first in dict.fromkeys(known[:1] + known[-1:]))
        after = f"after {rounds} of {histories[0].rounds[-1]:,} rounds" if known else ""
        never = f"not in {since.count(None)} of {len(since)} runs" if None in since else ""
        distance = lambda a, b: np.abs(a - b).sum() / 2  # total variation: 0 if equal, 1 if disjoint
        benign = np.asarray([distance(h.alpha[-1], h.benign_fedavg) for h in histories])
        fedavg = np.asarray([distance(h.alpha[-1], h.fedavg) for h in histories])
        counts = [(int((h.alpha[-1] > 0)[~h.corrupted].sum()), int((~h.corrupted).sum())) for h in histories]
        measured = (
            "; ".join(filter(None, [after, never])),
            f"{benign.mean():.3f} and {fedavg.mean():.3f}",
            ", ".join(f"{weighted} of {all_}" for weighted, all_ in dict.fromkeys(counts)),
        )
        of_runs = [first is not None for first in since], fedavg - benign, [a == b for a, b in counts]
        kinds: Any = "yes or no", "direction", "yes or no"
        claims = [
            Claim(text, results.per_unit(setting, values), published, shown, kind=kind)
            for (text, published), values, shown, kind in zip(texts.items(), of_runs, measured, kinds, strict=True)
        ]
    compared = (("arfl", "shuffling"), ("fedavg", "exclude"), ("fedavg", "shuffling"))
    settings = [results.find(server__aggregator=rule, corruption__kind=kind) for rule, kind in compared]
    shown = ", ".join(f"{_accuracy(results, s):.2f} %" for s in settings if s) if all(settings) else ""
    text = "Accuracy of ARFL, of FedAvg with benign clients only, and of FedAvg"
    return [*claims, Claim(text, published="not given", measured=shown)]


def _zero_since(history: History) -> int | None:
    """The first evaluated round after which no corrupted client has weight; None if some have weight at the end."""
    weighted = np.flatnonzero((history.alpha[:, history.corrupted] > 0).any(axis=1))
    first = weighted[-1] + 1 if len(weighted) else 0
    return int(history.rounds[first]) if first < len(history.rounds) else None


# Fairness (Sec. 6): the benign client that is hardest to learn, chosen for each seed at the largest lambda


def fairness(results: Results) -> list[Claim]:
    """A client that is hard to learn has less weight at a small lambda."""
    texts = (
        ("At the smallest λ the hardest benign client has less weight than the mean benign client", "Sec. 6"),
        ("It has less weight at the smallest λ than at the largest", "Sec. 6"),
        ("Its accuracy is lower at the smallest λ than at the largest", "not given"),
    )
    every, settings = _sweep(results), _arfl_over_lambda(results)
    hardest = [_find_hardest(history) for history in every[max(every)]] if len(every) > 1 else [None]
    if None in hardest:
        return [Claim(text, published=published) for text, published in texts]
    low, high = min(every), max(every)
    at_low, at_high = (_of_clients(every[lam], hardest) for lam in (low, high))
    (weight, mean_weight, accuracy), (high_weight, _, high_accuracy) = at_low, at_high
    relative, lams = "of FedAvg's", f"λ = {low:g} M and {high:g} M"
    measured = (
        f"{weight.mean():.2f} and {mean_weight.mean():.2f} of FedAvg's, λ = {low:g} M",
        f"{weight.mean():.2f} and {high_weight.mean():.2f} of FedAvg's, {lams}",
        f"{100 * accuracy.mean():.1f} % and {100 * high_accuracy.mean():.1f} %",
    )
    values = mean_weight - weight, high_weight - weight, 100 * (high_accuracy - accuracy)
    numbers = [results.per_unit(settings[low], of_runs) for of_runs in values]
    units = relative, relative, "points"
    every_claim = zip(texts, numbers, measured, units, strict=True)
    return [Claim(text, number, published, shown, unit) for (text, published), number, shown, unit in every_claim]


def _find_hardest(history: History) -> int | None:
    """The benign client with the lowest final accuracy on its own test examples, of those with enough examples."""
    is_eligible = ~history.corrupted & (history.num_examples >= MIN_EXAMPLES) & ~np.isnan(history.accuracy[-1])
    eligible = np.flatnonzero(is_eligible)
    return int(eligible[np.argmin(history.accuracy[-1][eligible])]) if len(eligible) else None


def _of_clients(histories: list[History], clients: list[Any]) -> np.ndarray:
    """[3, S] of a client: its final weight relative to FedAvg's, the mean benign client's, its accuracy."""
    columns = []
    for history, client in zip(histories, clients, strict=True):
        has_data = history.num_examples > 0
        weight = np.divide(history.alpha[-1], history.fedavg, out=np.zeros(len(has_data)), where=has_data)
        mean = weight[~history.corrupted & has_data].mean()
        columns.append((weight[client], mean, history.accuracy[-1][client]))
    return np.asarray(columns).T


# Theorem 2 and Eq. 6 in float64, independent of `fedsim.aggregators.arfl`


def compute_optimum(losses: np.ndarray, num_examples: np.ndarray, lam: float) -> tuple[np.ndarray, float]:
    """Theorem 2 for `losses` and `num_examples` [N], lambda = `lam` * M: weights [N], and the loss without weight."""
    lambda_, order = lam * num_examples.sum(), np.argsort(losses, kind="stable")
    cumulated = np.cumsum(num_examples[order].astype(float))
    averages = np.cumsum((num_examples * losses)[order]) / cumulated
    p = np.flatnonzero(1 + cumulated * (averages - losses[order]) / lambda_ > 0)[-1]
    share, average = cumulated[p], averages[p]
    alpha = num_examples / share * np.maximum(1 + share * (average - losses) / lambda_, 0)
    return alpha, float(average + lambda_ / share)


def compute_objective(alpha: np.ndarray, losses: np.ndarray, num_examples: np.ndarray, lam: float) -> np.ndarray:
    """Eq. 6 for clients [..., N]: sum alpha_i L_i + lambda / 2 sum alpha_i^2 / m_i, with lambda = `lam` * M."""
    return (alpha * losses).sum(axis=-1) + lam * num_examples.sum() / 2 * (alpha**2 / num_examples).sum(axis=-1)


class Terms(NamedTuple):
    """Of the T rounds in which every client has reported a finite loss."""

    objective: np.ndarray  # [T] Eq. 6, nats
    difference: np.ndarray  # [T] largest difference between the recorded weights and Theorem 2's
    agrees: np.ndarray  # [T] bool: whether exactly the clients at or above the threshold have no weight


def compute_terms(history: History, lam: float) -> Terms:
    """Compares the recorded weights with the optimum for the recorded losses."""
    examples = history.num_examples[history.num_examples > 0]
    alpha, losses = (values[:, history.num_examples > 0] for values in (history.alpha, history.losses))
    kept = np.isfinite(losses).all(axis=1) & ~np.isnan(alpha).any(axis=1)
    alpha, losses = alpha[kept], losses[kept]
    best = [compute_optimum(of_round, examples, lam) for of_round in losses]
    weights = np.asarray([weights for weights, _ in best]).reshape(alpha.shape)
    threshold = np.asarray([threshold for _, threshold in best])[:, None]
    near = np.abs(losses - threshold) <= 1e-5 * np.maximum(1.0, threshold)
    agrees = (((alpha == 0) == (losses >= threshold)) | near).all(axis=1)
    return Terms(compute_objective(alpha, losses, examples, lam), np.abs(alpha - weights).max(axis=1), agrees)


def bound(results: Results) -> list[Claim]:
    """Theorem 2, checked in each recorded round."""
    texts = (
        (f"The weights minimize Eq. 6 for the reported losses, within {TOLERANCE:g}", "Theorem 2"),
        ("A client has no weight if and only if its loss reaches the threshold λ/M_p + p-average", "Sec. 4.3"),
        ("The objective of Eq. 6 is lower at the end than at the start", "Sec. 4.4: alternating minimization"),
    )
    settings = _arfl_over_lambda(results)
    by_lam = {lam: [compute_terms(history, lam) for history in of_lam] for lam, of_lam in _sweep(results).items()}
    sweep = list(zip(*by_lam.values(), strict=True))  # by draw
    runs = [terms for of_draw in sweep for terms in of_draw]
    if not runs or min(len(terms.objective) for terms in runs) < 2:
        is_partial = any(run["record.clients"] == "evaluated" for run in results.runs)
        measured = 'some losses were not recorded; use record.clients = "all"' if is_partial else ""
        return [Claim(text, published=published, measured=measured) for text, published in texts]
    num_rounds, num_agreeing = sum(len(t.objective) for t in runs), sum(int(t.agrees.sum()) for t in runs)
    ends = {lam: np.mean([t.objective[[0, -1]] for t in of_lam], axis=0) for lam, of_lam in by_lam.items()}
    first = settings[min(by_lam)]
    per_draw = lambda values: results.per_unit(first, list(map(values, sweep)))
    falls = per_draw(lambda of_draw: min(t.objective[0] - t.objective[-1] for t in of_draw))
    fall = "; ".join(f"λ = {lam:g} M: {start:.3f} to {end:.3f}" for lam, (start, end) in ends.items())
    is_optimal = per_draw(lambda of_draw: max(t.difference.max() for t in of_draw) <= TOLERANCE)
    optimal = f"{max(t.difference.max() for t in runs):.1e}, {num_rounds} rounds"
    agrees = per_draw(lambda of_draw: all(t.agrees.all() for t in of_draw))
    return [
        Claim(texts[0][0], is_optimal, texts[0][1], optimal, kind="yes or no"),
        Claim(texts[1][0], agrees, texts[1][1], f"in {num_agreeing} of {num_rounds} rounds", kind="yes or no"),
        Claim(texts[2][0], falls, texts[2][1], fall, "nats"),
    ]


# The introductory example (Sec. 3.3, Fig. 1): three clients in the plane


def _lines(results: Results, rule: str, kind: str) -> tuple[Setting | None, np.ndarray]:
    """The learned lines w . x + b = 0 [S, 3] of a setting's runs, with class 1 on the positive side."""
    setting = results.find(server__aggregator=rule, corruption__kind=kind, data__name="separable_2d")
    lines = []
    for run in setting.runs if setting else ():
        try:
            params = results.sources[run][1].read_model()
        except RunFolderError:  # models were not saved
            return None, np.zeros((0, 3))
        kernel, bias = (next(v for path, v in params.items() if path.endswith(name)) for name in ("kernel", "bias"))
        lines.append([*np.diff(kernel.astype(float), axis=1)[:, 0], np.diff(bias)[0]])
    return setting, np.asarray(lines).reshape(-1, 3)


def _angles(lines: np.ndarray) -> np.ndarray:
    """Degrees (0 to 180) between the lines' normals and the true line's, both pointing towards class 1."""
    cosine = lines[:, :2] @ NORMAL / np.linalg.norm(lines[:, :2], axis=1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def intro(results: Results) -> list[Claim]:
    """FedAvg learns the true line on clean data, and one corrupted client moves it; the paper does not plot ARFL."""
    clean, reference = _lines(results, "fedavg", "none")

    def claim(text: str, published: str, lines: Any, others: Any, sign: int, level: float = 0.0) -> Claim:
        """The angle is larger than the others (sign 1) or smaller (-1)."""
        (setting, own), (_, other) = lines, others
        if setting is None or not 0 < len(own) == len(other):
            return Claim(text, published=published)
        distance = np.abs(own[:, 2]) / np.linalg.norm(own[:, :2], axis=1)
        angles = sign * (_angles(own) - (level or _angles(other)))
        measured = f"{_angles(own).mean():.1f}°, {distance.mean():.2f} from the origin"
        kind: Any = "mean" if level else "direction"
        return Claim(text, results.per_unit(setting, angles), published, measured, "degrees", kind)

    on_clean = clean, reference
    close = f"Clean: FedAvg's line is within {MAX_ANGLE:g}° of the true line"
    claims = [claim(close, "Fig. 1a", on_clean, on_clean, -1, MAX_ANGLE)]
    for kind, published in (("shift", "Fig. 1b: far away"), ("flipping", "Fig. 1c: far away")):
        fedavg, arfl = (_lines(results, rule, kind) for rule in ("fedavg", "arfl"))
        title = KINDS[kind].format("client 0")
        text = f"{title}: FedAvg's line is farther from the true line than on clean data"
        claims.append(claim(text, published, fedavg, on_clean, 1))
        text = f"{title}: ARFL's line is closer to the true line than FedAvg's"
        claims.append(claim(text, "not given", arfl, fedavg, -1))
    return claims


# Figures


def figures(results: Results) -> dict[str, Any]:
    """Fig. 1 and Fig. 7 for the first seed, where the results are theirs."""
    study = next((study for study in FIGURES if results.name.startswith(study)), "")
    figure = FIGURES[study](results) if study else None
    return {} if figure is None else {f"paper-{study}": figure}


def _draw_intro(results: Results) -> Any:
    """Fig. 1: each client's training examples, the true and the learned lines."""
    from matplotlib.lines import Line2D

    shown = {}
    for kind in KINDS:
        if setting := results.find(server__aggregator="fedavg", corruption__kind=kind):
            shown[kind] = results.sources[setting.runs[0]][1].read_data()
    if not shown:
        return None
    colors, markers, rules = ("0.7", "0.35"), ("o", "s", "^"), ("fedavg", "arfl")
    looks = {"true line": {"color": "black", "linestyle": ":"}}
    looks |= dict(zip(map(aggregator_name, rules), style.looks(rules), strict=True))
    figure, panels = style.panels(len(shown))
    limit = max(float(np.abs(data["x"]).max()) for data in shown.values()) + 0.5
    for panel, (kind, data) in zip(panels, shown.items(), strict=True):
        ends = zip(data["offsets"], data["num_examples"], markers, strict=True)
        for start, number, marker in ends:
            x, y = data["x"][start : start + number], data["y"][start : start + number]
            for label, color in enumerate(colors):
                panel.scatter(*x[y == label].T, color=color, marker=marker, s=9, alpha=0.6, linewidths=0)
        lines = {aggregator_name(rule): _lines(results, rule, kind)[1][:1] for rule in rules}
        for name, line in {"true line": np.asarray([[*NORMAL, 0.0]]), **lines}.items():
            for *normal, offset in line:
                foot = -offset * np.asarray(normal) / np.dot(normal, normal)
                panel.axline(foot, foot + np.asarray([-normal[1], normal[0]]), **looks[name])
        clients = "client " + ", ".join(map(str, np.flatnonzero(data["corrupted"])))
        panel.set_title(KINDS[kind].format(clients))
        panel.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xlabel="$x_1$")
    panels[0].set_ylabel("$x_2$")
    dot = lambda color, marker, label: Line2D([], [], color=color, marker=marker, linestyle="", label=label)
    handles = [dot(color, "o", f"class {label}") for label, color in enumerate(colors)]
    handles += [dot("0.5", marker, f"client {client}") for client, marker in enumerate(markers)]
    handles += [Line2D([], [], label=name, **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _draw_bars(results: Results) -> Any:
    """Fig. 7: the final weights beside FedAvg's."""
    _, histories = _corrupted_arfl(results)
    if not histories:
        return None
    history, (figure, (panel,)) = histories[0], style.panels(1)
    figure.set_size_inches(5.5, 3.4)
    bars = {
        "ARFL": (history.alpha[-1], style.COLORS[4]),
        "FedAvg, benign only": (history.benign_fedavg, "0.65"),
        "FedAvg": (history.fedavg, style.COLORS[0]),
    }
    clients, handles = np.arange(len(history.num_examples)), {}
    for offset, (name, (weights, color)) in enumerate(bars.items(), start=-1):
        handles[name] = panel.bar(clients + offset * 0.27, 100 * weights, 0.25, color=color)
    panel.set_xticks(clients, [f"{client}*" if bad else f"{client}" for client, bad in enumerate(history.corrupted)])
    panel.set_xlabel("Client (* corrupted)")
    panel.grid(visible=False, axis="x")
    return style.finish(figure, [panel], "Weight after the last round (%)", handles)


FIGURES = {"intro": _draw_intro, "autoweight": _draw_bars}
