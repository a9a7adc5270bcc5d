"""Tests the conclusions of docs/robustness.md on other splits and seeds.

    python configs/robustness/conclusions.py --splits 15 16 17 18 19

runs the studies of this folder on these splits (`data.seed`), and prints for each conclusion what was measured and a
verdict. Each split has a seed of its own, the same number, so that the intervals contain what the seeds
do; `--seeds` runs the same seeds on all splits. Run folders in `--out` are resumed; complete ones are not run again.

Numbers are percent or percentage points, with 95 % t-intervals over the splits; differences are paired by split and
seed. A verdict holds if it does for each number. "Above" and "below" are confirmed if the interval excludes 0 on that
side. "Not above" is not refuted if the interval is not above 0, which a wide interval is not either. A level, or that
something is so "on average", is confirmed on average if the mean over the splits is on the stated side, whatever the
interval. The worst attack is the one with the lowest mean.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import fedsim
from fedsim.errors import FedsimError
from fedsim.report.statistics import half_width, means_by_split

FOLDER = Path(__file__).parent
FALSE_LOSSES = "ipm_with_false_losses"  # of false_losses.py
FAILED = ("trimmed_mean", "multi_krum", "autogm", "rfa")  # rules that nearest-neighbor mixing improves
ROBUST = ("signguard", "caf")  # rules that it harms

Settings = Mapping[str, Any]  # values of columns of rounds.parquet
Test = Callable[[np.ndarray], bool]  # whether numbers over splits [P] confirm a conclusion


class Conclusion(NamedTuple):
    """A sentence, what confirms it, and its numbers over the splits [P]."""

    text: str
    test: Test
    numbers: Sequence[np.ndarray]

    @property
    def is_confirmed(self) -> bool:
        return all(map(self.test, self.numbers))

    @property
    def verdict(self) -> str:
        """Says whether intervals or only means were looked at."""
        if self.test is not_above:
            return "not refuted" if self.is_confirmed else "refuted"
        return f"{'' if self.is_confirmed else 'not '}confirmed{'' if self.test in (above, below) else ' on average'}"

    @property
    def measured(self) -> str:
        """Means with their intervals; of more than four numbers the lowest and the highest."""
        ordered = sorted(self.numbers, key=np.mean)
        if len(ordered) > 4:
            return f"{_format(ordered[0])} to {_format(ordered[-1])}"
        return ", ".join(map(_format, self.numbers))


def _format(numbers: np.ndarray) -> str:
    half = half_width(numbers)
    return f"{numbers.mean():.1f}" + ("" if half is None else f" ± {half:.1f}")


def above(numbers: np.ndarray) -> bool:
    """Whether the interval is above 0; without an interval it is not."""
    half = half_width(numbers)
    return half is not None and numbers.mean() - half > 0


def below(numbers: np.ndarray) -> bool:
    """Whether the interval is below 0."""
    return above(-numbers)


def not_above(numbers: np.ndarray) -> bool:
    """Whether the interval contains 0 or is below it; without an interval, whether the mean is not above 0."""
    return not above(numbers) if half_width(numbers) is not None else numbers.mean() <= 0


def at_least(level: float) -> Test:
    """Whether the mean is at least `level`."""
    return lambda numbers: numbers.mean() >= level


def at_most(level: float) -> Test:
    """Whether the mean is at most `level`."""
    return lambda numbers: numbers.mean() <= level


def within(points: float) -> Test:
    """Whether the mean is at most `points` from 0."""
    return lambda numbers: abs(numbers.mean()) <= points


class Study:
    """The final accuracies of a study's runs."""

    def __init__(self, rounds: pl.DataFrame) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}
        for row in rounds.filter(pl.col("round") == pl.col("round").max()).to_dicts():
            row["attack.kind"] = row.get("attack.kind", "none").rpartition(":")[2]  # without a plug-in's file
            self._rows.setdefault(row["aggregator"], []).append(row)
        self._num_pairs = len({(row["data.seed"], row["seed"]) for rows in self._rows.values() for row in rows})

    @property
    def rules(self) -> Sequence[str]:
        return tuple(self._rows)

    @property
    def attacks(self) -> Sequence[Settings]:
        """One case for each attack."""
        kinds = dict.fromkeys(row["attack.kind"] for rows in self._rows.values() for row in rows)
        return [{"attack.kind": kind} for kind in kinds]

    def accuracy(self, rule: str, settings: Settings, column: str = "test_accuracy") -> np.ndarray:
        """In percent, of each split [P], averaged over its seeds. Raises `LookupError` unless these are one setting."""
        rows = [row for row in self._rows[rule] if all(row.get(key) == value for key, value in settings.items())]
        if len(rows) != self._num_pairs:
            raise LookupError(f"{rule} with {settings}: expected {self._num_pairs} runs, got {len(rows)}")
        rows.sort(key=lambda row: row["data.seed"])
        return 100 * means_by_split(np.array([row[column] for row in rows]), [row["data.seed"] for row in rows])

    def lead(self, rule: str, baseline: str, settings: Settings) -> np.ndarray:
        """The accuracy of `rule` minus that of `baseline` [P]."""
        return self.accuracy(rule, settings) - self.accuracy(baseline, settings)

    def worst(self, rule: str, settings: Settings, cases: Sequence[Settings]) -> np.ndarray:
        """The accuracy [P] in the case with the lowest mean."""
        return min((self.accuracy(rule, {**settings, **case}) for case in cases), key=np.mean)


