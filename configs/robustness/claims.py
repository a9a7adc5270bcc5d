"""The conclusions of docs/robustness.md, which `report.claims` of the studies names, so that each run tests them.

docs/robustness.md has the commands that run the studies on other splits. "Above" and "below" need an interval over the
splits. Levels, and what is so "on average", look at the mean alone. A part that was not run is NaN.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from fedsim import Claim
from fedsim.report.claims import MAX_LISTED, Kind, format_mean
from fedsim.report.metric import ACCURACY, BACKDOOR, METRICS, Metric
from fedsim.report.results import Results
from fedsim.report.settings import Setting

VALIDATION = next(metric for metric in METRICS if metric.name == "validation_accuracy")
NOT_RUN = np.asarray([np.nan])
Values = Mapping[str, Any]  # of keys, with dots as two underscores
Numbers = Sequence[np.ndarray]  # over splits [P]


def mean_of(numbers: np.ndarray) -> float:
    """Of the splits that were run; NaN if none was."""
    return np.nan if is_missing(numbers) else float(np.nanmean(numbers))


def claim(text: str, numbers: Numbers, level: float = 0.0, sign: int = 1, kind: Kind = "mean") -> Claim:
    """A claim that numbers, in percent or points, are at least `level` (sign 1), or at most (-1)."""
    if any(map(is_missing, numbers)):
        return Claim(text)
    ordered = sorted(numbers, key=mean_of)
    listed = ordered if len(ordered) > MAX_LISTED else numbers
    shown = [format_mean(values[np.isfinite(values)], digits=1) for values in listed]
    measured = f"{shown[0]} to {shown[-1]}" if len(shown) > MAX_LISTED else ", ".join(shown)
    return Claim(text, [sign * (values - level) for values in numbers], "", measured, "points", kind)


at_least, at_most = claim, partial(claim, sign=-1)
above, below = partial(claim, kind="direction"), partial(claim, sign=-1, kind="direction")
not_above = partial(claim, kind="not above")


def is_missing(numbers: np.ndarray) -> bool:
    """Whether they are of something that was not run."""
    return bool(np.isnan(numbers).all())


def extreme(choose: Callable[..., np.ndarray], every: Iterable[np.ndarray]) -> np.ndarray:
    """The numbers with the lowest (min) or highest (max) mean."""
    every = list(every)
    return NOT_RUN if any(map(is_missing, every)) else choose(every, key=mean_of)


def attacks(*kinds: str) -> list[Values]:
    """A case for each attack."""
    return [{"attack__kind": kind} for kind in kinds]


class Study:
    """Accuracies in percent, by split, of runs on a data set."""

    def __init__(self, results: Results, data: str = "digits") -> None:
        self._results, self._data = results, data

    def find(self, rule: str, values: Values) -> Setting | None:
        return self._results.find(data__name=self._data, server__aggregator=rule, **values)

    def numbers(self, setting: Setting | None, metric: Metric = ACCURACY) -> np.ndarray:
        values = self._results.numbers(setting, metric)
        return NOT_RUN if values is None else values

    def accuracy(self, rule: str, values: Values) -> np.ndarray:
        return self.numbers(self.find(rule, values))

    def difference(self, setting: Setting | None, reference: Setting | None, metric: Metric = ACCURACY) -> np.ndarray:
        values = self._results.difference(setting, reference, metric)
        return NOT_RUN if values is None else values

    def lead(self, rule: str, baseline: str, values: Values, metric: Metric = ACCURACY) -> np.ndarray:
        """The accuracy, or another metric, of `rule` minus that of `baseline`."""
        return self.difference(self.find(rule, values), self.find(baseline, values), metric)

    def worst(self, rule: str, values: Values, cases: Iterable[Values]) -> Setting | None:
        """The setting of the case with the lowest mean."""
        settings = [self.find(rule, {**values, **case}) for case in cases]
        mean = lambda setting: self._results.number(setting)["mean"]
        return None if None in settings else min(settings, key=mean, default=None)


def noisy_labels(results: Results) -> list[Claim]:
    """FedCorr's label noise; rho is the share of noisy clients, tau their smallest noise rate."""
    study, both = Study(results), ("fedavg", "rfa")

    def leads(rho: float, over: Sequence[str] = both, partition: str = "iid", **noise: Any) -> Numbers:
        values = {"corruption__fraction": rho, "data__partition": partition, "corruption__kind": "localized", **noise}
        return [study.lead("arfl", rule, values) for rule in over]

    close = [-leads(0.4, ["rfa"], localized__tau=tau)[0] for tau in (0.0, 0.5, 1.0)]
    within = at_least("rho 0.4: ARFL and RFA are within a point of each other at each tau", close)
    gaps = [1 - np.sign(values.mean()) * values for values in within.numbers] or None
    three, rhos = ("fedavg", "trimmed_mean", "rfa"), (0.2, 0.4, 0.6, 0.8)
    symmetric, pairs = {"corruption__kind": "symmetric"}, {"corruption__kind": "pairflip"}
    return [
        above("rho 0.8, tau 1: ARFL is above FedAvg and RFA", leads(0.8, localized__tau=1.0)),
        above("rho 0.8, tau 0.5: ARFL is above FedAvg and RFA", leads(0.8, localized__tau=0.5)),
        above(
            "rho 0.8, tau 1, Dirichlet(1): ARFL is above FedAvg and RFA",
            leads(0.8, partition="dirichlet", localized__tau=1.0),
        ),
        Claim(within.text, gaps, "", within.measured, "points", "mean"),
        not_above("tau 0: ARFL is not above RFA", [leads(rho, ["rfa"], localized__tau=0.0)[0] for rho in rhos]),
        above("symmetric noise, rho 0.8: ARFL is above FedAvg, trimmed mean and RFA", leads(0.8, three, **symmetric)),
        above("pair flips, rho 0.6: ARFL is above FedAvg and RFA", leads(0.6, **pairs)),
    ]


