"""The conclusions of docs/robustness.md, which `report.claims` of the studies names, so that each run tests them.

On splits that nothing has used, each with a seed of its own, so that the intervals contain what the seeds do:

    cd configs/robustness; splits="--data.seed seed --sweep.seed 35 36 37 38 39"
    for study in noisy-labels forged-reports lambda label-poisoning heterogeneity; do
        fedsim run $study.toml $splits --out runs/$study
    done
    fedsim run grid.toml $splits --sweep.corruption.fraction 0.2 0.3 0.4 --out runs/grid
    fedsim run grid.toml --preset nnm $splits --out runs/grid-nnm
    fedsim run combined.toml $splits --out runs/combined
    fedsim run combined.toml --preset root $splits --out runs/combined-root
    fedsim run combined.toml --preset optimized $splits --out runs/combined-optimized
    fedsim report runs/grid runs/grid-nnm; fedsim report runs/combined runs/combined-root runs/combined-optimized

"Above" and "below" need an interval over the splits. Levels, and what is so "on average", look at the mean alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from fedsim import Claim
from fedsim.report.claims import MAX_LISTED, Kind, format_mean
from fedsim.report.metric import ACCURACY, METRICS, Metric
from fedsim.report.results import Results
from fedsim.report.settings import Setting

VALIDATION = next(metric for metric in METRICS if metric.name == "validation_accuracy")
Values = Mapping[str, Any]  # of keys, with dots as two underscores
Numbers = Sequence[np.ndarray]  # over splits [P]


def claim(
    text: str, numbers: Callable[[], Numbers], level: float = 0.0, sign: int = 1, kind: Kind = "mean"
) -> Claim:
    """A claim that numbers, in percent or points, are at least `level` (sign 1), or at most (-1)."""
    try:
        every = numbers()
    except LookupError:  # a part of the study was not run
        return Claim(text)
    ordered = [format_mean(values, digits=1) for values in sorted(every, key=np.mean)]
    is_long = len(every) > MAX_LISTED
    measured = f"{ordered[0]} to {ordered[-1]}" if is_long else ", ".join(format_mean(v, digits=1) for v in every)
    return Claim(text, [sign * (values - level) for values in every], measured=measured, unit="points", kind=kind)


above, below = partial(claim, kind="direction"), partial(claim, sign=-1, kind="direction")
not_above = partial(claim, kind="not above")
at_least, at_most = claim, partial(claim, sign=-1)


def find(results: Results, rule: str, values: Values) -> Setting:
    """The setting on the digits. Raises `LookupError` if it was not run."""
    setting = results.find(data__name="digits", server__aggregator=rule, **values)
    if setting is None:
        raise LookupError(f"{rule} with {values}")
    return setting


def accuracy(results: Results, rule: str, values: Values, metric: Metric = ACCURACY) -> np.ndarray:
    """In percent, by split."""
    numbers = results.numbers(find(results, rule, values), metric)
    assert numbers is not None
    return numbers


def lead(results: Results, rule: str, baseline: str, values: Values) -> np.ndarray:
    """The accuracy of `rule` minus that of `baseline`."""
    return difference(results, find(results, rule, values), find(results, baseline, values))


def difference(results: Results, setting: Setting, reference: Setting) -> np.ndarray:
    numbers = results.difference(setting, reference)
    if numbers is None:
        raise LookupError("no common splits and seeds")
    return numbers


def find_worst(results: Results, rule: str, values: Values, cases: Iterable[Values]) -> Setting:
    """The setting of the case with the lowest mean."""
    settings = [find(results, rule, {**values, **case}) for case in cases]
    return min(settings, key=lambda setting: results.number(setting)["mean"])


def attack_cases(kinds: Iterable[str]) -> list[Values]:
    return [{"attack__kind": kind} for kind in kinds]


def noisy_labels(results: Results) -> list[Claim]:
    """FedCorr's label noise; rho is the share of noisy clients, tau their smallest noise rate."""
    both = ("fedavg", "rfa")

    def leads(rho: float, over: Sequence[str] = both, partition: str = "iid", **noise: Any) -> Numbers:
        noise = {"corruption__kind": "localized"} | noise
        values = {"corruption__fraction": rho, "data__partition": partition, **noise}
        return [lead(results, "arfl", rule, values) for rule in over]

    def localized(rho: float, taus: Sequence[float], partition: str = "iid", over: Sequence[str] = both) -> Numbers:
        return [number for tau in taus for number in leads(rho, over, partition, localized__tau=tau)]

    def close() -> Numbers:
        return [-values for values in localized(0.4, (0.0, 0.5, 1.0), over=["rfa"])]

    rhos, three = (0.2, 0.4, 0.6, 0.8), ("fedavg", "trimmed_mean", "rfa")
    within = at_least("rho 0.4: ARFL and RFA are within a point of each other at each tau", close)
    if within.numbers:
        gaps = [1 - np.sign(values.mean()) * values for values in within.numbers]
        within = Claim(within.text, gaps, measured=within.measured, unit="points", kind="mean")
    return [
        above("rho 0.8, tau 1: ARFL is above FedAvg and RFA", lambda: localized(0.8, [1.0])),
        above("rho 0.8, tau 0.5: ARFL is above FedAvg and RFA", lambda: localized(0.8, [0.5])),
        above("rho 0.8, tau 1, Dirichlet(1): ARFL is above FedAvg and RFA", lambda: localized(0.8, [1.0], "dirichlet")),
        within,
        not_above(
            "tau 0: ARFL is not above RFA", lambda: [n for rho in rhos for n in localized(rho, [0.0], over=["rfa"])]
        ),
        above(
            "symmetric noise, rho 0.8: ARFL is above FedAvg, trimmed mean and RFA",
            lambda: leads(0.8, three, corruption__kind="symmetric"),
        ),
        above("pair flips, rho 0.6: ARFL is above FedAvg and RFA", lambda: leads(0.6, corruption__kind="pairflip")),
    ]


