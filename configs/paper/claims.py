"""What the paper (arXiv 2101.05880) says about accuracies: Table 2, Fig. 2 to 4, Sec. 6; weights.py has the weights.

`report.claims` of the configurations names these functions. Numbers of a claim are positive where it holds.
"""

import csv
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from fedsim import Claim
from fedsim.report.final import LAST, Final
from fedsim.report.metric import ACCURACY, LOSS, Metric
from fedsim.report.names import AGGREGATORS, aggregator_name, scenario_name
from fedsim.report.published import Published
from fedsim.report.results import Results
from fedsim.report.settings import Scenario, Setting, Threat

Table = dict[tuple[str, str, float], Published]  # by rule, corruption and share
Settings = dict[str, Setting]  # by rule

RULES = ("fedavg", "rfa", "multi_krum", "cfl", "arfl")  # of Table 2
SCENARIOS = (("none", 0.0), *product(("shuffling", "flipping", "noisy"), (0.3, 0.5)))
MAX_GAP = 1.0  # points: "very close to the best" (Sec. 5.2); Table 2's largest gap is 0.81
MAX_SPREAD = 3.0  # points between rules; Table 2 has 2.9 on clean and 1.5 on noisy FEMNIST
NOTABLE_DROP = 5.0  # points; Table 2 has 3.8 between clean and 50 % shuffled
MIN_COST = 5.0  # points of accuracy that count as a cost
MIN_KEPT_SHARE = 0.9  # of a client's weight, for the weight to count as kept
FEMNIST_ACCURACY = 79.0  # with 70 % corrupted, from Sec. 5.2
ALL_ROUNDS, LAST_FIVE = Final("mean", 10**6), Final("mean", 5)


def name_of(kind: str, fraction: float) -> str:
    """For example "Shuffling 50 %"."""
    return scenario_name(Scenario(Threat(kind), fraction))


def mean(results: Results, setting: Setting, metric: Metric = ACCURACY, final: Final = LAST) -> float:
    """Over splits, or seeds of one; NaN without numbers."""
    numbers = results.numbers(setting, metric, final)
    return float(np.mean(numbers[np.isfinite(numbers)])) if np.isfinite(numbers).any() else np.nan


def find_rules(results: Results, rules: tuple[str, ...], kind: str, fraction: float) -> Settings:
    """The rules that were run in a scenario, and have an accuracy."""
    values: dict[str, Any] = {"corruption__kind": kind, "corruption__fraction": fraction}
    every = {rule: results.find(server__aggregator=rule, **values) for rule in rules}
    return {rule: setting for rule, setting in every.items() if setting and np.isfinite(mean(results, setting))}


# Table 2


def table2(results: Results) -> list[Claim]:
    """ARFL's margin over FedAvg; Sec. 5.2 on ARFL in each scenario; each published number."""
    claims, comparisons, distances = [], [], {}
    published = read_published(results.settings[0].data)
    for kind, fraction in (SCENARIOS[2], SCENARIOS[4]):  # with the paper's largest gaps
        claims.append(_is_above_fedavg(results, published, kind, fraction))
    for kind, fraction in SCENARIOS:
        claims.append(_is_best(results, published, kind, fraction))
        for rule, setting in find_rules(results, RULES, kind, fraction).items():
            if (rule, kind, fraction) in published:
                row, expected = results.number(setting, ACCURACY), published[rule, kind, fraction]
                where = f"{aggregator_name(rule)}, {name_of(kind, fraction)}"
                distances[where] = row["mean"] - expected.mean
                measured = str(Published(row["mean"], row["std"]))
                comparisons.append(Claim(f"{where}: accuracy (%)", published=str(expected), measured=measured))
    if distances:
        where = max(distances, key=lambda place: abs(distances[place]))
        average, number = np.mean(np.abs(list(distances.values()))), len(distances)
        text = f"{average:.2f} on average over {number} settings, {distances[where]:+.2f} at most ({where})"
        claims.append(Claim("Percentage points between measured and published means", published="0", measured=text))
    return claims + comparisons