def forged_reports(results: Results) -> list[Claim]:
    """False losses and numbers of examples, reported by clients whose labels are shuffled."""
    study, (true,) = Study(results), attacks("none")
    losses: list[Values] = [{"attack__kind": "fake_loss", "fake_loss__scale": scale} for scale in (0.1, 0.01)]
    counts = {"attack__kind": "fake_counts", "fake_counts__factor": 10.0}

    def arfl(fraction: float, reports: Values, source: str = "clients") -> np.ndarray:
        return study.accuracy("arfl", {"corruption__fraction": fraction, "arfl__source": source, **reports})

    return [
        at_most(
            "50 %: a tenth or a hundredth of the loss breaks ARFL (at most 50 % accuracy)",
            [arfl(0.5, reports) for reports in losses],
            50,
        ),
        at_least(
            "with losses that the server measures, false ones have no effect (at least 93 %)",
            [arfl(share, reports, "root") for share in (0.1, 0.3, 0.5) for reports in (true, *losses)],
            93,
        ),
        at_least("10 %: ARFL resists ten times the examples (at least 90 %)", [arfl(0.1, counts)], 90),
        below(
            "30 %: with ten times the examples ARFL is below its accuracy with true reports",
            [arfl(0.3, counts) - arfl(0.3, true)],
        ),
    ]


def lambda_(results: Results) -> list[Claim]:
    """ARFL's lambda in units of M; 10^4 M is FedAvg."""
    study, alphas, fedavg, auto = Study(results), (0.1, 1.0, 100.0), 1e4, "auto"
    corrupted: list[Values] = [
        {"corruption__kind": kind, "corruption__fraction": share}
        for kind, share in product(("shuffling", "flipping"), (0.2, 0.4, 0.6))
    ]
    clean, hard = {"corruption__fraction": 0.0}, corrupted[-1]
    without_hard = [clean, *corrupted[:-1]]  # on IID data M depends on the seed there

    def arfl(lam: float | str, alpha: float, scenario: Values) -> np.ndarray:
        return study.accuracy("arfl", {"dirichlet__alpha": alpha, "arfl__lam": lam, **scenario})

    def mean(lam: float | str) -> np.ndarray:
        return sum(arfl(lam, *setting) for setting in product(alphas, [clean, *corrupted])) / 21

    def best(scenario: Values) -> np.ndarray:
        return extreme(max, (arfl(lam, 100.0, scenario) for lam in (0.1, 0.3, 1.0, 3.0, 10.0, fedavg)))

    return [
        above(
            "mean of the 21 settings: 3 M is above 10 M and FedAvg", [mean(3.0) - mean(lam) for lam in (10.0, fedavg)]
        ),
        at_least(
            "mean of the 21 settings: 3 M is above M and auto on average",
            [mean(3.0) - mean(lam) for lam in (1.0, auto)],
        ),
        at_most("60 % flipping at alpha 0.1: M is below 3 M on average", [arfl(1.0, 0.1, hard) - arfl(3.0, 0.1, hard)]),
        not_above(
            "60 % flipping at alpha 0.1: 3 M is not above FedAvg", [arfl(3.0, 0.1, hard) - arfl(fedavg, 0.1, hard)]
        ),
        at_most(
            "IID data, but for 60 % flipping: M is within a point of the best in each setting",
            [best(scenario) - arfl(1.0, 100.0, scenario) for scenario in without_hard],
            1,
        ),
        at_most(
            "worst setting: 0.1 M has at most 20 %",
            [extreme(min, (arfl(0.1, *setting) for setting in product(alphas, corrupted)))],
            20,
        ),
        below("clean data at alpha 0.1: auto is below FedAvg", [arfl(auto, 0.1, clean) - arfl(fedavg, 0.1, clean)]),
    ]