def noisy_labels(study: Study) -> Iterator[Conclusion]:
    """FedCorr's label noise; rho is the share of noisy clients, tau their smallest noise rate."""

    def leads(
        rho: float,
        corruption: str = "localized",
        over: Sequence[str] = ("fedavg", "rfa"),
        tau: float | None = None,
        partition: str = "iid",
    ) -> list[np.ndarray]:
        settings = {"fraction": rho, "corruption": corruption, "localized.tau": tau, "data.partition": partition}
        return [study.lead("arfl", rule, settings) for rule in over]

    yield Conclusion("rho 0.8, tau 1: ARFL is above FedAvg and RFA", above, leads(0.8, tau=1.0))
    yield Conclusion("rho 0.8, tau 0.5: ARFL is above FedAvg and RFA", above, leads(0.8, tau=0.5))
    yield Conclusion(
        "rho 0.8, tau 1, Dirichlet(1): ARFL is above FedAvg and RFA", above, leads(0.8, tau=1.0, partition="dirichlet")
    )
    at_04 = [-lead for tau in (0.0, 0.5, 1.0) for lead in leads(0.4, over=["rfa"], tau=tau)]
    yield Conclusion("rho 0.4: ARFL and RFA are within a point of each other at each tau", within(1), at_04)
    at_tau_0 = [lead for rho in (0.2, 0.4, 0.6, 0.8) for lead in leads(rho, over=["rfa"], tau=0.0)]
    yield Conclusion("tau 0: ARFL is not above RFA", not_above, at_tau_0)
    rules = ("fedavg", "trimmed_mean", "rfa")
    yield Conclusion(
        "symmetric noise, rho 0.8: ARFL is above FedAvg, trimmed mean and RFA", above, leads(0.8, "symmetric", rules)
    )
    yield Conclusion("pair flips, rho 0.6: ARFL is above FedAvg and RFA", above, leads(0.6, "pairflip"))


def forged_reports(study: Study) -> Iterator[Conclusion]:
    """False losses and numbers of examples, reported by clients whose labels are shuffled."""
    true: Settings = {"attack.kind": "none"}
    losses: list[Settings] = [{"attack.kind": "fake_loss", "fake_loss.scale": scale} for scale in (0.1, 0.01)]
    counts = {"attack.kind": "fake_counts", "fake_counts.factor": 10.0}

    def arfl(fraction: float, reports: Settings, source: str = "clients") -> np.ndarray:
        return study.accuracy("arfl", {"fraction": fraction, "arfl.source": source, **reports})

    yield Conclusion(
        "50 %: a tenth or a hundredth of the loss breaks ARFL (at most 50 % accuracy)",
        at_most(50),
        [arfl(0.5, reports) for reports in losses],
    )
    measured = [arfl(fraction, reports, "root") for fraction in (0.1, 0.3, 0.5) for reports in (true, *losses)]
    yield Conclusion(
        "with losses that the server measures, false ones have no effect (at least 93 %)", at_least(93), measured
    )
    yield Conclusion("10 %: ARFL resists ten times the examples (at least 90 %)", at_least(90), [arfl(0.1, counts)])
    yield Conclusion(
        "30 %: with ten times the examples ARFL is below its accuracy with true reports",
        below,
        [arfl(0.3, counts) - arfl(0.3, true)],
    )


