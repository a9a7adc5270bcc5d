"""Claims about the clients' weights: over lambda, over rounds, and of the hardest client."""

import numpy as np

from fedsim.paper import autoweight, client_history, fairness, lambda_sweep, make_figures, make_page
from fedsim.paper.analyses import ANALYSES, check_claims
from fedsim.paper.seed_margin import Margin
from fedsim.runs.folder import RunFolder
from tests.paper.run_folders import CORRUPTED, alphas, lambda_runs, read, rule, run, verdicts


def test_lambda(tmp_path):
    results = read(tmp_path, "lambda", lambda_runs())
    claims = lambda_sweep.claims(results)
    assert verdicts(claims) == ["holds"] * 7
    assert [claim.measured for claim in claims] == [
        "1 at λ = 0.1 M",
        "λ ≤ 1 M",
        "λ = 1 M",
        "4 of 4",
        "70.00 % at 1 M; 40.00 % and 50.00 % at the ends",
        "70.00 % at 1 M, 60.00 % at 3.2 M",
        "3 clients with weight, 3 benign",
    ]
    weights, accuracy = lambda_sweep.figures(results)["lambda"].axes
    np.testing.assert_allclose(weights.lines[3].get_ydata(), [0, 0, 20, 40], rtol=1e-6)
    assert weights.lines[3].get_linestyle() == "--"
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), [40, 70, 60, 50])


def test_lambda_whose_claims_fail(tmp_path):
    claims = lambda_sweep.claims(read(tmp_path, "lambda", lambda_runs((60, 40, 50, 70))[1:]))
    assert verdicts(claims) == ["fails", "holds", "holds", "holds", "fails", "fails", "fails"]


def test_a_split_counts_as_all_of_its_seeds(tmp_path):
    """Three splits with two seeds; in one run the corrupted client gets all the weight at the smallest lambda."""

    def draw(split, seed):
        runs = lambda_runs([accuracy + split - seed for accuracy in (40, 70, 60, 50)])
        if (split, seed) == (1, 1):
            runs[0] = runs[0] | {"clients": alphas(1, [0, 0, 0, 1])}
        return [one | {"keys": one["keys"] | {"data.seed": split, "seed": seed}} for one in runs]

    runs = [one for split in range(3) for seed in range(2) for one in draw(split, seed)]
    results = read(tmp_path, "lambda", runs)
    claims = check_claims(ANALYSES["lambda"], results)
    single, zero_up_to, *_, near_paper, _ = claims
    assert (single.margin.text, single.verdict) == ("3 of 3 splits", "holds")
    assert (zero_up_to.margin.text, zero_up_to.verdict, zero_up_to.measured) == (
        "2 of 3 splits, 1 in part",
        "open",
        "λ ≤ 1 M; not at the smallest λ in 1 of 6 runs",
    )
    assert (near_paper.margin.over, near_paper.margin.values) == ("split", (10.0, 10.0, 10.0))
    _, accuracy = make_figures(make_page(RunFolder(tmp_path / "lambda")))["lambda"].axes
    (band,) = accuracy.collections
    lowest, highest = band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()
    np.testing.assert_allclose((lowest, highest), (40 - 0.5, 70 + 2 - 0.5), rtol=1e-5)  # of the means over seeds


def test_splits_that_not_all_settings_have(tmp_path):
    """Runs are compared with those of the same split; a run without clients' weights does not count as a seed."""
    keys = {"data.name": "digits"}
    draw = lambda name, split, seed, final: run(
        rule(name, "shuffling", 0.5, **keys, **{"data.seed": split, "seed": seed}), [10, final]
    )
    runs = [draw("arfl", split, seed, 90 - 10 * split + seed) for split in range(5) for seed in range(3)]
    runs += [draw("fedavg", 0, seed, 60 + seed) for seed in range(3)]
    above, *_ = check_claims(ANALYSES["table2-digits"], read(tmp_path, "table2-digits", runs))
    assert (above.margin.text, above.verdict) == ("+30.00 points", "holds (preliminary)")

    runs = [
        one | {"keys": one["keys"] | {"data.seed": split, "seed": seed}}
        for split in range(3)
        for seed in range(2)
        for one in lambda_runs()
    ]
    runs[-1] = runs[-1] | {"clients": []}
    claims = check_claims(ANALYSES["lambda"], read(tmp_path, "lambda", runs))
    assert {claim.margin.num_seeds for claim in claims} == {3}
    assert {claim.margin.over for claim in claims} == {"split"}


def test_a_split_with_diverged_runs():
    margin = Margin.from_values([np.inf, -0.5, -0.5, np.inf, -np.inf, 1.0, 2.0, np.nan, 4.0])
    assert margin.over_splits([0, 0, 0, 1, 1, 1, 2, 2, 2]).values == (-0.5, -np.inf, 3.0)


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
    claims = autoweight.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds", "-"]
    assert claims[0].measured == "after 4 of 5 rounds"  # it came back in round 3
    # Benign FedAvg: 1/6, 2/6, 3/6. FedAvg: 0.1, 0.2, 0.3, 0.4.
    assert claims[1].measured == "0.033 and 0.400"
    assert claims[3].measured == "73.00 %, 74.00 %, 60.00 %"
    drawn = autoweight.figures(results)
    heights = [bar.get_height() for bar in drawn["weights"].axes[0].containers[0]]
    np.testing.assert_allclose(heights, [20, 30, 50, 0], rtol=1e-6)
    of_run = client_history.read_history(read(tmp_path, "other", runs[:1]), 0)
    assert autoweight.zero_since(of_run._replace(corrupted=~CORRUPTED)) is None


def test_fairness(tmp_path):
    num_examples, corrupted = np.asarray([5, 20, 25, 50]), np.asarray([False, False, False, True])
    accuracy = {0.1: (0.0, 0.2, 0.8, 0.0), 10.0: (0.0, 0.5, 0.9, 0.0)}
    alpha = {0.1: (0.2, 0.0, 0.8, 0.0), 10.0: (0.05, 0.1, 0.35, 0.5)}
    runs = [
        run(
            rule("arfl", "shuffling", 0.25, **{"arfl.lam": lam}),
            [1, 50],
            alphas(1, alpha[lam], (), values, num_examples, corrupted),
        )
        for lam, values in accuracy.items()
    ]
    results = read(tmp_path, "fairness", runs)
    claims = fairness.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds"]
    # Client 1: client 0 has too few examples to be called hard. Weights over m/M: 0.2/0.05, 0/0.2, 0.8/0.25.
    assert claims[0].measured == f"0.00 and {(4 + 0 + 3.2) / 3:.2f} of FedAvg's, λ = 0.1 M"
    assert claims[2].measured == "20.0 % and 50.0 %"
    (figure,) = fairness.figures(results).values()
    np.testing.assert_allclose(figure.axes[1].lines[1].get_ydata(), [0, 0.5], atol=1e-6)


def test_fairness_compares_equal_seeds(tmp_path):
    num_examples, corrupted = np.asarray([30, 20]), np.asarray([False, False])
    rows = alphas(1, (0.5, 0.5), (), (0.5, 0.6), num_examples, corrupted)
    runs = [run(rule("arfl", "none", 0.0, **{"arfl.lam": lam, "seed": int(lam)}), [1], rows) for lam in (1.0, 2.0)]
    assert len(fairness.compute_hardest_clients(read(tmp_path, "fairness", runs))) == 1
