"""Everything built in keeps its contract; faulty components violate their clause, with a message of one line."""

import importlib
import inspect
from functools import partial

import jax
import numpy as np
import pytest

import fedsim
from fedsim import DataSpec, testing
from fedsim.config.kinds import KINDS
from fedsim.config.registry import built_in_factories, find
from fedsim.core.task import classification, regression
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.federated import to_raw
from tests.conftest import make_dataset
from tests.datasets.build import build_dataset
from tests.testing import (
    faulty_aggregators,
    faulty_pre_aggregators,
    test_algorithms,
    test_attacks,
    test_corruptions,
    test_tasks,
)

CHECKS = {
    "server.aggregator": testing.check_aggregator,
    "server.pre_aggregators": testing.check_pre_aggregator,
    "attack.kind": testing.check_attack,
    "client.algorithm": testing.check_algorithm,
    "corruption.kind": testing.check_corruption,
}


SKIPPED = {  # clauses that are violated on purpose
    "inf": ["finite"],
    "fltrust": ["identical"],
    "flame": ["identical"],
    "foolsgold": ["identical"],
    "adaptive_clipping": ["identical"],
    "quantization": ["identical"],
}


SIMULATED = ("fake_loss", "sign_flip", "mimic", "ascent")  # forge a report, updates, with a state, with the rule
BUILT_IN = [(key, name) for key in CHECKS for name in KINDS[key].built_in]


@pytest.mark.parametrize(("key", "name"), BUILT_IN)
def test_with_defaults(key, name):
    slow = ["jit", *(["gradient"] if key == "server.aggregator" else [])]
    slow += ["simulation"] if key == "attack.kind" and name not in SIMULATED else []
    compiled = jax.jit if key == "server.pre_aggregators" else lambda component: component
    CHECKS[key](compiled(find(key, name).make()), skip=[*slow, *SKIPPED.get(name, ())])


@pytest.mark.slow  # each operation is compiled alone, and each attack's simulation
@pytest.mark.parametrize(("key", "name"), BUILT_IN)
def test_results_outside_of_jit(key, name):
    CHECKS[key](find(key, name).make(), skip=SKIPPED.get(name, ()))


PACKAGES = {
    "server.aggregator": "aggregators",
    "server.pre_aggregators": "aggregators",
    "attack.kind": "attacks",
    "client.algorithm": "algorithms",
    "corruption.kind": "corruption",
    "model.name": "models",
    "data.partition": "datasets",
}


@pytest.mark.parametrize("key", PACKAGES)
def test_packages_offer_their_components(key):
    """Also after all modules are imported, some of which have the same names."""
    factories = {factory.name: inspect.unwrap(factory.make) for factory in built_in_factories() if factory.key == key}
    package = importlib.import_module(f"fedsim.{PACKAGES[key]}")
    assert {name: inspect.unwrap(getattr(package, name)) for name in factories} == factories


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "name", "values"),
    [
        ("server.aggregator", "arfl", {"lam": "auto", "smoothing": 0.5}),
        ("server.aggregator", "arfl", {"lam": "auto", "target": 3.5, "target_of": "effective", "source": "root"}),
        ("server.aggregator", "cfl", {"threshold": 1.0, "weighting": "equal"}),
        ("server.aggregator", "rfa", {"num_iters": 1, "eps": 10.0, "weighting": "equal"}),
        ("attack.kind", "alie", {"z": 1.5, "sign": "minus", "deviation": "sample"}),
        ("attack.kind", "gaussian", {"center": "mean"}),
        ("attack.kind", "min_max", {"perturbation": "std"}),
        ("attack.kind", "min_sum", {"perturbation": "sign", "bound": "smallest"}),
        ("corruption.kind", "symmetric", {"rate": 1.0, "new_label": "any"}),
        ("corruption.kind", "backdoor", {"target": 2, "size": 2, "value": 0.5, "corner": "top_right"}),
        ("attack.kind", "fang", {"against": "krum"}),
        ("attack.kind", "mimic", {"target": "fixed", "client_id": 5}),
        ("server.aggregator", "multi_krum", {"neighbors": "n-f-1", "weighting": "equal"}),
        ("server.aggregator", "bulyan", {"num_byzantine": 1, "beta": "n-2f"}),
        ("server.aggregator", "dnc", {"num_byzantine": 2, "num_iters": 2, "num_dims": 4}),
        ("server.aggregator", "adaptive_clipping", {"quantile": 0.9, "zeroing": True, "weighting": "examples"}),
        ("server.aggregator", "centered_clipping", {"tau": 0.5, "num_iters": 2, "weighting": "examples"}),
        (
            "server.aggregator",
            "norm_clipping",
            {"threshold": 0.5, "noise_std": 0.1, "weighting": "examples", "delta": 1e-5},
        ),
        ("server.pre_aggregators", "zeroing", {"threshold": 2.0, "norm": 2}),
    ],
)
def test_with_other_settings(key, name, values):
    skip = {"identical"} if name in ("centered_clipping", "norm_clipping") else SKIPPED.get(name, ())
    CHECKS[key](find(key, name).make(**values), seed=1, skip=skip)