def choosing_lambda(study: Study) -> Iterator[Conclusion]:
    """ARFL's lambda in units of M; 10^4 M is FedAvg."""
    alphas, fedavg, auto = (0.1, 1.0, 100.0), 1e4, None  # the column of lambda has numbers only
    corrupted: list[Settings] = [
        {"corruption": kind, "fraction": share} for kind in ("shuffling", "flipping") for share in (0.2, 0.4, 0.6)
    ]
    clean: Settings = {"fraction": 0.0}
    scenarios = [clean, *corrupted]

    def arfl(lam: float | None, alpha: float, scenario: Settings) -> np.ndarray:
        return study.accuracy("arfl", {"dirichlet.alpha": alpha, "lam": lam, **scenario})

    def mean(lam: float | None) -> np.ndarray:
        return np.mean([arfl(lam, alpha, scenario) for alpha in alphas for scenario in scenarios], axis=0)

    hard = {"corruption": "flipping", "fraction": 0.6}

    def hardest(lam: float) -> np.ndarray:
        return arfl(lam, 0.1, hard)

    yield Conclusion(
        "mean of the 21 settings: 3 M is above 10 M and FedAvg",
        above,
        [mean(3.0) - mean(lam) for lam in (10.0, fedavg)],
    )
    yield Conclusion(
        "mean of the 21 settings: 3 M is above M and auto on average",
        at_least(0),
        [mean(3.0) - mean(lam) for lam in (1.0, auto)],
    )
    yield Conclusion("60 % flipping at alpha 0.1: M is below 3 M on average", at_most(0), [hardest(1.0) - hardest(3.0)])
    yield Conclusion("60 % flipping at alpha 0.1: 3 M is not above FedAvg", not_above, [hardest(3.0) - hardest(fedavg)])
    gaps = []
    for scenario in [case for case in scenarios if case != hard]:  # where M depends on the seed
        accuracies = [arfl(lam, 100.0, scenario) for lam in (0.1, 0.3, 1.0, 3.0, 10.0, fedavg)]
        gaps.append(max(accuracies, key=np.mean) - arfl(1.0, 100.0, scenario))
    yield Conclusion(
        "IID data, but for 60 % flipping: M is within a point of the best in each setting", at_most(1), gaps
    )
    small = min((arfl(0.1, alpha, scenario) for alpha in alphas for scenario in corrupted), key=np.mean)
    yield Conclusion("worst setting: 0.1 M has at most 20 %", at_most(20), [small])
    yield Conclusion(
        "clean data at alpha 0.1: auto is below FedAvg", below, [arfl(auto, 0.1, clean) - arfl(fedavg, 0.1, clean)]
    )


