"""Published tables on runs with random accuracies: each cell is found, and compared with the right numbers."""

import json
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import fedsim
from fedsim import report
from fedsim.config.components import flatten
from fedsim.report.claims import call
from fedsim.testing import check_attack
from tests.attacks.contexts import MALICIOUS, VALID, make_context, rows
from tests.conftest import load_script
from tests.datasets.build import make_raw
from tests.docs.pages import ROOT
from tests.report.synthetic import write_folder

CONFIGS = ROOT / "configs" / "published"
TABLES = json.loads((CONFIGS / "tables.json").read_text())
SEEDS = fedsim.sweep([5, 6])
MNIST = fedsim.DataSpec("image", 10, (28, 28, 1), "uint8")


def accuracy(run, t):
    """Any number that differs between runs and rounds, the same in each process."""
    return crc32(repr((run, t)).encode()) / 2**32


def claims_of(path, table, change=lambda row: {}, **keys):
    """The claims of all runs of a configuration, and the runs; `change` gives other values of a row of rounds."""
    experiment = fedsim.load(CONFIGS / f"{table}.toml", **{"seed": SEEDS} | keys)
    runs = [flatten(run) for run in experiment.runs()]
    of_column = {"test_accuracy": 1, "test_loss": -1, "backdoor_success": 1, "corrupted_weight": 1}
    rounds = [
        row | change(row)
        for number, run in enumerate(runs)
        for last in [run["server.num_rounds"]]
        for t in (*range(0, last, max(run["server.eval_every"], last // 20)), last)
        for row in [{"run": number, "round": t} | {name: accuracy(run, sign * t) for name, sign in of_column.items()}]
    ]
    sizes = [run["data.num_clients"] for run in runs]
    folder = write_folder(path, runs, {"rounds": rounds}, num_clients=sizes, config=experiment.dump())
    return call(experiment.claims, report.load(folder)), runs


@pytest.mark.parametrize(
    "table", [name for name in TABLES if (CONFIGS / f"{name}.toml").exists() and name != "flanders"]
)
def test_each_cell_has_its_runs_and_other_values_have_no_published_number(tmp_path, table):
    claims, _ = claims_of(tmp_path / "own", table)
    claims = [claim for claim in claims if claim.kind == "published"]
    assert {claim.text for claim in claims} == {*TABLES[table]["cells"]}
    assert {claim.verdict for claim in claims} <= {"agrees", "near", "differs"}
    others, _ = claims_of(tmp_path / "other", table, data__num_train=20_000, seed=5)
    others = [claim for claim in others if claim.kind == "published"]
    assert all(", data.num_train = 20000" in claim.text for claim in others)
    assert {claim.verdict for claim in others} == {"-"}


def test_a_run_that_diverged_differs_and_one_that_is_not_there_does_not(tmp_path):
    lost = lambda row: {"backdoor_success": None} if row["run"] == 0 and row["round"] else {}  # as FoolsGold's would be
    claims, _ = claims_of(tmp_path / "foolsgold", "foolsgold", lost)
    of_run = [claim.verdict for claim in claims if claim.measured.endswith(", 1 of 2 runs diverged")]
    assert of_run == ["differs"]
    for name, seeds in (("krum", 5), ("median", SEEDS)):
        claims_of(tmp_path / name, "bucketing", seed=seeds, server__aggregator=name)
    results = report.load(tmp_path / "krum", tmp_path / "median")
    claims = call(fedsim.load(CONFIGS / "bucketing.toml").claims, results)
    assert {len(claim.numbers[0]) for claim in claims} == {1, 2}
    assert not any("diverged" in claim.measured for claim in claims)


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("bucketing", {"server__pre_aggregators": ["nnm"]}),
        ("bucketing", {"server__pre_aggregators": ["clipping", "bucketing"], "data__partition": "shards"}),
        ("bucketing", {"client__algorithm": "fedavg", "server__learning_rate": 0.1}),  # which belongs to a momentum
        ("foolsgold", {"server__eval_every": 900}),
        ("foolsgold", {"server__num_rounds": 1000}),
        ("foolsgold", {"server__aggregator": "trimmed_mean", "trimmed_mean__num_byzantine": 4}),
        ("heatmaps", {"data__partition": "iid"}),
        ("niid-bench", {"data__partition": "shards"}),
        ("niid-bench", {"client__algorithm": "worker_momentum"}),
        ("readme", {"data__partition": "dirichlet", "dirichlet__alpha": 1.0}),
        ("flanders", {"server__num_rounds": 2}),
        ("label-poisoning", {"corruption__kind": "none"}),
        ("label-poisoning", {"data__partition": "shards"}),
        ("fedprox", {"client__algorithm": "fedavg", "server__num_rounds": 10}),
        ("fedprox", {"data__name": "digits"}),
    ],
)
def test_other_values_are_shown_without_a_published_number(tmp_path, table, keys):
    claims, _ = claims_of(tmp_path / "run", table, **keys)
    assert bool(claims) == (table != "fedprox")  # which has none of other values
    assert {claim.verdict for claim in claims} <= {"-", "not run"}


def test_foolsgold_is_compared_where_the_published_numbers_are(tmp_path):
    """After 2,000 rounds, also of runs that end there or later; its count after 3,000 is first, if they were run."""
    cells = {name for name in TABLES["foolsgold"]["cells"] if name.startswith("FedAvg, ")}
    for rounds in (2000, 2500, 3000):
        keys = {"server__num_rounds": rounds, "server__aggregator": "fedavg"}
        claims, _ = claims_of(tmp_path / f"{rounds}", "foolsgold", **keys)
        assert {claim.text for claim in claims if claim.comparison} == cells
        assert claims[0].text.startswith("After the 3,000 rounds") == (rounds == 3000)


def flanders(name, rounds=3, change=lambda t, u: (1 + t) * u, **settings):
    """What clients send in the last of `rounds` rounds: (contexts of all rounds, drawn [K], rows [K, d])."""
    attack = getattr(load_script(CONFIGS / "attacks.py"), f"flanders_{name}")(num_malicious=3, **settings)
    contexts = [make_context()._replace(malicious=np.ones_like(MALICIOUS)) for _ in range(rounds)]
    for t, context in enumerate(contexts):
        updates = jax.tree.map(lambda u, t=t: change(t, u), context.report.updates)
        report = context.report._replace(updates=updates)
        contexts[t] = context._replace(report=report, variables=jax.tree.map(lambda u, t=t: u[0] / (1 + t), updates))
    state = attack.init(contexts[0].variables, contexts[0].report.num_examples)
    for t, context in enumerate(contexts):
        sent, state = attack.forge_updates(state, context, jax.random.key(t))
    drawn = (rows(sent) != rows(contexts[-1].report.updates)).any(axis=1)
    assert drawn.sum() == (3 if rounds > 2 else 0)
    return contexts, drawn, rows(sent)


def test_attackers_of_flanders_start_in_the_third_round():
    flanders("gaussian", rounds=2)
    everyone = [flanders("gaussian", rounds)[1] for rounds in range(3, 8)]
    assert (np.sum(everyone, axis=0) > 0).sum() > 3  # drawn anew


def test_noise_of_flanders_is_added_to_the_own_model():
    contexts, drawn, sent = flanders("gaussian", std=1e-3)
    noise = (sent - rows(contexts[-1].report.updates))[drawn]
    assert np.std(noise) == pytest.approx(1e-3, rel=5 / np.sqrt(2 * noise.size))


def test_the_lie_of_flanders():
    """All clients count, also malicious ones; Phi and a root of the deviation, as in the program."""
    contexts, drawn, sent = flanders("lie")
    x, n, m = rows(contexts[-1].report.updates)[VALID], VALID.sum(), 3
    z = norm.cdf((n - m - (n // 2 + 1 - m)) / (n - m))
    np.testing.assert_allclose(sent[drawn], np.tile(x.mean(0) - z * np.sqrt(x.std(0)), (3, 1)), rtol=1e-5)


@pytest.mark.parametrize(("spread", "expected"), [(1.0, 6.0), (0.01, None)])
def test_min_max_of_flanders_against_its_program(spread, expected):
    """Six deviations where no step of its search succeeds; with two honest clients far from all others one does."""
    narrow = lambda t, u: jnp.concatenate([u[:1] * 9, -u[:1] * 9, spread * u[2:]]) if expected is None else u
    contexts, drawn, sent = flanders("min_max", change=narrow)
    x, away = rows(contexts[-1].report.updates)[VALID], drawn[VALID]
    diameter = max(np.sum((a - b) ** 2) for a in x[~away] for b in x[~away])
    gamma, step, best = 5.0, 2.5, 6.0
    while abs(best - gamma) > 1e-5 and step > 1e-5:
        is_near = max(np.sum((x.mean(0) - gamma * x.std(0) - a) ** 2) for a in x[~away]) < diameter
        best = gamma if is_near else best
        gamma, step = gamma + (0.5 if is_near else -0.5) * step, step / 2
    assert expected is None or best == expected
    np.testing.assert_allclose(sent[drawn], np.tile(x.mean(0) - best * x.std(0), (3, 1)), rtol=1e-3)


def test_opt_of_flanders_against_its_program():
    """A loop over halved lambdas with Krum on flat models, those of malicious clients in place."""
    contexts, drawn, sent = flanders("opt")
    starts = [rows(jax.tree.map(lambda w: w[None], context.variables))[0] for context in contexts]
    models, clients = starts[-1] + rows(contexts[-1].report.updates), np.flatnonzero(VALID)
    first = np.argmin(contexts[0].report.client_ids)  # client 0 of a whole cohort, in the first round
    reference = starts[0] + rows(contexts[0].report.updates)[first]

    def scores(models):
        distances = np.sum((models[clients][:, None] - models[clients][None]) ** 2, axis=-1)
        return dict(zip(clients, np.sort(distances, axis=1)[:, 1 : len(clients) - 3 - 2 + 1].sum(axis=1), strict=True))

    leaves = jax.tree.leaves(contexts[0].report.updates)
    layers = np.split(models - reference, np.cumsum([u[0].size for u in leaves])[:-1], 1)
    lengths = sum(np.linalg.norm(layer, axis=1) for layer in layers)
    honest = [k for k in clients if not drawn[k]]
    scale = min(scores(models)[k] for k in honest) / ((len(clients) - 2) * (3 - 1) * np.sqrt(len(layers)))
    scale = min(scale + max(lengths[honest] ** 2) / np.sqrt(len(layers)), 999)
    while True:
        corrupted = np.where(drawn[:, None], reference - scale * np.sign(reference), models)
        of_all = scores(corrupted)
        if scale <= 1e-5 or drawn[min(of_all, key=of_all.get)]:
            break
        scale /= 2
    np.testing.assert_allclose(sent[drawn], (corrupted - starts[-1])[drawn], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lie", "min_max", "opt"])
def test_contract_of_the_attacks_of_flanders(name):
    check_attack(getattr(load_script(CONFIGS / "attacks.py"), f"flanders_{name}")(num_malicious=2), skip="jit")


def test_the_best_mu_of_each_run_after_the_first_round(tmp_path):
    """FedProx in NIID-bench; one mu has more seeds than the others."""
    keys = {"client__algorithm": "fedprox", "data__partition": f"{CONFIGS}/partitions.py:niid_iid"}
    _, of_one = claims_of(tmp_path / "one", "niid-bench", fedprox__mu=0.1, seed=fedsim.sweep([5, 6, 7]), **keys)
    _, of_other = claims_of(tmp_path / "other", "niid-bench", fedprox__mu=1.0, seed=SEEDS, **keys)
    results = report.load(tmp_path / "one", tmp_path / "other")
    (claim,) = call(fedsim.load(CONFIGS / "niid-bench.toml").claims, results)
    best = {5: 0.0, 6: 0.0, 7: 0.0}
    for run in (*of_one, *of_other):
        best[run["seed"]] = max(best[run["seed"]], *(100 * accuracy(run, t) for t in range(2, 51, 2)))
    np.testing.assert_allclose(sorted(claim.numbers[0]), sorted(best.values()))


@pytest.mark.parametrize(
    ("num_classes", "expected"),
    [
        (1, "0 1 2 3 4 5 6 7 8 9"),
        (2, "06 13 27 34 46 59 26 67 78 49"),
        (3, "036 147 269 236 347 257 456 157 148 059"),
    ],
)
def test_classes_of_clients_in_niid_bench(num_classes, expected):
    """What its program draws with seed 42."""
    raw = make_raw(np.tile(np.arange(10), 10))
    partition = load_script(CONFIGS / "partitions.py").niid_classes(raw, 10, None, num_classes=num_classes)
    of_clients = ["".join(map(str, sorted({*raw.y[partition == client]}))) for client in range(10)]
    assert " ".join(of_clients) == expected


@pytest.mark.parametrize(("program", "seed", "alpha"), [("niid", 42, 0.1), ("lpa", 1, 1.0)])
def test_dirichlet_partitions_against_their_algorithm_in_lists(program, seed, alpha):
    """Lists of examples that grow class by class; shares of full clients are set to zero, then scaled and cut."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
    generator, rng, clients = np.random.RandomState(seed), np.random.default_rng(3), [[]]
    shuffle = generator.shuffle if program == "niid" else rng.shuffle
    num_draws = 0
    while min(map(len, clients)) < 10:
        clients, num_draws = [[] for _ in range(10)], num_draws + 1
        for k in range(10):
            members = np.where(y == k)[0]
            shuffle(members)
            drawn = generator.dirichlet([alpha] * 10)
            shares = [p if len(c) < 60 else 0.0 for p, c in zip(drawn, clients, strict=True)]
            scaled = np.divide(shares, np.sum(shares))
            cuts = [0, *(int(sum(scaled[: i + 1]) * len(members)) for i in range(9)), len(members)]
            for client, start, end in zip(clients, cuts[:-1], cuts[1:], strict=True):
                client += [*members[start:end]]
    assert (num_draws > 1) == (alpha < 0.5)  # some clients had too few examples
    make = getattr(load_script(CONFIGS / "partitions.py"), f"{program}_dirichlet")
    partition = make(make_raw(y), 10, np.random.default_rng(3), alpha=alpha)
    assert [np.flatnonzero(partition == client).tolist() for client in range(10)] == [sorted(c) for c in clients]


@pytest.mark.parametrize("masks", ["repeated", "new"])
def test_dropout_masks_of_bucketing(masks):
    module = load_script(CONFIGS / "models.py").bucketing_cnn(MNIST, masks=masks)
    x = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    params = module.init(jax.random.key(0), x)
    first, second = (module.apply(params, x, train=True, rngs={"dropout": jax.random.key(i)}) for i in (1, 2))
    assert np.array_equal(first, second) == (masks == "repeated")
    assert not np.allclose(first, module.apply(params, x))


@pytest.mark.parametrize(
    ("name", "number"),
    [("readme_mlp", 159_010), ("readme_cnn", 21_840), ("flanders_mlp", 101_770), ("lpa_softmax", 7_850)],
)
def test_networks_have_the_published_numbers_of_parameters(name, number):
    """As PyTorch counts them for images of 28 x 28 and 10 classes."""
    module = getattr(load_script(CONFIGS / "models.py"), name)(MNIST)
    params = jax.eval_shape(module.init, jax.random.key(0), np.zeros((1, 28, 28, 1), np.float32))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == number


def test_flanders_normalizes_in_training_alone():
    module = load_script(CONFIGS / "models.py").flanders_mlp(MNIST)
    x = np.random.default_rng(0).random((3, 28, 28, 1), np.float32)
    params = module.init(jax.random.key(0), x)
    in_training = module.apply(params, x, train=True, rngs={"dropout": jax.random.key(1)})
    np.testing.assert_allclose(in_training, module.apply(params, (x - 0.5) / 0.5), atol=1e-5)