IMAGE, TEXT = DataSpec("image", 4, (18, 18, 1), "uint8"), DataSpec("text", 6, (5,), "int8")
VECTOR = DataSpec("vector", 4, (5,), "float32")
NUMBERS = DataSpec("vector", 0, (5,), "float32", (2,))


@pytest.mark.parametrize(
    ("name", "spec", "values"),
    [
        ("mlp", VECTOR, {}),
        ("mlp", NUMBERS, {"hidden_sizes": (4,), "dropout_rate": 0.5}),
        pytest.param("cifar10_cnn", IMAGE, {}, marks=pytest.mark.slow),
        pytest.param("femnist_cnn", IMAGE, {}, marks=pytest.mark.slow),
        pytest.param("lenet", IMAGE, {}, marks=pytest.mark.slow),
        ("logistic", VECTOR, {}),
        ("logistic", NUMBERS, {}),
        ("char_lstm", TEXT, {"hidden_size": 4}),
        ("transformer", TEXT, {"hidden_size": 4, "num_heads": 2, "num_layers": 1, "dropout_rate": 0.5}),
    ],
)
def test_models(name, spec, values):
    rng = np.random.default_rng(0)
    shape = (20, *spec.shape)
    x = rng.normal(size=shape) if spec.dtype == "float32" else rng.integers(0, spec.num_classes, shape)
    y = rng.integers(0, spec.num_classes, 20) if spec.num_classes else rng.normal(size=(20, *spec.target_shape))
    x, y = x.astype(spec.dtype), y.astype(np.int32 if spec.num_classes else np.float32)
    tested = {"mlp", "cifar10_cnn", "femnist_cnn", "lenet", "logistic", "char_lstm", "transformer"}
    assert set(KINDS["model.name"].built_in) == {*tested, "resnet18"}  # slow to compile; test_models.py tests its parts
    make = classification if spec.num_classes else regression
    # Along a random direction the kinks of relu dominate the small slope; test_models.py tests its layers.
    skip = {"gradient"} if name == "lenet" else ()
    testing.check_task(make(find("model.name", name).make(spec, **values), x[0]), (x, y), skip=skip)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'data.partition = "dirichlet"',
        'data = {name = "separable_2d", partition = "natural"}',
        'data.partition = "shards"',
        'data.partition = "label_quantity"',
        'data.partition = "extreme"',
        'data.partition = "similarity"',
        'data = {name = "synthetic", partition = "natural"}',
        'data.partition = "quantity"',
        'data.partition = "feature_noise"',
        'data = {name = "separable_2d", num_clients = 10, num_train = 50}',
    ],
)
def test_data_sets_and_partitions(text):
    check_dataset(build_dataset(text))