def label_poisoning(study: Study) -> Iterator[Conclusion]:
    """Poisoned labels: the corrupted clients' are shuffled, or half or all of them become the next class."""
    shuffled: Settings = {"corruption": "shuffling"}
    half, full = ({"corruption": "pairflip", "pairflip.rate": rate} for rate in (0.5, 1.0))

    def lead(rule: str, labels: Settings, fraction: float, alpha: float = 0.1) -> np.ndarray:
        return study.lead(rule, "fedavg", {"dirichlet.alpha": alpha, "fraction": fraction, **labels})

    yield Conclusion(
        "alpha 0.1, 40 % half flipped: the trimmed mean is below FedAvg on average",
        at_most(0),
        [lead("trimmed_mean", half, 0.4)],
    )
    yield Conclusion(
        "alpha 0.1, 40 % half flipped: RFA is above FedAvg on average", at_least(0), [lead("rfa", half, 0.4)]
    )
    yield Conclusion(
        "alpha 0.1, 20 and 30 % all flipped: RFA is above FedAvg on average",
        at_least(0),
        [lead("rfa", full, share) for share in (0.2, 0.3)],
    )
    yield Conclusion(
        "alpha 0.1, 20 % all flipped: Multi-Krum is above FedAvg on average",
        at_least(0),
        [lead("multi_krum", full, 0.2)],
    )
    yield Conclusion("alpha 0.1, 40 % all flipped: ARFL is not above FedAvg", not_above, [lead("arfl", full, 0.4)])
    rules = ("trimmed_mean", "multi_krum", "rfa", "arfl")
    cases = [
        case
        for case in product(rules, (shuffled, half, full), (0.3, 0.4), (1.0, 100.0))
        if case != ("arfl", full, 0.4, 1.0)  # there ARFL depends on the split
    ]
    yield Conclusion(
        "alpha 1 and 100, from 30 % on: no rule is half a point below FedAvg on average, but for ARFL in one setting",
        at_least(-0.5),
        [lead(*case) for case in cases],
    )


def heterogeneity(study: Study) -> Iterator[Conclusion]:
    """The worst of three attacks; the learning rate is chosen on validation data."""
    attacks = [{"attack.kind": kind} for kind in ("sign_flip", "ipm", "alie")]

    def worst(rule: str, fraction: float, alpha: float = 0.1) -> np.ndarray:
        cases = attacks if fraction else [{"attack.kind": "none"}]
        settings = {"fraction": fraction, "dirichlet.alpha": alpha}

        def validation(rate: float) -> float:
            chosen = {**settings, "client.learning_rate": rate}
            return min(study.accuracy(rule, chosen | case, "validation_accuracy").mean() for case in cases)

        rate = max((0.05, 0.2), key=validation)
        return study.worst(rule, {**settings, "client.learning_rate": rate}, cases)

    def lead(rule: str, baseline: str, fraction: float) -> np.ndarray:
        return worst(rule, fraction) - worst(baseline, fraction)

    rules, shares = ("multi_krum", "median", "trimmed_mean"), (0.1, 0.2, 0.3, 0.4)
    yield Conclusion(
        "alpha 0.1, 30 %: Multi-Krum, median and trimmed mean are not above FedAvg",
        not_above,
        [lead(rule, "fedavg", 0.3) for rule in rules],
    )
    yield Conclusion(
        "alpha 10, 30 %: Multi-Krum, median and trimmed mean have 91 % and more",
        at_least(91),
        [worst(rule, 0.3, 10.0) for rule in rules],
    )
    over_mean = [lead("rfa", "fedavg", share) for share in shares]
    yield Conclusion("alpha 0.1, 10 to 40 %: RFA is above FedAvg on average", at_least(0), over_mean)
    yield Conclusion("alpha 0.1, mean of the four shares: RFA is above FedAvg", above, [np.mean(over_mean, axis=0)])
    yield Conclusion("alpha 0.1, 40 %: ARFL is above RFA on average", at_least(0), [lead("arfl", "rfa", 0.4)])
    yield Conclusion("alpha 0.1, no attack: the median is below FedAvg", below, [lead("median", "fedavg", 0.0)])
    at_40 = [worst(rule, 0.4, 10.0) for rule in ("rfa", "median", "trimmed_mean")]
    yield Conclusion("alpha 10, 40 %: RFA, median and trimmed mean have 89 % and more", at_least(89), at_40)