def forged_reports(results: Results) -> list[Claim]:
    """False losses and numbers of examples, reported by clients whose labels are shuffled."""
    true: Values = {"attack__kind": "none"}
    losses: list[Values] = [{"attack__kind": "fake_loss", "fake_loss__scale": scale} for scale in (0.1, 0.01)]
    counts = {"attack__kind": "fake_counts", "fake_counts__factor": 10.0}

    def arfl(fraction: float, reports: Values, source: str = "clients") -> np.ndarray:
        return accuracy(results, "arfl", {"corruption__fraction": fraction, "arfl__source": source, **reports})

    return [
        at_most(
            "50 %: a tenth or a hundredth of the loss breaks ARFL (at most 50 % accuracy)",
            lambda: [arfl(0.5, reports) for reports in losses],
            50,
        ),
        at_least(
            "with losses that the server measures, false ones have no effect (at least 93 %)",
            lambda: [arfl(share, reports, "root") for share in (0.1, 0.3, 0.5) for reports in (true, *losses)],
            93,
        ),
        at_least("10 %: ARFL resists ten times the examples (at least 90 %)", lambda: [arfl(0.1, counts)], 90),
        below(
            "30 %: with ten times the examples ARFL is below its accuracy with true reports",
            lambda: [arfl(0.3, counts) - arfl(0.3, true)],
        ),
    ]


