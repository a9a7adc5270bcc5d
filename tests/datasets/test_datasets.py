"""Data sets and partitions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import fedsim
from fedsim.config.sections import DataConfig
from fedsim.config.toml import parse
from fedsim.datasets import digits, separable_2d, synthetic
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.federated import make_federated_dataset
from fedsim.datasets.partition import iid, natural
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.sampling import sample_clients
from fedsim.engine import make_plan
from fedsim.errors import ConfigError, DataError
from tests.datasets.build import build_dataset, make_raw


@given(st.lists(st.integers(0, 4), min_size=3, max_size=60), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=60)
def test_iid_shares_classes_equally(y, num_clients, seed):
    raw = make_raw(y)
    if num_clients > len(y):
        with pytest.raises(DataError, match=r"data\.num_clients: must be lower"):
            iid(raw, num_clients, np.random.default_rng(seed))
        return
    client_ids = iid(raw, num_clients, np.random.default_rng(seed))
    assert np.ptp(np.bincount(client_ids, minlength=num_clients)) <= 1
    for k in set(y):
        assert np.ptp(np.bincount(client_ids[raw.y == k], minlength=num_clients)) <= 1


def test_natural_clients_are_numbered_in_order_of_their_names():
    raw = make_raw([0, 1, 0, 1], client_ids=np.asarray(["bob", "al", "bob", "cy"]))
    assert natural(raw, 3, None).tolist() == [1, 0, 1, 2]
    with pytest.raises(DataError, match="has no natural clients"):
        natural(make_raw([0, 1]), 2, None)


def test_examples_are_sorted_by_client():
    train = make_federated_dataset(make_raw([0, 1, 0, 1, 1]), np.asarray([1, 0, 1, 0, 1])).train
    assert train.x.ravel().tolist() == [1, 3, 0, 2, 4]
    assert train.offsets.tolist() == [0, 2]
    assert train.num_examples.tolist() == [2, 3]
    unsigned = make_federated_dataset(make_raw([0, 1, 0, 1, 1]), np.asarray([1, 0, 1, 0, 1], np.uint64)).train
    assert unsigned.offsets.tolist() == [0, 2]
    with pytest.raises(DataError, match=r"every client .* example, got none for 1"):
        make_federated_dataset(make_raw([0, 1]), np.asarray([0, 2]))
    for client_ids in ([0, 1, 1], [0.0, 1.0], [-1, 0], [[0], [1]]):
        with pytest.raises(DataError, match=r"data\.partition: must .* 2 examples of example"):
            make_federated_dataset(make_raw([0, 1]), np.asarray(client_ids))


@pytest.mark.parametrize("part", ["training", "test"])
def test_more_examples_than_int32_raise(part):
    """Their offsets and sums would overflow. Broadcast arrays take no memory."""
    many = lambda values: np.broadcast_to(values[:1], (2**31, *values.shape[1:]))
    raw = make_raw([0, 1])
    if part == "training":
        raw, client_ids = replace(raw, x=many(raw.x), y=many(raw.y)), many(np.zeros(1, int))
    else:
        raw, client_ids = replace(raw, x_test=many(raw.x_test), y_test=many(raw.y_test)), np.zeros(2, int)
    with pytest.raises(DataError, match=rf"example: .* {part} examples, got 2,147,483,648; .*data\.num_train"):
        make_federated_dataset(raw, client_ids)


def test_digits_are_those_of_scikit_learn():
    bunch, raw = load_digits(), canonicalize(digits.digits(0))
    np.testing.assert_array_equal(digits._read_table(), np.column_stack([bunch.data, bunch.target]))
    assert (raw.x.shape[1:], raw.x.dtype, raw.x.max()) == ((8, 8, 1), np.uint8, 255)
    np.testing.assert_array_equal(np.bincount(raw.y) + np.bincount(raw.y_test), np.bincount(bunch.target))
    np.testing.assert_allclose(np.bincount(raw.y_test) / 180, 0.2, atol=0.01)
    assert not np.array_equal(digits.digits(1).x_test, raw.x_test)


NO_TEST = {"x_test": None, "y_test": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(3, int)}, "4 training inputs but 3 labels"),
        ({"client_ids": np.zeros(3, int)}, "4 training examples but 3 client ids"),
        ({"y": np.zeros(4)}, r"labels must both be integers .* or both floats .*, got float64 and int64"),
        ({"y": np.zeros(4), "num_classes": 2}, "training labels must be integer classes, got float64"),
        ({"y": np.asarray(list("abba")), "num_classes": 0}, "training labels must be numbers, got <U1"),
        ({"y": np.asarray([0, 1, np.nan, 0]), "y_test": np.zeros(2)}, "training labels must be finite, got NaN"),
        ({"y": np.full(4, 1e300), "y_test": np.full(2, 0.5)}, "training labels must be finite, got NaN"),
        ({"y": np.zeros((4, 3), int)}, r"training labels are \(3,\), but test labels are \(\)"),
        ({"y": np.zeros((4, 0), int)}, "labels must have a length >= 1, got 0"),
        ({"y": np.zeros((4, 2, 2), int)}, r"labels \[M\] or \[M, T\]"),
        ({"num_classes": -1}, "num_classes must be 0 .* to 16,777,216, got -1"),
        ({"inputs": "picture"}, 'inputs must be "image", "text" or "vector", got "picture"'),
        ({"inputs": "image"}, r"images must be \[M, height, width, channels\], got \(4, 2\)"),
        ({"inputs": "text"}, r"texts must be integers \[M, T\], got float32 \(4, 2\)"),
        ({"x": np.full((4, 2), np.nan)}, "NaN or infinity"),
        ({"x_test": np.zeros((2, 3))}, r"training inputs are \(2,\), but test inputs are \(3,\)"),
        ({"x_test": np.zeros((0, 2)), "y_test": np.zeros(0, int)}, "no test examples"),
        ({"x": np.zeros((4, 0)), "x_test": np.zeros((2, 0))}, r"training inputs must have numbers, got shape \(4, 0\)"),
        ({"y": np.eye(2, dtype=int)[[0, 1, 1, 0]], "num_classes": 2}, r"got one-hot labels \[M, 2\]"),
        ({"num_classes": 2.0}, r"num_classes must be an integer, got 2\.0"),
        (
            {"x": np.full((4, 2), 2**31)},
            "inputs must be integers of 32 bits, got 2147483648 to .*; convert them to float",
        ),
        ({"client_ids": None, "test_client_ids": [0, 1]}, "test_client_ids must be left out without client_ids"),
        (NO_TEST | {"test_client_ids": [0, 1]}, "test_client_ids must be left out without x_test and y_test"),
        (NO_TEST | {"test_fraction": 1.0}, "test_fraction: must be between 0 and 1, got 1.0"),
        ({"y_test": None}, "arrays: must have both x_test and y_test, or neither, got no y_test"),
    ],
)
def test_inconsistent_arrays_raise(change, message):
    arrays = {
        "x": np.zeros((4, 2)), "y": np.asarray([0, 1, 1, 0]), "client_ids": np.asarray([0, 0, 1, 1]),
        "x_test": np.zeros((2, 2)), "y_test": np.asarray([0, 1]),
    }  # fmt: skip
    assert fedsim.from_arrays(**arrays).num_clients == 2
    with pytest.raises(DataError, match=message):
        fedsim.from_arrays(**(arrays | change))


def test_separable_2d_is_linearly_separable():
    raw = separable_2d.separable_2d(0)
    for x, y in ((raw.x, raw.y), (raw.x_test, raw.y_test)):
        np.testing.assert_array_equal(x.sum(axis=1) > 0, y == 1)
    dataset = build_dataset('data = {name = "separable_2d", partition = "natural"}')
    assert dataset.train.num_examples.tolist() == [60, 60, 60]
    assert dataset.num_test_clients == 3


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
@pytest.mark.parametrize("iid", [False, True])
def test_synthetic_clients_have_linear_classifiers_of_their_own_unless_iid(iid):
    """What fits the largest client holds for its test examples, but for other clients only if they share it."""
    raw = synthetic.synthetic(4, iid=iid)
    sizes = np.bincount(raw.client_ids)
    total = sizes + np.bincount(raw.test_client_ids)
    assert (len(total), raw.x.shape[1], total.min() >= 50) == (30, 60, True)
    assert sizes.tolist() == [int(0.9 * size) for size in total]
    largest = np.argmax(sizes)
    members, tests = raw.client_ids == largest, raw.test_client_ids == largest
    scale = np.arange(1, 61) ** 0.6  # for equal variances, with which few iterations suffice
    model = LogisticRegression(C=10, max_iter=15).fit(raw.x[members][:2000] * scale, raw.y[members][:2000])
    assert model.score(raw.x_test[tests] * scale, raw.y_test[tests]) > 0.85
    others = model.score(raw.x[~members] * scale, raw.y[~members])
    assert others > 0.85 if iid else others < 0.4


@pytest.mark.parametrize(("settings", "std"), [({"beta": 0.0}, 0), ({"beta": 3.0}, 3), ({"iid": True}, None)])
def test_synthetic_inputs_have_the_published_moments(settings, std):
    """Variances j^-1.2 around means from N(B, 1), with B from N(0, beta^2); iid: around 0."""
    raw = synthetic.synthetic(4, **settings)
    x = raw.x[raw.client_ids == np.argmax(np.bincount(raw.client_ids))]
    np.testing.assert_allclose(x.var(axis=0), np.arange(1, 61) ** -1.2, rtol=5 * np.sqrt(2 / len(x)))
    means = np.stack([raw.x[raw.client_ids == client].mean(axis=0) for client in range(30)])
    if std is None:
        assert abs(x.mean(axis=0)).max() < 5 / np.sqrt(len(x))
    else:
        assert means.std(axis=1).mean() == pytest.approx(1, rel=0.1)
        expected = np.sqrt(std**2 + 1 / 60)
        assert abs(means.mean(axis=1).std() - expected) < 5 * expected / np.sqrt(60)


def test_examples_are_subsampled_before_they_are_partitioned():
    """Distinct images of the whole set, in the configured number; another seed draws different ones."""
    all_images = {image.tobytes() for image in digits.digits(0).x}
    drawn = build_dataset("data = {num_train = 300, num_test = 50}")
    images = [image.tobytes() for image in drawn.train.x]
    assert (len(images), len(drawn.y_test)) == (300, 50)
    assert len(drawn.train.num_examples) == 20
    assert set(images) <= all_images
    assert set(images) != {image.tobytes() for image in build_dataset("data = {num_train = 300, seed = 1}").train.x}
    with pytest.raises(DataError, match=r"data\.num_train: .* digits, got 10000"):
        build_dataset("data.num_train = 10_000")
    with pytest.raises(ConfigError, match=r"data\.num_test: .*natural"):
        make_plan(parse('data = {name = "separable_2d", partition = "natural", num_test = 5}'))


def make_arrays(y, y_test, **changes):
    """Four training and two test examples of two clients."""
    x = np.zeros((4, 6), np.int8)
    return {"x": x, "y": y, "client_ids": [0, 0, 1, 1], "x_test": x[:2], "y_test": y_test} | changes


@pytest.mark.parametrize(
    ("y", "options", "num_classes", "num_outputs"),
    [
        (np.asarray([0.5, 2, -1, 3]), {}, 0, 1),
        (np.asarray([5, 2, 1, 3]), {"num_classes": 0}, 0, 1),
        (np.arange(12).reshape(4, 3), {}, 12, 12),
        (np.arange(12, dtype=np.uint8).reshape(4, 3), {}, 12, 12),
        (np.arange(12).reshape(4, 3) + 0.5, {}, 0, 3),
    ],
)
def test_labels_are_classes_or_numbers(y, options, num_classes, num_outputs):
    """One or several for each example."""
    dataset = fedsim.from_arrays(**make_arrays(y, y[:2], client_ids=[1, 0, 1, 0], **options))
    assert dataset.train.y.tolist() == y[[1, 3, 0, 2]].tolist()
    assert (dataset.spec.num_classes, dataset.spec.target_shape) == (num_classes, y.shape[1:])
    assert (dataset.num_classes, dataset.spec.num_outputs) == (num_classes, num_outputs)
    assert dataset.train.y.dtype == dataset.y_test.dtype == (np.int32 if num_classes else np.float32)


@pytest.mark.parametrize("wide", [np.float64, np.longdouble, np.int64, np.uint64])
def test_inputs_become_those_of_32_bits(wide):
    x = np.asarray([[0, 2**31 - 1], [5, 7]] * 5, wide)
    x = x / 10 if wide in (np.float64, np.longdouble) else x
    dataset = fedsim.from_arrays(x, np.arange(10) % 2, x_test=x, y_test=np.arange(10) % 2)
    narrow = np.float32 if x.dtype.kind == "f" else np.int32
    assert dataset.train.x.dtype == dataset.x_test.dtype == narrow
    np.testing.assert_array_equal(dataset.train.x, x.astype(narrow))


def test_inputs_are_inferred_from_their_shape_unless_given():
    y = np.asarray([0, 1, 0, 1])
    infer_inputs = lambda **changes: fedsim.from_arrays(**make_arrays(y, y[:2], **changes)).inputs
    image = np.zeros((4, 3, 3, 1), np.uint8)
    assert infer_inputs() == "vector"  # int8 without inputs="text"
    assert infer_inputs(inputs="text") == "text"
    assert infer_inputs(x=image, x_test=image[:2]) == "image"
    assert infer_inputs(x=image, x_test=image[:2], inputs="vector") == "vector"
    assert (digits.digits(0).inputs, separable_2d.separable_2d(0).inputs) == ("image", "vector")


def test_wrong_types_and_client_ids_raise():
    with pytest.raises(DataError, match=r"RawDataset, got dict"):
        canonicalize({"x": 1})
    raw = make_raw([0, 1, 0])
    with pytest.raises(DataError, match="client ids must be integers >= 0"):
        canonicalize(replace(raw, client_ids=np.asarray(["a", "b", "c"])))
    with pytest.raises(DataError, match="client ids must be integers >= 0"):
        canonicalize(replace(raw, client_ids=np.asarray([-1, 0, 1])))
    with pytest.raises(DataError, match=r"num_classes must be an integer, got None"):
        canonicalize(replace(raw, num_classes=None))
    of_clients = replace(raw, client_ids=np.asarray([2, 0, 1], np.uint64))
    for names in (["a", "b"], ["a", "b", "a"], "abc"):
        with pytest.raises(DataError, match="client_names must be 3 different names, got "):
            canonicalize(replace(of_clients, client_names=names))
    with pytest.raises(DataError, match="label_names must be 2 different names, got "):
        canonicalize(replace(raw, label_names=np.asarray(["a"])))
    raw = canonicalize(replace(of_clients, client_names=["a", "b", "c"], label_names=["no", "yes"]))
    assert (raw.client_ids.dtype, list(raw.client_names), list(raw.label_names)) == (np.int64, [*"abc"], ["no", "yes"])


def test_test_labels_of_another_type_stay_classes():
    """Where test examples are drawn anew, from both parts: 299 does not become 43."""
    y, y_test = np.arange(4, dtype=np.uint8) % 2, np.asarray([299, 1], np.int64)
    raw = RawDataset("made", np.eye(4), y, np.eye(4)[:2], y_test, 300, "vector", np.arange(4) % 2, np.arange(2))
    config = DataConfig(partition="natural", max_test_examples=1)
    assert set(sample_clients(canonicalize(raw), config, np.random.default_rng(0)).y_test) == {299, 1}
