"""The paper's claims on artificial runs, and Theorem 2 compared with bisection and the rule."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim import report
from fedsim.aggregators.arfl_weights import arfl_weights
from fedsim.config.components import flatten
from fedsim.config.resolve import schema
from fedsim.report import style
from fedsim.report.claims import NO_VERDICT, Claim, call
from fedsim.report.results import Results
from tests.aggregators.test_arfl import by_bisection
from tests.conftest import load_script
from tests.report.synthetic import write_folder

CONFIGS = Path(__file__).parents[2] / "configs" / "paper"
claims, weights = load_script(CONFIGS / "claims.py"), load_script(CONFIGS / "weights.py")
STUDIES = sorted(path.stem for path in CONFIGS.glob("*.toml"))
COUNTS, CORRUPTED = np.asarray([10, 20, 30, 40]), np.asarray([False, False, False, True])
ROW = dict[str, Any]
LAMS = {0.1: [1, 0, 0, 0], 1.0: [0.2, 0.3, 0.5, 0], 3.2: [0.3, 0.3, 0.2, 0.2], 10.0: [0.1, 0.2, 0.3, 0.4]}


def rule(name: str, kind: str = "none", share: float = 0.0, **keys) -> ROW:
    """Keys of a run."""
    return {"server.aggregator": name, "corruption.kind": kind, "corruption.fraction": share} | keys


def run(keys: ROW, accuracy: Sequence[float], clients: Iterable[ROW] = (), loss=None, weight: float = 0.0) -> ROW:
    """A run: its keys, test accuracies (percent, a round apart from round 0), and rows of clients."""
    return {"keys": keys, "accuracy": accuracy, "clients": list(clients), "loss": loss, "weight": weight}


def alphas(round_: int, alpha, losses=(), accuracy=(), num_examples=COUNTS, corrupted=CORRUPTED) -> list[ROW]:
    """Rows of all clients in an evaluated round."""
    or_none = lambda values, client: float(values[client]) if len(values) else None
    return [
        {
            "round": round_,
            "client_id": client,
            "num_examples": int(num_examples[client]),
            "loss": or_none(losses, client),
            "alpha": float(alpha[client]),
            "corrupted": bool(corrupted[client]),
            "test_accuracy": or_none(accuracy, client),
        }
        for client in range(len(num_examples))
    ]


def read(path: Path, name: str, runs: Sequence[ROW]) -> Results:
    """Makes a folder of runs below `path` and reads it."""
    of_run = lambda run_: {"name": name, "server.num_rounds": max(len(run_["accuracy"]) - 1, 1)} | run_["keys"]
    configs = [flatten(schema().resolve(of_run(run_))) for run_ in runs]
    rounds = [
        {
            "run": number,
            "round": t,
            "test_accuracy": accuracy / 100,
            "test_loss": run_["loss"][t] if run_["loss"] else 1.0,
            "corrupted_weight": None if t == 0 else run_["weight"],
        }
        for number, run_ in enumerate(runs)
        for t, accuracy in enumerate(run_["accuracy"])
    ]
    clients = [{"run": number} | row for number, run_ in enumerate(runs) for row in run_["clients"]]
    rows = {"rounds": rounds, "clients": clients}
    return report.load(write_folder(path / name, configs, rows, config=f'name = "{name}"'))


def verdicts(claims: Iterable[Claim]) -> list[str]:
    """The verdict of each claim; of one without an interval, that of its mean."""
    words = {True: "holds", False: "fails"}
    return [
        words[c.numbers[0].mean() >= 0] if c.verdict == "open" and c.kind == "direction" else c.verdict for c in claims
    ]


def in_percent(ends):
    """Runs of a rule by share of shuffled clients."""
    return [
        run(rule(name, "shuffling" if share else "none", share), [10, end])
        for name, over in ends.items()
        for share, end in over.items()
    ]


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("case", ["other runs", "diverged", "no rounds"])
def test_claims_of_runs_that_do_not_show_them(tmp_path, study, case):
    """Each configuration names a function; without its runs, nothing holds or fails."""
    lams = (1.0, 2.0) if study in ("lambda", "fairness", "bound") else (1.0,)
    arfl = [rule("arfl", "shuffling", 0.5) | {"arfl.lam": lam} for lam in lams]
    runs = {
        "other runs": [run(rule("cfl", "exclude", 0.5), [10, 20])],
        "diverged": [run(keys, [10, np.nan]) for keys in arfl],
        "no rounds": [run(keys, [10]) for keys in arfl],
    }[case]
    every = call(fedsim.load(CONFIGS / f"{study}.toml").claims, read(tmp_path, study, runs))
    assert {claim.verdict for claim in every} <= {"not run", "-", "open"}


def test_published_accuracies():
    """Sec. 5.2: at 50 % flipping ARFL is 18.5, 14.2 and 9.89 points above the best other rule."""
    for data, margin in (("cifar10", 18.5), ("femnist", 14.2), ("shakespeare", 9.89)):
        published = claims.read_published(data)
        assert len(published) == 35
        means = {name: published[name, "flipping", 0.5][0] for name in claims.RULES}
        assert means.pop("arfl") - max(means.values()) == pytest.approx(margin)
    assert claims.read_published("digits") == {}


def test_table2(tmp_path):
    cifar = {"data.name": "cifar10"}
    shuffled = rule("arfl", "shuffling", 0.5, **cifar)
    runs = [run(shuffled | {"seed": seed}, [10, final]) for seed, final in ((0, 68.0), (1, 70.0))]
    runs += [run(rule("fedavg", "shuffling", 0.5, **cifar), [10, 69.6]), run(rule("arfl", **cifar), [10, 70.0])]
    runs += [run(rule("fedavg", **cifar), [10, 73.59])]
    headline, _, *every = claims.table2(read(tmp_path, "table2-cifar10", runs))
    # Seed 0 alone has both rules.
    assert (headline.published, headline.margin("seed")) == ("+22.66 points", "-1.60 points")
    by_text = {claim.text: claim for claim in every}
    expected = "6.67 on average over 4 settings, +22.60 at most (FedAvg, Shuffling 50 %)"  # of 0, 22.6, 3.42, 0.66
    assert by_text["Percentage points between measured and published means"].measured == expected
    assert by_text["ARFL, Shuffling 50 %: accuracy (%)"].published == "69.66 ± 0.73"
    assert by_text["ARFL, Shuffling 50 %: accuracy (%)"].measured == "69.00 ± 1.41"
    best = by_text["Shuffling 50 %: ARFL is best, or within its published standard deviation of the best"]
    assert (best.measured, best.verdict) == ("69.00 %: -1.60 to FedAvg (2 of 5 rules)", NO_VERDICT)
    assert best.published == "69.66 %: +17.34 to Multi-Krum"
    for scenario, name in product((("shuffling", 0.5), ("none", 0.0)), ("rfa", "multi_krum", "cfl")):
        runs.append(run(rule(name, *scenario, **cifar), [10, 20.0]))
    by_text = {claim.text: claim for claim in claims.table2(read(tmp_path / "all", "table2-cifar10", runs))}
    best, clean = by_text[best.text], by_text["Clean: ARFL is within 1 point of the best"]
    assert best.numbers[0] == pytest.approx([68.0 - 69.6 + 0.73])  # the published deviation is 0.73
    assert clean.numbers[0] == pytest.approx([70.0 - 73.59 + 1])  # 1 point is allowed


def test_the_best_rule_is_compared_on_common_seeds(tmp_path):
    """RFA has a higher mean than FedAvg, but only because it lacks the seed that is hard for every rule."""
    finals = {"arfl": (80, 80, 50), "fedavg": (79, 79, 49), "rfa": (77, 77), "multi_krum": (9,), "cfl": (9,)}
    runs = [
        run(rule(name, "shuffling", 0.5, **{"data.name": "digits", "seed": seed}), [10, final])
        for name, of_seeds in finals.items()
        for seed, final in enumerate(of_seeds)
    ]
    every = claims.table2(read(tmp_path, "table2-digits", runs))
    (best,) = (claim for claim in every if claim.numbers and "best" in claim.text)
    assert best.measured == "70.00 %: +1.00 to FedAvg"
    np.testing.assert_allclose(best.numbers[0], [2, 2, 2])


def test_splits_that_not_all_settings_have(tmp_path):
    """Runs are compared with those of the same split; three seeds of one split are one number."""

    def draw(name, split, seed, final):
        keys = {"data.name": "digits", "data.seed": split, "seed": seed}
        return run(rule(name, "shuffling", 0.5, **keys), [10, final])

    runs = [draw("arfl", split, seed, 90 - 10 * split + seed) for split in range(5) for seed in range(3)]
    runs += [draw("fedavg", 0, seed, 60 + seed) for seed in range(3)]
    above, *_ = claims.table2(read(tmp_path, "table2-digits", runs))
    assert (above.margin("split"), above.verdict) == ("+30.00 points", "open")


def test_convergence(tmp_path):
    ends = {
        "none": (80, 81, 79, 82),
        "shuffling": (40, 50, 45, 80),
        "flipping": (40, 50, 81, 80),
        "noisy": (70, 78, 79, 80),
    }
    runs = [
        run(rule(name, kind, 0.0 if kind == "none" else 0.5), [2, end / 2, end], loss=[4, 2, 100 / end])
        for kind, values in ends.items()
        for name, end in zip(("fedavg", "rfa", "multi_krum", "arfl"), values, strict=True)
    ]
    every = claims.convergence(read(tmp_path, "convergence", runs))
    # Shuffling: accuracy, loss; flipping: both fail; clean: spread 3, slowest; noisy: spread 10, not the slowest; and
    # on clean data ARFL's loss is 100/82, the least.
    assert verdicts(every) == ["holds", "holds", "fails", "fails", "holds", "holds", "fails", "fails", "fails"]
    assert every[5].measured == "FedAvg 40.67, RFA 41.17, Multi-Krum 40.17, ARFL 41.67 %"  # (2 + 40 + 80) / 3


def test_convergence_where_all_other_rules_diverge(tmp_path):
    ends = {"fedavg": (40, np.nan), "rfa": (50, np.nan), "multi_krum": (45, np.nan), "arfl": (80, 0.5)}
    runs = [run(rule(name, "shuffling", 0.5), [2, end], loss=[4, loss]) for name, (end, loss) in ends.items()]
    highest, lowest, *_ = claims.convergence(read(tmp_path, "convergence", runs))
    assert verdicts([highest, lowest]) == ["holds", "-"]
    assert lowest.measured == "FedAvg nan, RFA nan, Multi-Krum nan, ARFL 0.50 nats"


def test_fraction(tmp_path):
    ends = {"arfl": {0.0: 72, 0.5: 68, 0.6: 66, 0.9: 30}, "fedavg": {0.0: 73, 0.5: 50, 0.6: 40, 0.9: 20}}
    every = claims.fraction(read(tmp_path, "fraction", in_percent(ends)))
    assert verdicts(every) == ["holds", "fails", "holds", "holds"]
    assert [claim.measured for claim in every] == [
        "4.00 points: 72.00 % to 68.00 %",
        "6.00 points: 72.00 % to 66.00 %",
        "36.00 points: 66.00 % to 30.00 %",
        "68.00 % and 50.00 %",
    ]
    results = read(tmp_path, "fraction-femnist", in_percent({"arfl": {0.7: 79.5}, "fedavg": {0.0: 85.0}}))
    assert [claim.measured for claim in claims.fraction_femnist(results)] == ["79.50 %", "FedAvg, 0 %: 85.00 %"]


def test_a_split_counts_as_all_of_its_seeds(tmp_path):
    """Three splits with two seeds; in one run the corrupted client gets all the weight at the smallest lambda."""

    def draw(split, seed):
        keys = rule("arfl", "shuffling", **{"corruption.clients": [3], "data.seed": split, "seed": seed})
        runs = [
            run(keys | {"arfl.lam": lam}, [10, accuracy + split - seed], alphas(1, alpha))
            for (lam, alpha), accuracy in zip(LAMS.items(), (40, 70, 60, 50), strict=True)
        ]
        if (split, seed) == (1, 1):
            runs[0]["clients"] = alphas(1, [0, 0, 0, 1])
        return runs

    runs = [one for split in range(3) for seed in range(2) for one in draw(split, seed)]
    single, zero_up_to, *_, near_paper, _ = weights.lambda_(read(tmp_path, "lambda", runs))
    assert (single.margin("split"), single.verdict) == ("3 of 3 splits", "holds")
    assert (zero_up_to.margin("split"), zero_up_to.verdict, zero_up_to.measured) == (
        "2 of 3 splits, 1 in part",
        "open",
        "λ ≤ 1 M; not at the smallest λ in 1 of 6 runs",
    )
    assert near_paper.numbers[0].tolist() == pytest.approx([10.0, 10.0, 10.0])


def test_autoweight(tmp_path):
    keys = {"corruption.clients": [3]}
    path = [[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.5, 0], [0.2, 0.3, 0.4, 0.1], [0.2, 0.3, 0.5, 0], [0.2, 0.3, 0.5, 0]]
    rows = [row for t, alpha in enumerate(path, 1) for row in alphas(t, alpha)]
    runs = [
        run(rule("arfl", "shuffling", **keys), [10, 50, 70, 71, 72, 73], rows),
        run(rule("fedavg", "shuffling", **keys), [10, 50, 50, 50, 50, 60]),
        run(rule("fedavg", "exclude", **keys), [10, 50, 50, 50, 50, 74]),
    ]
    results = read(tmp_path, "autoweight", runs)
    every = weights.autoweight(results)
    assert verdicts(every) == ["holds", "holds", "holds", "-"]
    assert every[0].measured == "after 4 of 5 rounds"  # it came back in round 3
    # Benign FedAvg: 1/6, 2/6, 3/6. FedAvg: 0.1, 0.2, 0.3, 0.4.
    assert every[1].measured == "0.033 and 0.400"
    assert every[3].measured == "73.00 %, 74.00 %, 60.00 %"
    with style.context():
        heights = [bar.get_height() for bar in weights.figures(results)["paper-autoweight"].axes[0].containers[0]]
    np.testing.assert_allclose(heights, [20, 30, 50, 0], rtol=1e-6)
    (history, *_) = weights.read_histories(results, results.find(server__aggregator="arfl"))
    assert weights._zero_since(history._replace(corrupted=~CORRUPTED)) is None


def test_fairness(tmp_path):
    num_examples, corrupted = np.asarray([5, 20, 25, 50]), np.asarray([False, False, False, True])
    accuracy = {0.1: (0.0, 0.2, 0.8, 0.0), 10.0: (0.0, 0.5, 0.9, 0.0)}
    alpha = {0.1: (0.2, 0.0, 0.8, 0.0), 10.0: (0.05, 0.1, 0.35, 0.5)}
    of_lam = lambda lam: alphas(1, alpha[lam], (), accuracy[lam], num_examples, corrupted)
    runs = [run(rule("arfl", "shuffling", 0.25, **{"arfl.lam": lam}), [1, 50], of_lam(lam)) for lam in accuracy]
    every = weights.fairness(read(tmp_path, "fairness", runs))
    assert verdicts(every) == ["holds", "holds", "holds"]
    # Client 1: client 0 has too few examples to be called hard. Weights over m/M: 0.2/0.05, 0/0.2, 0.8/0.25.
    assert every[0].measured == f"0.00 and {(4 + 0 + 3.2) / 3:.2f} of FedAvg's, λ = 0.1 M"
    assert every[2].measured == "20.0 % and 50.0 %"


@pytest.mark.parametrize("lam", [1e-3, 0.1, 1.0, 100.0])
def test_theorem_2(lam):
    rng = np.random.default_rng(1)
    num_examples, losses = rng.integers(1, 100, 12), rng.gamma(2.0, size=12).astype(np.float32).astype(float)
    alpha, threshold = weights.compute_optimum(losses, num_examples, lam)
    np.testing.assert_allclose(alpha, by_bisection(losses, num_examples, lam), atol=1e-9)
    best = losses.argmin()
    assert threshold == pytest.approx(losses[best] + lam * num_examples.sum() * alpha[best] / num_examples[best])
    ours = arfl_weights(losses.astype(np.float32), num_examples, lam)
    np.testing.assert_allclose(ours.alpha, alpha, rtol=1e-4, atol=1e-6)
    least = weights.compute_objective(alpha, losses, num_examples, lam)
    assert (least <= weights.compute_objective(rng.dirichlet(np.ones(12), 20), losses, num_examples, lam)).all()


def test_bound(tmp_path):
    losses = np.asarray([[2.0, 2.2, 2.4, 2.6], [0.5, 0.6, 0.7, 2.5]])
    best = [weights.compute_optimum(row, COUNTS, 1.0)[0] for row in losses]
    rows = [row for t, alpha in enumerate(best, 1) for row in alphas(t, alpha, losses[t - 1])]
    keys = rule("arfl", "shuffling", 0.25, **{"arfl.lam": 1.0})
    every = weights.bound(read(tmp_path, "bound", [run(keys, [10, 30, 50], rows)]))
    assert verdicts(every) == ["holds", "holds", "holds"]
    objective = [alpha @ loss + 50 * (alpha**2 / COUNTS).sum() for alpha, loss in zip(best, losses, strict=True)]
    assert every[1].measured == "in 2 of 2 rounds"
    assert every[2].measured == f"λ = 1 M: {objective[0]:.3f} to {objective[1]:.3f}"
    wrong = [row | {"alpha": 0.25} for row in rows]
    assert verdicts(weights.bound(read(tmp_path, "wrong", [run(keys, [10, 30, 50], wrong)])))[0] == "fails"


def test_last_reported_losses(tmp_path):
    """A client that is not in the cohort counts with its last loss; rounds before all have reported are left out."""

    def row(round_, client, loss, alpha):
        of_client = {"client_id": client, "num_examples": (10, 20)[client], "corrupted": False}
        return of_client | {"round": round_, "loss": loss, "alpha": alpha}

    rows = [row(1, 0, 2.0, 0.5), row(1, 1, None, 0.5), row(2, 1, 3.0, None), row(3, 0, 1.0, 0.4), row(3, 1, None, 0.6)]
    results = read(tmp_path, "bound", [run(rule("arfl"), [10, 30, 40, 50], rows)])
    (history,) = weights.read_histories(results, results.settings[0])
    assert history.rounds.tolist() == [1, 3]
    np.testing.assert_allclose(history.losses, [[2.0, np.nan], [1.0, 3.0]])
    assert len(weights.compute_terms(history, 1.0).objective) == 1
    evaluated = [{**results.runs[0], "record.clients": "evaluated"}]
    (history,) = weights.read_histories(replace(results, runs=tuple(evaluated)), results.settings[0])
    np.testing.assert_allclose(history.losses, [[2.0, np.nan], [1.0, np.nan]])


@pytest.mark.parametrize(("normal", "angle"), [((1, 1), 0), ((-3, -3), 180), ((1, 0), 45)])
def test_angles(normal, angle):
    assert weights._angles(np.asarray([[*normal, 0.0]], float)) == pytest.approx([angle], abs=1e-5)