def label_poisoning(results: Results) -> list[Claim]:
    """Poisoned labels: the corrupted clients' are shuffled, or half or all of them become the next class."""
    study = Study(results)
    shuffled: Values = {"corruption__kind": "shuffling"}
    half, full = ({"corruption__kind": "pairflip", "pairflip__rate": rate} for rate in (0.5, 1.0))

    def lead(rule: str, labels: Values, fraction: float, alpha: float = 0.1) -> np.ndarray:
        return study.lead(rule, "fedavg", {"dirichlet__alpha": alpha, "corruption__fraction": fraction, **labels})

    rules = ("trimmed_mean", "multi_krum", "rfa", "arfl")
    every = product(rules, (shuffled, half, full), (0.3, 0.4), (1.0, 100.0))
    cases = [case for case in every if case != ("arfl", full, 0.4, 1.0)]  # there ARFL depends on the split
    twice = [lead("rfa", full, share) for share in (0.2, 0.3)]
    return [
        at_most(
            "alpha 0.1, 40 % half flipped: the trimmed mean is below FedAvg on average",
            [lead("trimmed_mean", half, 0.4)],
        ),
        at_least("alpha 0.1, 40 % half flipped: RFA is above FedAvg on average", [lead("rfa", half, 0.4)]),
        at_least("alpha 0.1, 20 and 30 % all flipped: RFA is above FedAvg on average", twice),
        at_least("alpha 0.1, 20 % all flipped: Multi-Krum is above FedAvg on average", [lead("multi_krum", full, 0.2)]),
        not_above("alpha 0.1, 40 % all flipped: ARFL is not above FedAvg", [lead("arfl", full, 0.4)]),
        at_least(
            "alpha 1 and 100, from 30 % on: no rule is half a point below FedAvg on average, but for ARFL in one "
            "setting",
            [lead(*case) for case in cases],
            -0.5,
        ),
    ]


