"""The paper's results: published numbers, claims on made run folders whose numbers are known, figures, the command."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim import paper, report
from fedsim.aggregators.arfl import optimal_weights
from fedsim.cli.main import main
from fedsim.config.fields import flatten
from fedsim.config.schema import Config
from fedsim.paper import (
    autoweight,
    bound,
    clients,
    convergence,
    fairness,
    fraction,
    heterogeneity,
    intro,
    limits,
    published,
    select,
    table2,
    theory,
    tuning,
)
from fedsim.paper.analyses import ANALYSES
from fedsim.paper.results import RESULTS, of_name
from fedsim.runs.folder import CLIENTS, ROUNDS, RunFolder

CONFIGS = Path(__file__).parents[1] / "configs" / "paper"
COUNTS, CORRUPTED = np.asarray([10, 20, 30, 40]), np.asarray([False, False, False, True])


def run(keys, accuracy, clients=(), loss=None, weight=0.0):
    """A run: its keys, test accuracies (percent, a round apart from round 0), and rows of clients."""
    return {"keys": keys, "accuracy": accuracy, "clients": list(clients), "loss": loss, "weight": weight}


def alphas(round_, alpha, losses=(), accuracy=(), counts=COUNTS, corrupted=CORRUPTED):
    """Rows of all clients in an evaluated round."""
    pad = lambda values: list(values) or [None] * len(counts)
    return [
        (round_, client, int(m), loss, float(a), None, bool(c), test)
        for client, (m, loss, a, c, test) in enumerate(
            zip(counts, pad(losses), alpha, corrupted, pad(accuracy), strict=True)
        )
    ]


def make_folder(path, name, runs, status="complete") -> RunFolder:
    """A run folder with these runs."""
    made = RunFolder(path)
    configs = [flatten(Config(name=name)) | one["keys"] for one in runs]
    rest = {"config": "", "plan": [{}, {}], "groups": [{}, {}], "versions": {"jax": "0.10.2"}}
    rest |= {"device": {"kind": "cpu", "count": 2}, "seconds_compiling": 20.0, "seconds_running": 100.0}
    made.create({"status": status, "runs": configs} | rest)
    rounds, rows = [], []
    for number, (config, one) in enumerate(zip(configs, runs, strict=True)):
        rule = config["server.aggregator"]
        share = len(config["corruption.clients"]) / 4 or config["corruption.fraction"]
        lam = config["arfl.lam"] if rule == "arfl" else None
        for t, accuracy in enumerate(one["accuracy"]):
            loss = one["loss"][t] if one["loss"] else 1.0
            weight = None if t == 0 else one["weight"]
            key = (number, rule, config["corruption.kind"], share, lam, config["seed"], t)
            rounds.append((*key, accuracy / 100, loss, weight, None, None, None, False))
        rows += [(number, *row) for row in one["clients"]]
    for kind, table, schema in [("rounds", rounds, ROUNDS), ("clients", rows, CLIENTS)]:
        columns = zip(*table, strict=True) if table else [[]] * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        pq.write_table(pa.table(arrays, schema=schema), made.path / f"{kind}.parquet")
    return made


@pytest.fixture
def read(tmp_path):
    """Makes a folder of runs and reads it."""
    return lambda name, runs: report.read(make_folder(tmp_path / name, name, runs))


def rule(name, kind="none", share=0.0, **keys):
    """Keys of a run."""
    return {"server.aggregator": name, "corruption.kind": kind, "corruption.fraction": share} | keys


def verdicts(claims):
    return [claim.verdict for claim in claims]


# Published numbers and the registry


def test_published_cells():
    cells = published.cells()
    assert len(cells) == 105
    assert {(c.dataset, c.aggregator) for c in cells} == {
        (d, a) for d in ("cifar10", "femnist", "shakespeare") for a in ("fedavg", "rfa", "multi_krum", "cfl", "arfl")
    }
    cell = published.cell("femnist", "multi_krum", "none", 0.0)
    assert (cell.mean, cell.std) == (79.38, 0.41)
    assert published.cell("femnist", "multi_krum", "collusion", 0.3) is None
    # Sec. 5.2: at 50 % flipping ARFL is 18.5, 14.2 and 9.89 points above the best of the others.
    for dataset, margin in (("cifar10", 18.5), ("femnist", 14.2), ("shakespeare", 9.89)):
        means = {
            c.aggregator: c.mean for c in cells if (c.dataset, c.corruption, c.fraction) == (dataset, "flipping", 0.5)
        }
        assert means.pop("arfl") - max(means.values()) == pytest.approx(margin)


def test_each_result_has_a_configuration_and_an_analysis():
    assert set(RESULTS) == set(ANALYSES) == {path.stem for path in CONFIGS.glob("*.toml")}
    for result in RESULTS.values():
        document = tomllib.loads((CONFIGS / f"{result.id}.toml").read_text())
        assert document["name"] == result.id
        assert "small" in document["budget"]


def test_names():
    assert of_name("table2-cifar10") == (RESULTS["table2-cifar10"], "paper")
    assert of_name("fraction-femnist") == (RESULTS["fraction-femnist"], "paper")
    assert of_name("fraction-femnist-small") == (RESULTS["fraction-femnist"], "small")
    assert of_name("quickstart") is None
    assert of_name("small") is None


# Claims


def test_table2(read):
    cifar = {"data.name": "cifar10"}
    runs = [
        run(rule("arfl", "shuffling", 0.5, seed=seed) | cifar, [10, final]) for seed, final in ((0, 68.0), (1, 70.0))
    ]
    runs += [run(rule("fedavg", "shuffling", 0.5) | cifar, [10, 69.6]), run(rule("arfl", **cifar), [10, 70.0])]
    runs += [run(rule("fedavg", **cifar), [10, 73.59])]
    results = read("table2-cifar10", runs)
    distance, *others = table2.claims(results)
    assert distance.measured == "6.67 on average, +22.60 at most (FedAvg, Shuffling 50 %)"  # of 0, 22.6, 3.42, 0.66
    found = {claim.text.partition(":")[0]: claim for claim in others}
    assert found["Shuffling 50 %"].measured.endswith("(2 rules)")
    assert found["Shuffling 50 %"].holds  # 0.6 below FedAvg, and the published deviation is 0.73
    assert not found["Clean"].holds  # 3.59 points below, and 1 is allowed
    assert found["Flipping 30 %"].verdict == "not run"
    assert found["Shuffling 50 %"].published == "69.66 %: +17.34 to Multi-Krum"
    (grid,) = table2.tables(results)
    assert [row[1:] for row in grid.rows] == [
        ("FedAvg", "73.59 ± 0.44", "73.59", "+0.00"),
        ("ARFL", "73.42 ± 0.40", "70.00", "-3.42"),
        ("FedAvg", "47.00 ± 7.51", "69.60", "+22.60"),
        ("ARFL", "69.66 ± 0.73", "69.00 ± 1.41", "-0.66"),
    ]
    assert [row[0] for row in grid.rows] == ["Clean", "", "Shuffling 50 %", ""]


LAMS = {0.1: [1, 0, 0, 0], 1.0: [0.2, 0.3, 0.5, 0], 3.2: [0.3, 0.3, 0.2, 0.2], 10.0: [0.1, 0.2, 0.3, 0.4]}


def lambda_runs(accuracies=(40, 70, 60, 50)):
    keys = rule("arfl", "shuffling", **{"corruption.clients": [3]})
    return [
        run(keys | {"arfl.lam": lam}, [10, accuracy], alphas(1, alpha))
        for (lam, alpha), accuracy in zip(LAMS.items(), accuracies, strict=True)
    ]


def test_lambda(read):
    results = read("lambda", lambda_runs())
    claims = tuning.claims(results)
    assert verdicts(claims) == ["holds"] * 7
    assert [claim.measured for claim in claims] == [
        "1 at λ = 0.1 M",
        "λ ≤ 1 M",
        "λ = 1 M",
        "4 of 4",
        "70.00 % at 1 M; 40.00 % and 50.00 % at the ends",
        "λ = 1 M",
        "3 clients, 3 benign ones",
    ]
    weights, accuracy = tuning.figures(results)["lambda"].axes
    np.testing.assert_allclose(weights.lines[3].get_ydata(), [0, 0, 20, 40], rtol=1e-6)
    assert weights.lines[3].get_linestyle() == "--"
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), [40, 70, 60, 50])


def test_lambda_whose_claims_fail(read):
    claims = tuning.claims(read("lambda", lambda_runs((60, 40, 50, 70))[1:]))
    assert verdicts(claims) == ["fails", "holds", "holds", "holds", "fails", "fails", "fails"]


def test_autoweight(read):
    keys = {"corruption.clients": [3], "arfl.lam": 1.0}
    path = [[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.5, 0], [0.2, 0.3, 0.4, 0.1], [0.2, 0.3, 0.5, 0], [0.2, 0.3, 0.5, 0]]
    rows = [row for t, alpha in enumerate(path, 1) for row in alphas(t, alpha)]
    runs = [
        run(rule("arfl", "shuffling") | keys, [10, 50, 70, 71, 72, 73], rows),
        run(rule("fedavg", "shuffling") | keys, [10, 50, 50, 50, 50, 60]),
        run(rule("fedavg", "exclude") | keys, [10, 50, 50, 50, 50, 74]),
    ]
    results = read("autoweight", runs)
    claims = autoweight.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds", "-"]
    assert claims[0].measured == "after 4 of 5 rounds"  # it came back in round 3
    # Benign FedAvg: 1/6, 2/6, 3/6. FedAvg: 0.1, 0.2, 0.3, 0.4.
    assert claims[1].measured == "0.033 and 0.400"
    assert claims[3].measured == "73.00 %, 74.00 %, 60.00 %"
    drawn = autoweight.figures(results)
    heights = [bar.get_height() for bar in drawn["weights"].axes[0].containers[0]]
    np.testing.assert_allclose(heights, [20, 30, 50, 0], rtol=1e-6)
    assert autoweight.zero_since(clients.of_run(read("other", runs[:1]), 0)._replace(corrupted=~CORRUPTED)) is None


def test_convergence(read):
    ends = {
        "none": (80, 81, 79, 82),
        "shuffling": (40, 50, 45, 80),
        "flipping": (40, 50, 81, 80),
        "noisy": (70, 78, 79, 80),
    }
    runs = [
        run(rule(name, kind, 0.5 * (kind != "none")), [2, end / 2, end], loss=[4, 2, 100 / end])
        for kind, values in ends.items()
        for name, end in zip(convergence.RULES, values, strict=True)
    ]
    results = read("convergence", runs)
    claims = convergence.claims(results)
    # Shuffling: accuracy, loss; flipping: both fail; clean: spread 3, slowest; noisy: spread 10, not the slowest; and
    # on clean data ARFL's loss is 100/82, the least.
    assert verdicts(claims) == ["holds", "holds", "fails", "fails", "holds", "holds", "fails", "fails", "fails"]
    (figure,) = convergence.figures(results).values()
    assert [panel.get_title() for panel in figure.axes[:4]] == [
        "Clean",
        "Shuffling 50 %",
        "Flipping 50 %",
        "Noisy 50 %",
    ]
    np.testing.assert_allclose(figure.axes[1].lines[3].get_ydata(), [2, 40, 80])
    np.testing.assert_allclose(figure.axes[5].lines[3].get_ydata(), [4, 2, 1.25])


def test_fraction(read):
    ends = {"arfl": {0.0: 72, 0.5: 68, 0.6: 66, 0.9: 30}, "fedavg": {0.0: 73, 0.5: 50, 0.6: 40, 0.9: 20}}
    keys = {"data.name": "cifar10"}
    runs = [
        run(rule(name, "shuffling" if share else "none", share) | keys, [10, end])
        for name, over in ends.items()
        for share, end in over.items()
    ]
    results = read("fraction", runs)
    claims = fraction.claims(results)
    assert verdicts(claims) == ["holds", "fails", "holds", "holds"]
    assert [claim.measured for claim in claims] == [
        "4.00 points: 72.00 % to 68.00 %",
        "6.00 points: 72.00 % to 66.00 %",
        "36.00 points: 66.00 % to 30.00 %",
        "+18.00 points",
    ]
    (figure,) = fraction.figures(results).values()
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [72, 68, 66, 30])


def test_fraction_of_femnist(read):
    claims = fraction.femnist_claims(read("fraction-femnist", [run(rule("arfl", "shuffling", 0.7), [2, 79.5])]))
    assert verdicts(claims) == ["holds"]
    assert claims[0].measured == "79.50 %"


def test_heterogeneity(read):
    curves = {0.1: [10, 20, 30, 10, 40, 10], 1.0: [10, 30, 50, 55, 60, 55], 10.0: [10, 30, 50, 60, 70, 80]}
    keys = {"data.partition": "dirichlet"}
    runs = [
        run(rule("arfl", "shuffling", 0.3) | keys | {"data.dirichlet_alpha": alpha}, curve)
        for alpha, curve in curves.items()
    ]
    results = read("heterogeneity", runs)
    rising, calm = heterogeneity.claims(results)
    assert (rising.verdict, calm.verdict) == ("holds", "holds")
    assert rising.measured == "α = 0.1: 22.00 %, α = 1: 50.00 %, α = 10: 58.00 %"  # without round 0
    # In rounds 3 to 5: steps 30 and -30, 5 and -5, 10 and 10.
    assert calm.measured == "α = 0.1: 30.00, α = 1: 5.00, α = 10: 0.00"
    assert set(heterogeneity.figures(results)) == {"heterogeneity"}


def test_limits(read):
    attack = lambda kind: {"attack.kind": kind}
    runs = [
        run(rule("arfl", "shuffling", 0.5), [10, 70], weight=0.0),
        run(rule("arfl", "collusion", 0.5), [10, 40], weight=0.9),
        run(rule("arfl", "shuffling", 0.3), [10, 71], weight=0.01),
        run(rule("arfl", "shuffling", 0.3) | attack("fake_loss"), [10, 30], weight=0.8),
        run(rule("arfl", "none", 0.3) | attack("sign_flip"), [10, 45], weight=0.3),
        run(rule("fedavg", "none", 0.3) | attack("sign_flip"), [10, 44], weight=0.3),
    ]
    results = read("limits", runs)
    claims = limits.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds", "holds", "fails"]
    assert claims[1].measured == "80.0 % of the weight, 30 % of the clients; 1.0 % with true losses"
    (grid,) = limits.tables(results)
    assert ("30 %: shuffling and false losses", "", "", "30.00", "80.0") in grid.rows
    assert ("30 %: flipped updates", "44.00", "30.0", "45.00", "30.0") in grid.rows


def test_fairness(read):
    counts, corrupted = np.asarray([5, 20, 25, 50]), np.asarray([False, False, False, True])
    accuracy = {0.1: (0.0, 0.2, 0.8, 0.0), 10.0: (0.0, 0.5, 0.9, 0.0)}
    alpha = {0.1: (0.2, 0.0, 0.8, 0.0), 10.0: (0.05, 0.1, 0.35, 0.5)}
    runs = [
        run(
            rule("arfl", "shuffling", 0.25) | {"arfl.lam": lam},
            [1, 50],
            alphas(1, alpha[lam], (), values, counts, corrupted),
        )
        for lam, values in accuracy.items()
    ]
    results = read("fairness", runs)
    claims = fairness.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds"]
    # Client 1: client 0 has too few examples to be called hard. Weights over m/M: 0.2/0.05, 0/0.2, 0.8/0.25.
    assert claims[0].measured == f"0.00 and {(4 + 0 + 3.2) / 3:.2f} of FedAvg's, λ = 0.1 M"
    assert claims[2].measured == "20.0 % and 50.0 %"
    (figure,) = fairness.figures(results).values()
    np.testing.assert_allclose(figure.axes[1].lines[1].get_ydata(), [0, 0.5], atol=1e-6)


# Theorem 2 and the bound


def brute_force(losses, counts, lam):
    """The minimum of Eq. 6 by bisection on eta of alpha_i = m_i [eta - L_i]_+ / lambda."""
    lambda_, low, high = lam * counts.sum(), losses.min(), losses.max() + lam * counts.sum()
    weights = lambda eta: counts * np.maximum(eta - losses, 0) / lambda_
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if weights(middle).sum() < 1 else (low, middle)
    return weights(low), low


@pytest.mark.parametrize("lam", [1e-3, 0.1, 1.0, 100.0])
def test_theorem_2(lam):
    rng = np.random.default_rng(1)
    counts, losses = rng.integers(1, 100, 12), rng.gamma(2.0, size=12).astype(np.float32).astype(float)
    found = theory.optimum(losses, counts, lam)
    alpha, threshold = brute_force(losses, counts, lam)
    np.testing.assert_allclose(found.alpha, alpha, atol=1e-9)
    assert found.threshold == pytest.approx(threshold)
    assert found.num_weighted == (alpha > 0).sum()
    ours = optimal_weights(losses.astype(np.float32), counts, lam)
    for name, value in zip(found._fields, ours, strict=True):
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-4, atol=1e-6)
    least = theory.objective(found.alpha, losses, counts, lam)
    for _ in range(20):
        assert least <= theory.objective(rng.dirichlet(np.ones(12)), losses, counts, lam)


def test_bound(read):
    losses = np.asarray([[2.0, 2.2, 2.4, 2.6], [0.5, 0.6, 0.7, 2.5]])
    found = [theory.optimum(row, COUNTS, 1.0) for row in losses]
    rows = [row for t, best in enumerate(found, 1) for row in alphas(t, best.alpha, losses[t - 1])]
    results = read("bound", [run(rule("arfl", "shuffling", 0.25) | {"arfl.lam": 1.0}, [10, 30, 50], rows)])
    claims = bound.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds"]
    assert claims[1].measured == "in 2 of 2 rounds"
    terms = theory.terms(clients.of_run(results, 0), 1.0)
    np.testing.assert_allclose(
        terms.risk, [best.alpha @ row for best, row in zip(found, losses, strict=True)], rtol=1e-6
    )
    np.testing.assert_allclose(terms.norm, [np.sqrt((best.alpha**2 / COUNTS).sum()) for best in found], rtol=1e-6)
    np.testing.assert_allclose(terms.objective, terms.risk + 50 * terms.norm**2)
    assert terms.num_weighted.tolist() == [best.num_weighted for best in found]
    assert len(bound.figures(results)["bound"].axes) == 4
    wrong = [(*row[:4], 0.25, *row[5:]) for row in rows]
    results = read("wrong", [run(rule("arfl", "shuffling", 0.25) | {"arfl.lam": 1.0}, [10, 30, 50], wrong)])
    assert verdicts(bound.claims(results))[0] == "fails"


def test_last_reported_losses(read):
    """A client that is not in the cohort counts with its last loss; rounds before all have reported are left out."""
    rows = [(1, 0, 10, 2.0, None, 1.0, False, None), (2, 1, 20, 3.0, None, 1.0, False, None)]
    rows += [(3, 0, 10, 1.0, 0.4, 1.0, False, None), (3, 1, 20, None, 0.6, None, False, None)]
    rows += [(1, 0, 10, None, 0.5, None, False, None), (1, 1, 20, None, 0.5, None, False, None)][1:]
    results = read("bound", [run(rule("arfl") | {"arfl.lam": 1.0}, [10, 30, 40, 50], rows)])
    found = clients.of_run(results, 0)
    assert found.rounds.tolist() == [1, 3]
    np.testing.assert_allclose(found.losses, [[2.0, np.nan], [1.0, 3.0]])
    assert theory.terms(found, 1.0).rounds.tolist() == [3]


# Varied commands, pages, and the command line


@pytest.mark.parametrize("id_", RESULTS)
def test_a_varied_run_says_what_was_not_run(tmp_path, id_):
    folder = make_folder(tmp_path / id_, f"{id_}-small", [run(rule("cfl", "exclude", 0.5), [10, 20])])
    page = paper.read_page(folder)
    assert page.budget == "small"
    assert page.claims
    assert set(verdicts(page.claims)) == {"not run"}
    assert paper.make(folder) is not None
    assert "not run" in (folder.path / "paper.md").read_text()


@pytest.mark.parametrize("id_", RESULTS)
def test_a_diverged_run_breaks_nothing(tmp_path, id_):
    keys = {"data.name": RESULTS[id_].id.removeprefix("table2-")} if id_.startswith("table2") else {}
    runs = [run(rule("arfl", "shuffling", 0.5) | keys | {"arfl.lam": lam}, [10, np.nan]) for lam in (1.0, 2.0)]
    assert paper.make(make_folder(tmp_path / id_, id_, runs)) is not None


def test_other_folders_are_left_alone(tmp_path):
    folder = make_folder(tmp_path / "mine", "quickstart", lambda_runs())
    assert paper.make(folder) is None
    assert not (folder.path / "paper.md").exists()


def test_page(tmp_path):
    folder = make_folder(tmp_path / "lambda", "lambda-small", lambda_runs())
    paper.make(folder)
    text = (folder.path / "paper.md").read_text()
    assert text.startswith("# lambda (budget small), Sec. 5.5, Fig. 5: weights and accuracy over lambda\n")
    assert "Made by `fedsim run configs/paper/lambda.toml --budget small`. Measured: 1 rounds, 1 seed" in text
    assert "; 2 x cpu, jax 0.10.2, 2 min. Every key" in text
    assert (
        "| At the smallest λ a single client has all the weight | Sec. 5.5: one client | 1 at λ = 0.1 M | holds |"
        in text
    )
    assert (folder.path / "figures" / "paper-lambda.png").exists()


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "runs" / "whole", "lambda", lambda_runs())
    make_folder(tmp_path / "runs" / "begun", "bound-small", lambda_runs(), status="incomplete")
    (tmp_path / "runs" / "empty").mkdir()
    assert main(["paper"]) == 0
    shown = capsys.readouterr().out
    assert all(result.id in shown for result in RESULTS.values())
    assert re.search(r"runs/begun .* small .* 0 of 2 groups", shown)
    assert re.search(r"runs/whole .* paper .* complete .* 7 of 7 claims hold", shown)
    assert main(["paper", "lambda", "--runs", "runs/whole"]) == 0
    shown = capsys.readouterr().out
    assert "fedsim run configs/paper/lambda.toml --budget small" in shown  # configs/ is not here
    assert "λ ≤ 2.5 M" in shown
    assert "begun" not in shown
    assert main(["report", "runs/whole", "--format", "latex"]) == 0  # its page is written, whatever is shown
    assert (tmp_path / "runs" / "whole" / "paper.md").exists()
    assert main(["paper", "lamda"]) == 2
    assert capsys.readouterr().err == "fedsim: error: no result lamda; did you mean lambda?\n"
    assert main(["paper", "--runs", "nowhere"]) == 2


def test_introductory_example(tmp_path, monkeypatch):
    """A real run: FedAvg alone, fewer rounds and scenarios; the true line has the angle 0, its mirror image 180."""
    for normal, angle in (((1, 1), 0), ((-3, -3), 180), ((1, 0), 45)):
        assert intro.Line(np.asarray(normal, float), 0.0).angle == pytest.approx(angle, abs=1e-5)
    out = tmp_path / "intro"
    keys = ["--server.aggregator", "fedavg", "--server.num-rounds", "20", "--server.eval-every", "20"]
    keys += ["--sweep.corruption.kind", "none", "flipping"]
    monkeypatch.chdir(CONFIGS.parents[1])
    assert main(["run", "configs/paper/intro.toml", *keys, "--out", str(out)]) == 0
    page = paper.read_page(RunFolder(out))
    assert verdicts(page.claims) == ["holds", "not run", "not run", "holds", "not run"]
    flipped = select.one(page.results, {"corruption.kind": "flipping"})
    data = intro.training_data(select.config(page.results, flipped))
    assert len(set(data.y[:60])) == 1  # client 0, as trained on
    assert set(data.y[60:]) == {0, 1}
    assert (out / "figures" / "paper-intro.png").exists()