def grid(study: Study, mixed: Study) -> Iterator[Conclusion]:
    """Each rule under its worst attack; `mixed`: after nearest-neighbor mixing."""

    def worst(rule: str, fraction: float) -> np.ndarray:
        return study.worst(rule, {"fraction": fraction}, study.attacks)

    def cost(rule: str, fraction: float) -> np.ndarray:
        """The accuracy without mixing minus the one with it, each under its own worst attack."""
        without, with_nnm = (part.worst(rule, {"fraction": fraction}, mixed.attacks) for part in (study, mixed))
        return without - with_nnm

    robust = ("fltrust", "signguard", "flame")
    yield Conclusion("40 %: FLTrust has more than 80 %", at_least(80), [worst("fltrust", 0.4)])
    yield Conclusion("40 %: SignGuard has more than 70 %", at_least(70), [worst("signguard", 0.4)])
    others = [worst(rule, 0.4) for rule in study.rules if rule not in robust]
    yield Conclusion("40 %: but for FLAME, the other rules have less than 80 %", at_most(80), others)
    nine = ("rfa", "median", "multi_krum", "bulyan", "caf", "autogm", "signguard", "flame", "fltrust")
    yield Conclusion("20 %: nine rules have more than 86 %", at_least(86), [worst(rule, 0.2) for rule in nine])
    optimized = [("trimmed_mean", "alie", "optimal_alie"), ("krum", "ipm", "optimal_ipm")]
    at_20 = lambda rule, attack: study.accuracy(rule, {"fraction": 0.2, "attack.kind": attack})
    yield Conclusion(
        "20 %: optimal ALIE is below ALIE for the trimmed mean, optimal IPM below IPM for Krum, on average",
        at_most(0),
        [at_20(rule, optimal) - at_20(rule, plain) for rule, plain, optimal in optimized],
    )
    yield Conclusion("20 %: ARFL has less than 50 %", at_most(50), [worst("arfl", 0.2)])
    yield Conclusion("40 %: NNM costs SignGuard accuracy", above, [cost("signguard", 0.4)])
    yield Conclusion("40 %: NNM costs CAF accuracy on average", at_least(0), [cost("caf", 0.4)])
    flip = {"fraction": 0.4, "attack.kind": "sign_flip"}
    gain = mixed.accuracy("signguard", flip) - study.accuracy("signguard", flip)
    yield Conclusion("40 %: NNM helps SignGuard against the sign flip on average", at_least(0), [gain])
    yield Conclusion(
        "30 %: NNM improves trimmed mean, Multi-Krum, AutoGM and RFA by 15 points and more",
        at_most(-15),
        [cost(rule, 0.3) for rule in FAILED],
    )


def combined(study: Study, root: Study, optimized: Study) -> Iterator[Conclusion]:
    """Corrupted data and false updates at once; `root`: with losses that the server measures.

    `optimized`: attacks that search for the strength that does the most harm.
    """
    shuffled, flipped = (
        [{"corruption": kind, "fraction": share} for share in (0.3, 0.5)] for kind in ("shuffling", "flipping")
    )
    corruptions: list[Settings] = [*shuffled, *flipped]
    shares = [{"attack.fraction": share} for share in (0.1, 0.2)]

    with_arfl, alone = {"server.weighting": "arfl"}, {"server.weighting": None}

    def worst(
        part: Study, rule: str, settings: Settings, attacks: Sequence[str], labels: Sequence[Settings] = corruptions
    ) -> np.ndarray:
        cases = [{**a, **b, "attack.kind": attack} for a in labels for b in shares for attack in attacks]
        return part.worst(rule, settings, cases)

    true_losses = ("alie", "ipm", "min_max")
    pairs = [worst(study, rule, with_arfl, true_losses, shuffled) for rule in ("rfa", "trimmed_mean")]
    yield Conclusion(
        "fixed strength, shuffled: RFA and trimmed mean with ARFL's weights have 87 % and more", at_least(87), pairs
    )
    rules = ("arfl", "rfa", "trimmed_mean", "median", "multi_krum")
    lowest = [worst(study, rule, alone, true_losses) for rule in rules]
    yield Conclusion(
        "fixed strength: ARFL alone and each robust rule alone have less than 65 % in some case", at_most(65), lowest
    )
    fooled = [worst(study, rule, with_arfl, [FALSE_LOSSES]) for rule in ("rfa", "trimmed_mean")]
    yield Conclusion(
        "IPM and false losses: RFA and trimmed mean with ARFL's weights have less than 20 % in some case",
        at_most(20),
        fooled,
    )
    measured = [worst(root, rule, {}, [*true_losses, FALSE_LOSSES]) for rule in ("fedavg", "rfa", "trimmed_mean")]
    yield Conclusion(
        "fixed strength, server losses: ARFL, and RFA and trimmed mean with its weights, have 87 % and more",
        at_least(87),
        measured,
    )
    searching = ("optimal_alie", "optimal_ipm")
    of_clients, of_server = {"data.root_examples": 0}, {"data.root_examples": 100}
    failing = [
        worst(optimized, rule, alone | of_clients, searching, shuffled[1:])
        for rule in ("arfl", "rfa", "trimmed_mean", "median")
    ]
    yield Conclusion(
        "50 % shuffled, optimized attacks: ARFL, RFA, trimmed mean and median alone have less than 60 %",
        at_most(60),
        failing,
    )
    holding = [
        worst(optimized, rule, with_arfl | of_clients, searching, shuffled) for rule in ("trimmed_mean", "median")
    ]
    yield Conclusion(
        "shuffled, optimized attacks: trimmed mean and median with ARFL's weights have 84 % and more",
        at_least(84),
        holding,
    )
    solved = [worst(optimized, rule, with_arfl | of_server, searching) for rule in ("rfa", "trimmed_mean")]
    yield Conclusion(
        "optimized attacks, server losses: RFA and trimmed mean with ARFL's weights have 90 % and more",
        at_least(90),
        solved,
    )