def read_published(data: str) -> Table:
    """Table 2 of a data set, in percent over five seeds, by rule, corruption and share; empty for others."""
    text = Path(__file__).with_name("published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    key = lambda row: (row["aggregator"], row["corruption"], float(row["fraction"]))
    number = lambda row: Published(float(row["accuracy_mean"]), float(row["accuracy_std"]))
    return {key(row): number(row) for row in rows if row["dataset"] == data}


def _is_above_fedavg(results: Results, published: Table, kind: str, fraction: float) -> Claim:
    text, gap = f"{name_of(kind, fraction)}: ARFL is above FedAvg", "+3.9 to +41.7 points"
    if published:
        gap = f"{published['arfl', kind, fraction].mean - published['fedavg', kind, fraction].mean:+.2f} points"
    rules = find_rules(results, RULES, kind, fraction)
    if not {"arfl", "fedavg"} <= rules.keys():
        return Claim(text, published=gap)
    arfl, fedavg = rules["arfl"], rules["fedavg"]
    measured = f"{mean(results, arfl):.2f} % and {mean(results, fedavg):.2f} %"
    return Claim(text, results.difference(arfl, fedavg), gap, measured, "points")


def _is_best(results: Results, table: Table, kind: str, fraction: float) -> Claim:
    """Under shuffling and flipping ARFL is best, within one published standard deviation; otherwise close to it."""
    published = {rule: table[rule, kind, fraction] for rule in RULES if table}
    is_robust = kind in ("shuffling", "flipping")
    slack, what = MAX_GAP, f"within {MAX_GAP:g} point of the best"
    if is_robust and published:
        slack, what = published["arfl"].std, "best, or within its published standard deviation of the best"
    given = f"Table 2: {'best' if is_robust else 'within 0.81 points'}"
    if published:
        accuracy = published["arfl"].mean
        given = _format_gap(accuracy, {rule: accuracy - published[rule].mean for rule in RULES if rule != "arfl"})
    text = f"{name_of(kind, fraction)}: ARFL is {what}"
    rules = find_rules(results, RULES, kind, fraction)
    every = {rule: results.difference(rules.get("arfl"), setting) for rule, setting in rules.items() if rule != "arfl"}
    differences = {rule: values for rule, values in every.items() if values is not None}
    if not differences:
        return Claim(text, published=given)
    gaps = {rule: float(np.mean(values)) for rule, values in differences.items()}
    measured = _format_gap(mean(results, rules["arfl"]), gaps)
    if len(rules) < len(RULES):  # who is best of some rules is no answer
        return Claim(text, None, given, f"{measured} ({len(rules)} of {len(RULES)} rules)")
    return Claim(text, differences[min(gaps, key=lambda rule: gaps[rule])] + slack, given, measured, "points")


def _format_gap(accuracy: float, gaps: dict[str, float]) -> str:
    """ARFL's accuracy, and its difference from the best of the other rules."""
    best = min(gaps, key=lambda rule: gaps[rule])
    return f"{accuracy:.2f} %: {gaps[best]:+.2f} to {aggregator_name(best)}"


# Robustness and convergence (Sec. 5.2, Fig. 2), half of the clients corrupted


def convergence(results: Results) -> list[Claim]:
    """ARFL ends highest under shuffling and flipping; on clean and noisy data all rules converge, Multi-Krum last."""
    high = ("ARFL converges to the highest accuracy", "Fig. 2", "arfl", 1, ACCURACY, LAST)
    low = ("ARFL ends with the lowest test loss", "Sec. 5.2: the other rules diverge", "arfl", -1, LOSS, LAST)
    close = (f"all rules end within {MAX_SPREAD:g} points", "Sec. 5.2: all converge", "", 0, ACCURACY, LAST)
    slowest = "Multi-Krum is the slowest (mean accuracy over all rounds)"
    slow = (slowest, "Sec. 5.2", "multi_krum", -1, ACCURACY, ALL_ROUNDS)
    biased = ("ARFL ends with the highest test loss", "Sec. 5.2: slightly higher", "arfl", 1, LOSS, LAST)
    clean, noisy = ("none", 0.0), ("noisy", 0.5)
    statements = list(product((("shuffling", 0.5), ("flipping", 0.5)), (high, low)))
    statements += [*product((clean, noisy), (close, slow)), (clean, biased)]
    return [_extreme(results, *scenario, *statement) for scenario, statement in statements]


def _extreme(
    results: Results,
    kind: str,
    fraction: float,
    text: str,
    published: str,
    rule: str,
    sign: int,
    metric: Metric,
    final: Final,
) -> Claim:
    """`rule` is above all others (sign 1), or below them (-1); 0: the highest and the lowest rule are close."""
    text = f"{name_of(kind, fraction)}: {text}"
    rules = find_rules(results, ("fedavg", "rfa", "multi_krum", "arfl"), kind, fraction)
    means = {name: mean(results, setting, metric, final) for name, setting in rules.items()}
    if len(rules) < 2 or (rule and rule not in rules):
        return Claim(text, published=published)
    others = [name for name in rules if name != rule and np.isfinite(means[name])]
    unit, suffix = ("nats", " nats") if metric == LOSS else ("points", " %")
    measured = ", ".join(f"{aggregator_name(name)} {value:.2f}" for name, value in means.items()) + suffix
    if not others:  # all of them have diverged
        return Claim(text, published=published, measured=measured)
    order = lambda name: means[name]
    highest, lowest = max(others, key=order), min(others, key=order)
    above, below = {1: (rule, highest), -1: (lowest, rule), 0: (highest, lowest)}[sign]
    numbers = results.difference(rules[above], rules[below], metric, final)
    margin = MAX_SPREAD - numbers if not sign and numbers is not None else numbers
    return Claim(text, margin, published, measured, unit)


# The fraction of corrupted clients (Sec. 5.3, Fig. 3; the sentence on FEMNIST in Sec. 5.2)


def _by_fraction(results: Results, rule: str) -> dict[float, Setting]:
    """The settings of a rule by the fraction of shuffled clients; 0 is clean data."""
    clean = results.find(server__aggregator=rule, corruption__kind="none", attack__kind="none")
    fractions = sorted({s.fraction for s in results.settings if s.aggregator == rule and s.corruption == "shuffling"})
    find = lambda share: results.find(server__aggregator=rule, corruption__kind="shuffling", corruption__fraction=share)
    shuffled = {share: find(share) for share in fractions}
    return {f: setting for f, setting in ({0.0: clean} | shuffled).items() if setting}


def fraction(results: Results) -> list[Claim]:
    """ARFL's accuracy hardly changes until 60 % of the clients are corrupted, and falls from there."""
    arfl, fedavg = _by_fraction(results, "arfl"), _by_fraction(results, "fedavg").get(0.5)

    def drop(start: float, end: float, sign: int, text: str, published: str) -> Claim:
        """ARFL's loss from one fraction to another: at least `NOTABLE_DROP` points (sign 1), or at most (-1)."""
        lost = results.difference(arfl.get(start), arfl.get(end))
        if lost is None:
            return Claim(text, published=published)
        ends = f"{mean(results, arfl[start]):.2f} % to {mean(results, arfl[end]):.2f} %"
        return Claim(text, sign * (lost - NOTABLE_DROP), published, f"{lost.mean():.2f} points: {ends}", "points")

    few, many = f"ARFL loses at most {NOTABLE_DROP:g} points", f"it loses more than {NOTABLE_DROP:g} points"
    half, both = arfl.get(0.5), "With 50 % corrupted, ARFL is above FedAvg"
    measured = f"{mean(results, half):.2f} % and {mean(results, fedavg):.2f} %" if half and fedavg else ""
    return [
        drop(0.0, 0.5, -1, f"From 0 to 50 % corrupted, {few}", "3.76 (Table 2; clean with λ = 10^4 M)"),
        drop(0.0, 0.6, -1, f"From 0 to 60 % corrupted, {few}", "Sec. 5.3: no significant change"),
        drop(0.6, 0.9, 1, f"From 60 to 90 %, {many}", "Fig. 3"),
        Claim(both, results.difference(half, fedavg), "+22.66 points (Table 2)", measured, "points"),
    ]


def fraction_femnist(results: Results) -> list[Claim]:
    """ARFL stays above 79 % on FEMNIST with 70 % corrupted; the paper does not name the corruption, here shuffling."""
    settings = {(rule, f): s for rule in ("arfl", "fedavg") for f, s in _by_fraction(results, rule).items()}
    setting = settings.pop(("arfl", 0.7), None)
    text = f"ARFL's accuracy with 70 % of the clients shuffled is above {FEMNIST_ACCURACY:g} %"
    if setting is None:
        return [Claim(text, published="above 79 %")]
    numbers = results.numbers(setting) - FEMNIST_ACCURACY
    claim = Claim(text, numbers, "above 79 %", f"{mean(results, setting):.2f} %", "points")
    shown = lambda key: f"{aggregator_name(key[0])}, {100 * key[1]:g} %: {mean(results, settings[key]):.2f} %"
    others = ", ".join(map(shown, settings))
    return [claim, Claim("For comparison", published="not given", measured=others)] if others else [claim]


# Data heterogeneity (Sec. 5.4, Fig. 4): ARFL over Dirichlet partitions, 30 % of the clients shuffled


def heterogeneity(results: Results) -> list[Claim]:
    """With more heterogeneity, curves fluctuate more and end lower."""
    arfl = [s for s in results.settings if s.aggregator == "arfl"]
    by_alpha = {results.runs[s.runs[0]].get("dirichlet.alpha"): s for s in arfl}
    settings = dict(sorted((alpha, s) for alpha, s in by_alpha.items() if alpha is not None))

    def fluctuation(setting: Setting) -> np.ndarray:
        """Standard deviation, in points, of the steps between evaluations in the second half."""
        rows = results.table.filter(results.table["round"] >= setting.rounds[-1] / 2)
        curves = [100 * rows.filter(rows["run"] == run)["test_accuracy"].to_numpy() for run in setting.runs]
        return results.per_unit(setting, [np.std(np.diff(curve)) for curve in curves])

    def claim(text: str, numbers: Callable[[Setting], np.ndarray], steps: list[Any], suffix: str) -> Claim:
        """The margin is the smallest step from one alpha to the next."""
        if not steps or any(step is None for step in steps):
            return Claim(text, published="Fig. 4")
        means = {alpha: np.nanmean(numbers(setting)) for alpha, setting in settings.items()}
        measured = ", ".join(f"α = {alpha:g}: {value:.2f}{suffix}" for alpha, value in means.items())
        return Claim(text, min(steps, key=np.mean), "Fig. 4", measured, "points")

    pairs = list(pairwise(settings.values()))
    rises = [results.difference(larger, smaller, final=LAST_FIVE) for smaller, larger in pairs]
    is_paired = all(smaller.draws == larger.draws and len(smaller.rounds) > 4 for smaller, larger in pairs)
    falls = [fluctuation(smaller) - fluctuation(larger) for smaller, larger in pairs if is_paired]
    higher = "The larger α, the higher the final accuracy (mean of the last five evaluations)"
    calmer = "The larger α, the less the curve fluctuates (standard deviation of its steps in the second half)"
    return [
        claim(higher, lambda s: results.numbers(s, final=LAST_FIVE), rises, " %"),
        claim(calmer, fluctuation, falls, ""),
    ]


# Limitations (Sec. 6; Sec. 5.2 on collusion)


def limits(results: Results) -> list[Claim]:
    """The limits of ARFL that the paper names: collusion, false losses, flipped updates."""
    return [*_collusion(results), *_false_losses(results), *_flipped_updates(results)]


def _collusion(results: Results) -> Iterator[Claim]:
    text = f"Collusion of {{}} costs ARFL {MIN_COST:g} points more than shuffling"
    fractions = dict.fromkeys(s.fraction for s in results.settings if s.corruption == "collusion")
    if not fractions:
        yield Claim(text.format("the clients"), published="Sec. 6: may bring risk")
    for share in fractions:
        values = {"server__aggregator": "arfl", "corruption__fraction": share, "attack__kind": "none"}
        colluding, shuffled = (results.find(corruption__kind=kind, **values) for kind in ("collusion", "shuffling"))
        published = "Sec. 5.2: not handled" if share >= 0.7 else "Sec. 6: may bring risk"
        cost, measured = results.difference(shuffled, colluding), ""
        if cost is not None and colluding and shuffled:
            ends = mean(results, colluding), mean(results, shuffled)
            measured = f"{ends[0]:.2f} % with collusion, {ends[1]:.2f} % with shuffling"
        numbers = None if cost is None else cost - MIN_COST
        yield Claim(text.format(f"{100 * share:g} %"), numbers, published, measured, "points")


def _late_weights(results: Results, setting: Setting) -> np.ndarray:
    """The corrupted clients' share of the weight in the second half of the rounds, in percent."""
    rows = results.table.filter(results.table["round"] > setting.rounds[-1] / 2)
    weights = [rows.filter(rows["run"] == run)["corrupted_weight"].mean() for run in setting.runs]
    return 100 * results.per_unit(setting, weights)


def _false_losses(results: Results) -> Iterator[Claim]:
    false = results.find(server__aggregator="arfl", attack__kind="fake_loss")
    values = {"corruption__kind": false.corruption, "corruption__fraction": false.fraction} if false else {}
    true = results.find(server__aggregator="arfl", attack__kind="none", **values) if false else None
    numbers, texts = None, ["", ""]
    if false:
        weights, share = _late_weights(results, false), 100 * false.fraction
        numbers = weights - share
        texts[0] = f"{weights.mean():.1f} % of the weight, {share:g} % of the clients"
    if false and true:
        texts[0] += f"; {_late_weights(results, true).mean():.1f} % with true losses"
        texts[1] = f"{mean(results, false):.2f} % with false losses, {mean(results, true):.2f} % with true losses"
    more = "Clients that report false small losses get more weight than their share"
    yield Claim(more, numbers, "Sec. 6: they dominate", texts[0], "points")
    cost = results.difference(true, false)
    yield Claim("False losses cost ARFL accuracy", cost, "Sec. 6", "" if cost is None else texts[1], "points")


def _flipped_updates(results: Results) -> Iterator[Claim]:
    rules = ("arfl", *(rule for rule in AGGREGATORS if rule != "arfl"))
    every = {rule: results.find(server__aggregator=rule, attack__kind="sign_flip") for rule in rules}
    settings = {rule: setting for rule, setting in every.items() if setting}
    arfl, fedavg, numbers, measured = settings.get("arfl"), settings.get("fedavg"), None, ""
    if arfl:
        weights, share = _late_weights(results, arfl), 100 * arfl.fraction
        numbers = weights - MIN_KEPT_SHARE * share
        measured = f"{weights.mean():.1f} % of the weight, {share:g} % of the clients"
    kept, outside = f"{100 * MIN_KEPT_SHARE:g} % of their share of the weight", "Sec. 6: outside the method's scope"
    text = f"Clients with clean data that flip their updates keep {kept}"
    yield Claim(text, numbers, outside, measured, "points")
    texts = [f"{aggregator_name(rule)} {mean(results, setting):.2f} %" for rule, setting in settings.items()]
    ahead = results.difference(arfl, fedavg)
    measured = "" if ahead is None else ", ".join(texts)
    text = "Under flipped updates ARFL is no better than FedAvg"
    yield Claim(text, ahead, outside, measured, "points", "not above")