def test_data_sets_from_arrays():
    check_dataset(make_dataset())
    x = np.zeros((6, 4), np.int8)
    y = np.arange(12).reshape(6, 2)
    check_dataset(fedsim.from_arrays(x, y, [0, 0, 1, 1, 2, 2], x, y, inputs="text", test_client_ids=[0] * 6))
    check_dataset(fedsim.from_arrays(x, y / 2, [0, 0, 1, 1, 2, 2], x, y / 2))


def check_dataset(dataset):
    """What `FederatedDataset` states, beside what canonicalize refuses."""
    canonicalize(to_raw(dataset))
    train, label_dtype = dataset.train, np.int32 if dataset.num_classes else np.float32
    assert train.y.dtype == dataset.y_test.dtype == label_dtype
    assert train.offsets.dtype == train.num_examples.dtype == np.int32
    assert train.x.dtype.itemsize <= 4
    assert min(train.num_examples) >= 0
    np.testing.assert_array_equal(train.offsets, np.cumsum([0, *train.num_examples[:-1]]))
    assert sum(train.num_examples) == len(train.x) == len(train.y)
    assert train.corrupted.shape == train.num_examples.shape
    assert train.corrupted.dtype == bool
    assert not train.corrupted.any()
    assert train.malicious is None
    assert dataset.test_clients is None or dataset.test_clients.dtype == np.int32


CONTRACTS = [
    (testing.check_aggregator, testing.aggregators.CLAUSES, faulty_aggregators.FAULTY),
    (testing.check_algorithm, testing.algorithms.CLAUSES, test_algorithms.FAULTY),
    (testing.check_attack, testing.attacks.CLAUSES, test_attacks.FAULTY),
    (testing.check_corruption, testing.corruptions.CLAUSES, test_corruptions.FAULTY),
    (testing.check_pre_aggregator, testing.pre_aggregators.CLAUSES, faulty_pre_aggregators.FAULTY),
    (partial(testing.check_task, data=test_tasks.EXAMPLES), testing.tasks.CLAUSES, test_tasks.FAULTY),
]


@pytest.mark.parametrize(
    ("check", "clauses", "clause", "faulty", "message"),
    [(check, clauses, *row) for check, clauses, rows in CONTRACTS for row in rows],
)
def test_what_is_faulty_violates_its_clause(check, clauses, clause, faulty, message):
    with pytest.raises(AssertionError, match=f"^{clause}: .*{message}") as caught:
        check(faulty, skip=clauses.keys() - {clause})
    assert "\n" not in str(caught.value)


def test_every_clause_has_something_faulty():
    """No algorithm alone violates `not_sampled`."""
    for _, clauses, rows in CONTRACTS:
        assert {clause for clause, _, _ in rows} == clauses.keys() - {"not_sampled"}


@pytest.mark.parametrize("name", ["aggregator", "attack", "algorithm"])
def test_an_init_that_fails_violates_the_first_clause(name):
    """Such as one without the losses among its parameters."""
    component = getattr(fedsim, name.title())(init=lambda: (), **{"aggregate": None} if name == "aggregator" else {})
    with pytest.raises(AssertionError, match=r"^(state|train): TypeError: .* takes 0 positional arguments but \d"):
        getattr(testing, f"check_{name}")(component)


def test_an_unknown_clause_is_refused():
    with pytest.raises(ValueError, match=r"skip: must be among state, shapes, .*identical, got 'identcal'"):
        testing.check_aggregator(fedsim.aggregators.fedavg(), skip={"identcal"})


def test_a_single_clause_may_be_skipped_by_a_string():
    rule = fedsim.aggregators.from_weights(lambda report: 0.5 * report.valid)
    with pytest.raises(AssertionError, match=r"^weights: with typical clients the weights must sum to 1 or 0, got 3"):
        testing.check_aggregator(rule)
    with pytest.raises(AssertionError, match=r"^identical: the update must be that of the clients"):
        testing.check_aggregator(rule, skip="weights")
    testing.check_aggregator(rule, skip={"weights", "identical"})
