"""Data sets and partitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from fedsim import build
from fedsim.config import DataConfig
from fedsim.datasets import digits, plane
from fedsim.datasets.partition import dirichlet, iid, natural
from fedsim.datasets.raw import RawDataset, check, divide
from fedsim.errors import ConfigError, DataError


def raw_of(y, client_ids=None) -> RawDataset:
    y = np.asarray(y)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    return RawDataset("made", x, y, x[:2], y[:2], int(y.max()) + 1, client_ids)


@given(st.lists(st.integers(0, 4), min_size=3, max_size=60), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_iid_shares_classes_equally(y, num_clients, seed):
    raw = raw_of(y)
    if num_clients > len(y):
        with pytest.raises(DataError, match="too few"):
            iid(raw, num_clients, np.random.default_rng(seed))
        return
    owner = iid(raw, num_clients, np.random.default_rng(seed))
    assert np.ptp(np.bincount(owner, minlength=num_clients)) <= 1
    for k in set(y):
        assert np.ptp(np.bincount(owner[raw.y == k], minlength=num_clients)) <= 1


@given(st.floats(0.05, 100), st.integers(1, 8), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_dirichlet_respects_the_minimum(alpha, num_clients, seed):
    raw = raw_of(np.repeat(np.arange(10), 30))
    owner = dirichlet(raw, num_clients, np.random.default_rng(seed), alpha, min_examples=2)
    assert owner.shape == (300,)
    assert np.bincount(owner, minlength=num_clients).min() >= 2
    assert owner.max() < num_clients


def test_dirichlet_concentration():
    """Large: every client has every class in equal share. Small: a client's largest class dominates it."""
    raw = raw_of(np.repeat(np.arange(10), 200))

    def largest_share(alpha):
        owner = dirichlet(raw, 10, np.random.default_rng(0), alpha, 1)
        table = np.stack([np.bincount(raw.y[owner == i], minlength=10) for i in range(10)])
        return (table.max(1) / table.sum(1)).mean()

    assert largest_share(1e5) < 0.12
    assert largest_share(0.1) > 0.4


def test_dirichlet_gives_up_with_advice():
    with pytest.raises(DataError, match=r"raise data\.dirichlet_alpha or lower data\.min_examples"):
        dirichlet(raw_of(np.repeat([0, 1], 50)), 10, np.random.default_rng(0), 0.01, 9)


def test_natural_clients_are_sorted_names():
    raw = raw_of([0, 1, 0, 1], np.asarray(["bob", "al", "bob", "cy"]))
    assert natural(raw).tolist() == [1, 0, 1, 2]
    with pytest.raises(DataError, match="no natural clients"):
        natural(raw_of([0, 1]))


def test_divide_concatenates_client_by_client():
    train = divide(raw_of([0, 1, 0, 1, 1]), np.asarray([1, 0, 1, 0, 1])).train
    assert train.x.ravel().tolist() == [1, 3, 0, 2, 4]
    assert train.offsets.tolist() == [0, 2]
    assert train.counts.tolist() == [2, 3]
    with pytest.raises(DataError, match="client 1 has no examples"):
        divide(raw_of([0, 1]), np.asarray([0, 2]))


def test_digits_are_complete():
    raw = check(digits.load(0))
    assert len(raw.y) + len(raw.y_test) == 1797
    assert raw.x.shape[1:] == (8, 8, 1)
    assert raw.x.dtype == np.uint8
    assert raw.x.max() == 255
    assert np.bincount(np.concatenate([raw.y, raw.y_test])).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]
    np.testing.assert_allclose(np.bincount(raw.y_test) / 180, 0.2, atol=0.01)
    assert (digits.load(1).y_test[:50] != raw.y_test[:50]).any() or (digits.load(1).x_test[0] != raw.x_test[0]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(3, int)}, "4 training inputs but 3 labels"),
        ({"client_ids": np.zeros(3, int)}, "4 training examples but 3 client ids"),
        ({"y": np.zeros(4)}, "labels must be integers"),
        ({"y": np.asarray([0, 1, -1, 0])}, r"labels must lie in 0\.\.1"),
        ({"x": np.full((4, 2), np.nan)}, "NaN or infinity"),
        ({"x_test": np.zeros((2, 3))}, r"training inputs are \(2,\), test inputs \(3,\)"),
        ({"x_test": np.zeros((0, 2)), "y_test": np.zeros(0, int)}, "no test examples"),
    ],
)
def test_own_arrays_are_checked(change, message):
    arrays = {
        "x": np.zeros((4, 2)), "y": np.asarray([0, 1, 1, 0]), "client_ids": np.asarray([0, 0, 1, 1]),
        "x_test": np.zeros((2, 2)), "y_test": np.asarray([0, 1]),
    }  # fmt: skip
    assert fedsim.from_arrays(**arrays).num_clients == 2
    with pytest.raises(DataError, match=message):
        fedsim.from_arrays(**(arrays | change))


def test_a_line_separates_the_plane():
    raw = plane.load(0)
    for x, y in ((raw.x, raw.y), (raw.x_test, raw.y_test)):
        np.testing.assert_array_equal(x.sum(axis=1) > 0, y == 1)
    dataset = build.dataset(DataConfig(name="plane", partition="natural"))
    assert dataset.train.counts.tolist() == [60, 60, 60]
    assert dataset.num_test_clients == 3


def test_examples_are_drawn_before_they_are_divided():
    """Distinct images of the whole set, as many as asked for; another seed, others."""
    whole = {image.tobytes() for image in digits.load(0).x}
    drawn = build.dataset(DataConfig(num_train=300, num_test=50))
    images = [image.tobytes() for image in drawn.train.x]
    assert (len(images), len(drawn.y_test)) == (300, 50)
    assert len(drawn.train.counts) == 20
    assert set(images) <= whole
    assert set(images) != {image.tobytes() for image in build.dataset(DataConfig(num_train=300, seed=1)).train.x}
    with pytest.raises(DataError, match=r"data.num_train: digits has only 1\d\d\d examples"):
        build.dataset(DataConfig(num_train=10_000))
    with pytest.raises(ConfigError, match=r"data.num_test: has no effect with data.partition = .natural."):
        build.dataset(DataConfig(name="plane", partition="natural", num_test=5))