def lambda_(results: Results) -> list[Claim]:
    """ARFL's lambda in units of M; 10^4 M is FedAvg."""
    alphas, fedavg, auto = (0.1, 1.0, 100.0), 1e4, "auto"
    corrupted: list[Values] = [
        {"corruption__kind": kind, "corruption__fraction": share}
        for kind, share in product(("shuffling", "flipping"), (0.2, 0.4, 0.6))
    ]
    clean: Values = {"corruption__fraction": 0.0}
    hard = {"corruption__kind": "flipping", "corruption__fraction": 0.6}

    def arfl(lam: float | str, alpha: float, scenario: Values) -> np.ndarray:
        return accuracy(results, "arfl", {"dirichlet__alpha": alpha, "arfl__lam": lam, **scenario})

    def mean(lam: float | str) -> np.ndarray:
        return np.mean([arfl(lam, *setting) for setting in product(alphas, [clean, *corrupted])], axis=0)

    def gaps() -> Numbers:
        every = []
        for scenario in [case for case in (clean, *corrupted) if case != hard]:  # where M depends on the seed
            accuracies = [arfl(lam, 100.0, scenario) for lam in (0.1, 0.3, 1.0, 3.0, 10.0, fedavg)]
            every.append(max(accuracies, key=np.mean) - arfl(1.0, 100.0, scenario))
        return every

    return [
        above(
            "mean of the 21 settings: 3 M is above 10 M and FedAvg",
            lambda: [mean(3.0) - mean(lam) for lam in (10.0, fedavg)],
        ),
        at_least(
            "mean of the 21 settings: 3 M is above M and auto on average",
            lambda: [mean(3.0) - mean(lam) for lam in (1.0, auto)],
        ),
        at_most(
            "60 % flipping at alpha 0.1: M is below 3 M on average",
            lambda: [arfl(1.0, 0.1, hard) - arfl(3.0, 0.1, hard)],
        ),
        not_above(
            "60 % flipping at alpha 0.1: 3 M is not above FedAvg",
            lambda: [arfl(3.0, 0.1, hard) - arfl(fedavg, 0.1, hard)],
        ),
        at_most("IID data, but for 60 % flipping: M is within a point of the best in each setting", gaps, 1),
        at_most(
            "worst setting: 0.1 M has at most 20 %",
            lambda: [min((arfl(0.1, *setting) for setting in product(alphas, corrupted)), key=np.mean)],
            20,
        ),
        below(
            "clean data at alpha 0.1: auto is below FedAvg", lambda: [arfl(auto, 0.1, clean) - arfl(fedavg, 0.1, clean)]
        ),
    ]


def label_poisoning(results: Results) -> list[Claim]:
    """Poisoned labels: the corrupted clients' are shuffled, or half or all of them become the next class."""
    shuffled: Values = {"corruption__kind": "shuffling"}
    half, full = ({"corruption__kind": "pairflip", "pairflip__rate": rate} for rate in (0.5, 1.0))

    def ahead(rule: str, labels: Values, fraction: float, alpha: float = 0.1) -> np.ndarray:
        values = {"dirichlet__alpha": alpha, "corruption__fraction": fraction, **labels}
        return lead(results, rule, "fedavg", values)

    rules = ("trimmed_mean", "multi_krum", "rfa", "arfl")
    every = product(rules, (shuffled, half, full), (0.3, 0.4), (1.0, 100.0))
    cases = [case for case in every if case != ("arfl", full, 0.4, 1.0)]  # there ARFL depends on the split
    return [
        at_most(
            "alpha 0.1, 40 % half flipped: the trimmed mean is below FedAvg on average",
            lambda: [ahead("trimmed_mean", half, 0.4)],
        ),
        at_least("alpha 0.1, 40 % half flipped: RFA is above FedAvg on average", lambda: [ahead("rfa", half, 0.4)]),
        at_least(
            "alpha 0.1, 20 and 30 % all flipped: RFA is above FedAvg on average",
            lambda: [ahead("rfa", full, share) for share in (0.2, 0.3)],
        ),
        at_least(
            "alpha 0.1, 20 % all flipped: Multi-Krum is above FedAvg on average",
            lambda: [ahead("multi_krum", full, 0.2)],
        ),
        not_above("alpha 0.1, 40 % all flipped: ARFL is not above FedAvg", lambda: [ahead("arfl", full, 0.4)]),
        at_least(
            "alpha 1 and 100, from 30 % on: no rule is half a point below FedAvg on average, but for ARFL in one "
            "setting",
            lambda: [ahead(*case) for case in cases],
            -0.5,
        ),
    ]