def sections(run: Callable[..., Study]) -> Iterator[tuple[str, Iterator[Conclusion]]]:
    """The conclusions by section of the page; `run` runs a configuration into a folder, with overrides."""
    sweep = fedsim.sweep
    yield "noisy labels", noisy_labels(run("noisy-labels"))
    yield "false reports", forged_reports(run("forged-reports"))
    yield "lambda", choosing_lambda(run("lambda"))
    yield "poisoned labels", label_poisoning(run("label-poisoning"))
    yield "attacks on non-IID data", heterogeneity(run("heterogeneity"))
    mixed = {"server__aggregator": sweep([*FAILED, *ROBUST]), "corruption__fraction": sweep([0.3, 0.4])}
    yield (
        "every rule and attack",
        grid(run("grid", corruption__fraction=sweep([0.2, 0.3, 0.4])), run("grid", "grid-nnm", preset="nnm", **mixed)),
    )
    rules = sweep(["fedavg", "rfa", "trimmed_mean"])
    root = run("combined", "combined-root", preset="root", server__aggregator=rules)
    optimized = run("combined", "combined-optimized", preset="optimized")
    yield "both at once", combined(run("combined", server__pre_aggregators=[]), root, optimized)


def on_splits(splits: Sequence[int], seeds: Sequence[int] | None = None) -> dict[str, Any]:
    """Overrides that run these splits, each with all `seeds`; without any, with its own number as the seed."""
    if seeds is None:
        return {"data__seed": "seed", "seed": fedsim.sweep(splits)}
    return {"data__seed": fedsim.sweep(splits), "seed": fedsim.sweep(seeds)}


def main() -> None:
    """Runs the studies, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, nargs="+", required=True, help="data.seed, two or more")
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds of every split; default: one, the split's number")
    parser.add_argument("--out", type=Path, default=Path("runs/conclusions"), help="default: %(default)s")
    options = parser.parse_args()
    if len(set(options.splits)) < 2:
        parser.error("--splits: must be two or more, since the intervals are over splits")
    splits = on_splits(options.splits, options.seeds)

    def run(config: str, folder: str | None = None, **overrides: Any) -> Study:
        experiment = fedsim.load(FOLDER / f"{config}.toml", **splits, **overrides)
        return Study(fedsim.run(experiment, out=options.out / (folder or config)).rounds)

    try:
        _print(sections(run))
    except FedsimError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, "conclusions.py: interrupted; the same command resumes\n")


def _print(sections: Iterator[tuple[str, Iterator[Conclusion]]]) -> None:
    verdicts = []
    print("| section | conclusion | measured | verdict |\n| --- | --- | --- | --- |")
    for section, conclusions in sections:
        for conclusion in conclusions:
            verdicts.append(conclusion.verdict)
            print(f"| {section} | {conclusion.text} | {conclusion.measured} | {conclusion.verdict} |", flush=True)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(verdicts).items())
    print(f"\nOf {len(verdicts)} conclusions: {counts}.")


if __name__ == "__main__":
    main()