def heterogeneity(results: Results) -> list[Claim]:
    """The worst of three attacks; the learning rate is chosen on validation data."""
    study, searched = Study(results), attacks("sign_flip", "ipm", "alie")

    def worst(rule: str, fraction: float, alpha: float = 0.1) -> Setting | None:
        cases = searched if fraction else attacks("none")
        values = {"corruption__fraction": fraction, "dirichlet__alpha": alpha}

        def validation(rate: float) -> float:
            settings = (study.find(rule, {**values, **case, "client__learning_rate": rate}) for case in cases)
            return min(mean_of(study.numbers(setting, VALIDATION)) for setting in settings)

        rate = max((0.05, 0.2), key=validation)
        return study.worst(rule, {**values, "client__learning_rate": rate}, cases)

    level = lambda rule, fraction: study.numbers(worst(rule, fraction, 10.0))
    lead = lambda rule, baseline, fraction: study.difference(worst(rule, fraction), worst(baseline, fraction))
    rules, shares = ("multi_krum", "median", "trimmed_mean"), (0.1, 0.2, 0.3, 0.4)
    of_shares = [[study.numbers(worst(rule, share)) for rule in ("rfa", "fedavg")] for share in shares]  # of all splits
    over_mean = [rfa - fedavg for rfa, fedavg in of_shares]
    return [
        not_above(
            "alpha 0.1, 30 %: Multi-Krum, median and trimmed mean are not above FedAvg",
            [lead(rule, "fedavg", 0.3) for rule in rules],
        ),
        at_least(
            "alpha 10, 30 %: Multi-Krum, median and trimmed mean have 91 % and more",
            [level(rule, 0.3) for rule in rules],
            91,
        ),
        at_least("alpha 0.1, 10 to 40 %: RFA is above FedAvg on average", over_mean),
        above("alpha 0.1, mean of the four shares: RFA is above FedAvg", [sum(over_mean) / len(over_mean)]),
        at_least("alpha 0.1, 40 %: ARFL is above RFA on average", [lead("arfl", "rfa", 0.4)]),
        below("alpha 0.1, no attack: the median is below FedAvg", [lead("median", "fedavg", 0.0)]),
        at_least(
            "alpha 10, 40 %: RFA, median and trimmed mean have 89 % and more",
            [level(rule, 0.4) for rule in ("rfa", "median", "trimmed_mean")],
            89,
        ),
    ]


def grid(results: Results) -> list[Claim]:
    """Each rule under its worst attack, alone and after nearest-neighbor mixing."""
    study, alone, nnm = Study(results), (), ("nnm",)
    kinds: dict[Any, list[str]] = {alone: [], nnm: []}  # attacks by pre-aggregators
    for setting in results.settings:
        kinds.setdefault(results.runs[setting.runs[0]]["server.pre_aggregators"], []).append(setting.attack)
    every, with_nnm = (attacks(*(kind for kind in dict.fromkeys(kinds[key]) if kind != "none")) for key in (alone, nnm))
    at = lambda share, mixing: {"corruption__fraction": share, "server__pre_aggregators": mixing}
    worst = lambda rule, share: study.numbers(study.worst(rule, at(share, alone), every))
    under = lambda rule, share, mixing, attack: study.find(rule, {**at(share, mixing), "attack__kind": attack})

    def cost(rule: str, share: float) -> np.ndarray:
        """The accuracy without mixing minus the one with it, each under its own worst attack."""
        return study.difference(*(study.worst(rule, at(share, mixing), with_nnm) for mixing in (alone, nnm)))

    def optimized(rule: str, attack: str) -> np.ndarray:
        """The accuracy under the optimized attack minus that under the plain one, at 20 %."""
        return study.difference(*(under(rule, 0.2, alone, kind) for kind in (f"optimal_{attack}", attack)))

    rules = dict.fromkeys(setting.aggregator for setting in results.settings)
    others = [rule for rule in rules if rule not in ("fltrust", "signguard", "flame")]
    nine = ("rfa", "median", "multi_krum", "bulyan", "caf", "autogm", "signguard", "flame", "fltrust")
    flipped = [under("signguard", 0.4, mixing, "sign_flip") for mixing in (nnm, alone)]
    return [
        at_least("40 %: FLTrust has more than 80 %", [worst("fltrust", 0.4)], 80),
        at_least("40 %: SignGuard has more than 70 %", [worst("signguard", 0.4)], 70),
        at_most(
            "40 %: but for FLAME, the other rules have less than 80 %",
            [worst(rule, 0.4) for rule in others] or [NOT_RUN],
            80,
        ),
        at_least("20 %: nine rules have more than 86 %", [worst(rule, 0.2) for rule in nine], 86),
        at_most(
            "20 %: optimal ALIE is below ALIE for the trimmed mean, optimal IPM below IPM for Krum, on average",
            [optimized("trimmed_mean", "alie"), optimized("krum", "ipm")],
        ),
        at_most("20 %: ARFL has less than 50 %", [worst("arfl", 0.2)], 50),
        above("40 %: NNM costs SignGuard accuracy", [cost("signguard", 0.4)]),
        at_least("40 %: NNM costs CAF accuracy on average", [cost("caf", 0.4)]),
        at_least("40 %: NNM helps SignGuard against the sign flip on average", [study.difference(*flipped)]),
        at_most(
            "30 %: NNM improves trimmed mean, Multi-Krum, AutoGM and RFA by 15 points and more",
            [cost(rule, 0.3) for rule in ("trimmed_mean", "multi_krum", "autogm", "rfa")],
            -15,
        ),
    ]