def heterogeneity(results: Results) -> list[Claim]:
    """The worst of three attacks; the learning rate is chosen on validation data."""

    def worst(rule: str, fraction: float, alpha: float = 0.1) -> Setting:
        cases = attack_cases(("sign_flip", "ipm", "alie") if fraction else ["none"])
        values = {"corruption__fraction": fraction, "dirichlet__alpha": alpha}

        def validation(rate: float) -> float:
            chosen = {**values, "client__learning_rate": rate}
            return min(accuracy(results, rule, {**chosen, **case}, VALIDATION).mean() for case in cases)

        rate = max((0.05, 0.2), key=validation)
        return find_worst(results, rule, {**values, "client__learning_rate": rate}, cases)

    def level(rule: str, fraction: float) -> np.ndarray:
        numbers = results.numbers(worst(rule, fraction, 10.0))
        assert numbers is not None
        return numbers

    def ahead(rule: str, baseline: str, fraction: float) -> np.ndarray:
        return difference(results, worst(rule, fraction), worst(baseline, fraction))

    rules, shares = ("multi_krum", "median", "trimmed_mean"), (0.1, 0.2, 0.3, 0.4)
    return [
        not_above(
            "alpha 0.1, 30 %: Multi-Krum, median and trimmed mean are not above FedAvg",
            lambda: [ahead(rule, "fedavg", 0.3) for rule in rules],
        ),
        at_least(
            "alpha 10, 30 %: Multi-Krum, median and trimmed mean have 91 % and more",
            lambda: [level(rule, 0.3) for rule in rules],
            91,
        ),
        at_least(
            "alpha 0.1, 10 to 40 %: RFA is above FedAvg on average",
            lambda: [ahead("rfa", "fedavg", share) for share in shares],
        ),
        above(
            "alpha 0.1, mean of the four shares: RFA is above FedAvg",
            lambda: [np.mean([ahead("rfa", "fedavg", share) for share in shares], axis=0)],
        ),
        at_least("alpha 0.1, 40 %: ARFL is above RFA on average", lambda: [ahead("arfl", "rfa", 0.4)]),
        below("alpha 0.1, no attack: the median is below FedAvg", lambda: [ahead("median", "fedavg", 0.0)]),
        at_least(
            "alpha 10, 40 %: RFA, median and trimmed mean have 89 % and more",
            lambda: [level(rule, 0.4) for rule in ("rfa", "median", "trimmed_mean")],
            89,
        ),
    ]


def grid(results: Results) -> list[Claim]:
    """Each rule under its worst attack, alone and after nearest-neighbor mixing."""
    alone, mixed = {"server__pre_aggregators": ()}, {"server__pre_aggregators": ("nnm",)}
    kinds: dict[Any, dict[str, None]] = {(): {}, ("nnm",): {}}  # attacks by pre-aggregators
    for setting in results.settings:
        kinds.setdefault(results.runs[setting.runs[0]]["server.pre_aggregators"], {}).setdefault(setting.attack)
    every, with_nnm = (attack_cases(kind for kind in kinds[key] if kind != "none") for key in kinds)
    rules = dict.fromkeys(setting.aggregator for setting in results.settings)

    def worst(rule: str, share: float) -> np.ndarray:
        setting = find_worst(results, rule, {**alone, "corruption__fraction": share}, every)
        numbers = results.numbers(setting)
        assert numbers is not None
        return numbers

    def cost(rule: str, share: float) -> np.ndarray:
        """The accuracy without mixing minus the one with it, each under its own worst attack."""
        parts = ({**part, "corruption__fraction": share} for part in (alone, mixed))
        if not with_nnm:
            raise LookupError("nearest-neighbor mixing was not run")
        return difference(results, *(find_worst(results, rule, values, with_nnm) for values in parts))

    def gain(rule: str, share: float, attack: str, reference: str, parts: tuple[Values, Values]) -> np.ndarray:
        kinds = ((part, kind) for part, kind in zip(parts, (attack, reference), strict=True))
        cases = ({**part, "corruption__fraction": share, "attack__kind": kind} for part, kind in kinds)
        return difference(results, *(find(results, rule, case) for case in cases))

    optimized = (("trimmed_mean", "optimal_alie", "alie"), ("krum", "optimal_ipm", "ipm"))
    nine = ("rfa", "median", "multi_krum", "bulyan", "caf", "autogm", "signguard", "flame", "fltrust")
    improved = ("trimmed_mean", "multi_krum", "autogm", "rfa")
    return [
        at_least("40 %: FLTrust has more than 80 %", lambda: [worst("fltrust", 0.4)], 80),
        at_least("40 %: SignGuard has more than 70 %", lambda: [worst("signguard", 0.4)], 70),
        at_most(
            "40 %: but for FLAME, the other rules have less than 80 %",
            lambda: [worst(rule, 0.4) for rule in rules if rule not in ("fltrust", "signguard", "flame")],
            80,
        ),
        at_least("20 %: nine rules have more than 86 %", lambda: [worst(rule, 0.2) for rule in nine], 86),
        at_most(
            "20 %: optimal ALIE is below ALIE for the trimmed mean, optimal IPM below IPM for Krum, on average",
            lambda: [gain(rule, 0.2, optimal, plain, (alone, alone)) for rule, optimal, plain in optimized],
        ),
        at_most("20 %: ARFL has less than 50 %", lambda: [worst("arfl", 0.2)], 50),
        above("40 %: NNM costs SignGuard accuracy", lambda: [cost("signguard", 0.4)]),
        at_least("40 %: NNM costs CAF accuracy on average", lambda: [cost("caf", 0.4)]),
        at_least(
            "40 %: NNM helps SignGuard against the sign flip on average",
            lambda: [gain("signguard", 0.4, "sign_flip", "sign_flip", (mixed, alone))],
        ),
        at_most(
            "30 %: NNM improves trimmed mean, Multi-Krum, AutoGM and RFA by 15 points and more",
            lambda: [cost(rule, 0.3) for rule in improved],
            -15,
        ),
    ]