def cohorts(results: Results) -> list[Claim]:
    """Cohorts that may have more malicious clients than a rule assumes."""
    study = Study(results, "femnist")
    rules = ("rfa", "multi_krum", "median", "trimmed_mean")
    return [
        below("RFA, Multi-Krum, median and trimmed mean are below FedAvg", [study.lead(r, "fedavg", {}) for r in rules])
    ]


def combined(results: Results) -> list[Claim]:
    """Corrupted data and false updates at once, also with losses that the server measures (root examples)."""
    study = Study(results)
    searching = attacks("optimal_alie", "optimal_ipm")  # for the strength that does the most harm
    false_losses = attacks("ipm_with_false_losses")
    corruptions: list[Values] = [
        {"corruption__kind": kind, "corruption__fraction": share}
        for kind, share in product(("shuffling", "flipping"), (0.3, 0.5))
    ]
    shuffled, shares = corruptions[:2], [{"attack__fraction": share} for share in (0.1, 0.2)]

    def worst(
        rules: Sequence[str],
        attacks: Sequence[Values],
        labels: Sequence[Values] = corruptions,
        weighting: str | None = "arfl",
        num_root: int = 0,
    ) -> Numbers:
        """Of each rule, in the case of labels, attack and share of malicious clients with the lowest mean."""
        fixed = {"server__weighting": weighting, "data__root_examples": num_root}
        cases = [{**a, **b, **c} for a, b, c in product(labels, shares, attacks)]
        return [study.numbers(study.worst(rule, fixed, cases)) for rule in rules]

    pair, alone = ("rfa", "trimmed_mean"), ("arfl", "rfa", "trimmed_mean", "median")
    return [
        at_most(
            "50 % shuffled: ARFL, RFA, trimmed mean and median alone have less than 60 %",
            worst(alone, searching, shuffled[1:], weighting=None),
            60,
        ),
        at_least(
            "shuffled: trimmed mean and median with ARFL's weights have 84 % and more",
            worst(("trimmed_mean", "median"), searching, shuffled),
            84,
        ),
        at_most(
            "false losses: RFA and trimmed mean with ARFL's weights have less than 20 % in some case",
            worst(pair, false_losses),
            20,
        ),
        at_least(
            "server losses, also against false ones: RFA and trimmed mean with ARFL's weights have 90 % and more",
            worst(pair, [*searching, *false_losses], num_root=100),
            90,
        ),
    ]


def adapters(results: Results) -> list[Claim]:
    """Adapters that clients with wrong labels train: ARFL and robust rules beside the mean, which is FedAvg."""

    study = Study(results, "documentation")
    every = ("arfl", "median", "multi_krum", "rfa")  # of ten, f = 4 makes the trimmed mean the median
    no_f = ("arfl", "median", "rfa")  # of clean data Multi-Krum has f = 0, and is the mean
    wrong, clean = {"corruption__fraction": 0.4}, {"corruption__fraction": 0.0}
    characters = {"documentation__target": "character", **wrong}
    shuffled, flipped, backdoored = (
        {**characters, "corruption__kind": kind} for kind in ("shuffling", "flipping", "backdoor")
    )
    iid, separated = ({"documentation__target": "kind", "similarity__gamma": gamma} for gamma in (1.0, 0.0))
    cases = (
        ("next character, 40 % shuffled: {} is above the mean", every, above, ACCURACY, shuffled),
        ("next character, 40 % of one class: {} is above the mean", every, above, ACCURACY, flipped),
        ("next character, 40 % with backdoors: fewer succeed with {}", every, below, BACKDOOR, backdoored),
        ("kind, IID, 40 % moved: {} is above the mean", every, above, ACCURACY, {**iid, **wrong}),
        ("kind, separated, clean: {} is below the mean", no_f, below, ACCURACY, {**separated, **clean}),
        (
            "kind, separated, 40 % moved by a class: {} is below the mean",
            every,
            below,
            ACCURACY,
            {**separated, **wrong},
        ),
    )
    return [
        of(text.format(rule), [study.lead(rule, "fedavg", values, metric)])
        for text, rules, of, metric, values in cases
        for rule in rules
    ]