def combined(results: Results) -> list[Claim]:
    """Corrupted data and false updates at once, also with losses that the server measures (root examples)."""
    false_losses, true_losses = ("ipm_with_false_losses",), ("alie", "ipm", "min_max")
    searching = ("optimal_alie", "optimal_ipm")  # for the strength that does the most harm
    corruptions: list[Values] = [
        {"corruption__kind": kind, "corruption__fraction": share}
        for kind, share in product(("shuffling", "flipping"), (0.3, 0.5))
    ]
    shuffled = corruptions[:2]

    def worst(
        rules: Sequence[str],
        attacks: Sequence[str],
        labels: Sequence[Values] = corruptions,
        weighting: str | None = "arfl",
        num_root: int = 0,
    ) -> Numbers:
        """Of each rule, in the case of labels, attack and share of malicious clients with the lowest mean."""
        fixed = {"server__weighting": weighting, "data__root_examples": num_root, "server__pre_aggregators": ()}
        shares = [{"attack__fraction": share} for share in (0.1, 0.2)]
        cases = [{**a, **b, **c} for a, b, c in product(labels, shares, attack_cases(attacks))]
        every = [results.numbers(find_worst(results, rule, fixed, cases)) for rule in rules]
        return [numbers for numbers in every if numbers is not None]

    pair, alone = ("rfa", "trimmed_mean"), ("arfl", "rfa", "trimmed_mean", "median")
    return [
        at_least(
            "fixed strength, shuffled: RFA and trimmed mean with ARFL's weights have 87 % and more",
            lambda: worst(pair, true_losses, shuffled),
            87,
        ),
        at_most(
            "fixed strength: ARFL alone and each robust rule alone have less than 65 % in some case",
            lambda: worst((*alone, "multi_krum"), true_losses, weighting=None),
            65,
        ),
        at_most(
            "IPM and false losses: RFA and trimmed mean with ARFL's weights have less than 20 % in some case",
            lambda: worst(pair, false_losses),
            20,
        ),
        at_least(
            "fixed strength, server losses: ARFL, and RFA and trimmed mean with its weights, have 87 % and more",
            lambda: worst(("fedavg", *pair), (*true_losses, *false_losses), num_root=100),
            87,
        ),
        at_most(
            "50 % shuffled, optimized attacks: ARFL, RFA, trimmed mean and median alone have less than 60 %",
            lambda: worst(alone, searching, shuffled[1:], weighting=None),
            60,
        ),
        at_least(
            "shuffled, optimized attacks: trimmed mean and median with ARFL's weights have 84 % and more",
            lambda: worst(("trimmed_mean", "median"), searching, shuffled),
            84,
        ),
        at_least(
            "optimized attacks, server losses: RFA and trimmed mean with ARFL's weights have 90 % and more",
            lambda: worst(pair, searching, num_root=100),
            90,
        ),
    ]
