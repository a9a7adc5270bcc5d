"""Partitions with few classes a client, of other sizes, and with noise of their own."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from fedsim.datasets.feature_noise import feature_noise
from fedsim.datasets.label_skew import extreme, label_quantity, shards
from fedsim.datasets.quantity import quantity
from fedsim.datasets.raw import Divided, RawDataset, divide
from fedsim.errors import DataError
from tests.datasets.made import dataset_of

LABELS = st.lists(st.integers(0, 6), min_size=12, max_size=80).map(np.asarray)
SEEDS = st.integers(0, 99)


def raw_of(y, x=None, inputs="vector", num_classes=7):
    x = np.zeros((len(y), 1), np.float32) if x is None else x
    return RawDataset("made", x, y, x[:2], y[:2], num_classes, inputs)


def table(raw, owner, num_clients):
    """Examples of each client and class, by counting; each example has one owner."""
    counts = np.zeros((num_clients, raw.num_classes), int)
    for client, label in zip(owner, raw.y, strict=True):
        counts[client, label] += 1
    assert counts.sum() == len(raw.y)
    assert counts.sum(axis=1).min() > 0
    return counts


@given(LABELS, st.integers(1, 4), st.integers(1, 3), SEEDS)
@settings(max_examples=40, deadline=None)
def test_shards_are_neighbours_among_the_sorted(y, num_clients, num_shards, seed):
    raw = raw_of(y)
    counts = table(raw, shards(raw, num_clients, np.random.default_rng(seed), num_shards=num_shards), num_clients)
    least = len(y) // (num_clients * num_shards)
    assert ((counts.sum(axis=1) >= num_shards * least) & (counts.sum(axis=1) <= num_shards * (least + 1))).all()
    sizes = [len(part) for part in np.array_split(y, num_clients * num_shards)]
    cuts, sorted_y = np.cumsum([0, *sizes]), np.sort(y)
    pieces = [np.bincount(sorted_y[a:b], minlength=7) for a, b in itertools.pairwise(cuts)]
    assert np.array_equal(sum(pieces), counts.sum(axis=0))
    assert _dealt(pieces, list(counts), num_shards), "no way to deal the shards gives these clients"


def _dealt(pieces, rows, num_shards):
    """Whether the shards `pieces` can be dealt, `num_shards` each, so that clients have `rows`: by trying all ways."""
    if not rows:
        return True

    def choices(row, left, start):
        if left == 0:
            if not row.any():
                yield ()
            return
        for i in range(start, len(pieces)):
            if (pieces[i] <= row).all():
                for others in choices(row - pieces[i], left - 1, i + 1):
                    yield (i, *others)

    for chosen in choices(rows[0], num_shards, 0):
        rest = [piece for i, piece in enumerate(pieces) if i not in chosen]
        if _dealt(rest, rows[1:], num_shards):
            return True
    return False


@given(st.integers(1, 20), st.integers(1, 7), SEEDS)
@settings(max_examples=60, deadline=None)
def test_label_quantity_gives_every_client_as_many_classes(num_clients, num_classes, seed):
    raw = raw_of(np.random.default_rng(seed).permutation(np.repeat(np.arange(7), 23)))
    make = lambda: label_quantity(raw, num_clients, np.random.default_rng(seed), num_classes=num_classes)
    if num_clients * num_classes < 7:
        with pytest.raises(DataError, match=r"raise label_quantity\.num_classes or data\.num_clients"):
            make()
        return
    counts = table(raw, make(), num_clients)
    assert ((counts > 0).sum(axis=1) == num_classes).all()
    for of_class in counts.T:
        assert np.ptp(of_class[of_class > 0]) <= 1
    for client in range(num_clients):
        assert counts[client, client % 7] > 0
    assert np.array_equal(make(), make())


@given(st.integers(1, 20), SEEDS)
@settings(max_examples=40, deadline=None)
def test_extreme_clients_have_one_class_or_whole_ones(num_clients, seed):
    raw = raw_of(np.random.default_rng(seed).permutation(np.repeat(np.arange(7), 5)))
    counts = table(raw, extreme(raw, num_clients, np.random.default_rng(seed)), num_clients)
    for client in range(num_clients):
        own = [client % 7] if num_clients >= 7 else list(range(client, 7, num_clients))
        assert np.flatnonzero(counts[client]).tolist() == own
        if num_clients <= 7:
            assert (counts[client][own] == 5).all()
    for of_class in counts.T:
        assert np.ptp(of_class[of_class > 0]) <= 1


def test_classes_without_an_example_are_nobodys():
    raw = raw_of(np.repeat([1, 4, 6], 6))
    counts = table(raw, extreme(raw, 4, np.random.default_rng(0)), 4)
    assert [np.flatnonzero(row).tolist() for row in counts] == [[1], [4], [6], [1]]


@given(st.floats(0.2, 100), st.integers(1, 8), SEEDS)
@settings(max_examples=30, deadline=None)
def test_quantity_respects_the_minimum(alpha, num_clients, seed):
    raw = raw_of(np.repeat(np.arange(5), 60))
    owner = quantity(raw, num_clients, np.random.default_rng(seed), alpha=alpha, min_examples=2)
    assert table(raw, owner, num_clients).sum(axis=1).min() >= 2


def test_sizes_vary_as_dirichlet_says_and_classes_do_not():
    """Of Dir_N(alpha), a share has mean 1 / N and variance (N - 1) / (N^2 (N alpha + 1))."""
    raw = raw_of(np.repeat(np.arange(5), 400))
    for alpha in (2.0, 8.0):
        owners = [
            quantity(raw, 10, np.random.default_rng(seed), alpha=alpha, min_examples=1)  # few draws are turned down
            for seed in range(60)
        ]
        shares = np.stack([table(raw, owner, 10).sum(axis=1) for owner in owners]) / 2000
        assert np.var(shares) == pytest.approx(9 / (100 * (10 * alpha + 1)), rel=0.25)
    counts = table(raw, owners[0], 10)[:, :5]
    expected = counts.sum(axis=1, keepdims=True) / 5
    assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_noise_grows_from_client_to_client():
    """Levels by counting: variance sigma (i + 1) / N, or deviation sigma i / (N - 1)."""
    raw = raw_of(np.arange(3000) % 7, np.zeros((3000, 4), np.float32))
    for level, wanted in (
        ("variance", [np.sqrt(0.3 * i / 5) for i in (1, 2, 3, 4, 5)]),
        ("deviation", [0.3 * i / 4 for i in (0, 1, 2, 3, 4)]),
    ):
        owner, x = feature_noise(raw, 5, np.random.default_rng(0), sigma=0.3, level=level)
        table(raw, owner, 5)
        assert x.dtype == np.float32
        found = [x[owner == client].std() for client in range(5)]
        np.testing.assert_allclose(found, wanted, rtol=5 / np.sqrt(2 * 2400))
    assert not raw.x.any()


def test_noise_on_images_is_cut_off_at_black_and_white():
    x = np.repeat(np.asarray([0, 128, 255], np.uint8), 900).reshape(-1, 3, 3, 1)
    raw = raw_of(np.arange(300) % 7, x, "image")
    owner, noisy = feature_noise(raw, 2, np.random.default_rng(1), sigma=0.02)
    assert noisy.dtype == np.uint8
    assert np.array_equal(raw.x, x)
    for client in (0, 1):
        own, std = owner == client, 255 * np.sqrt(0.02 * (client + 1) / 2)
        black, grey = noisy[own & (x[:, 0, 0, 0] == 0)], noisy[own & (x[:, 0, 0, 0] == 128)].astype(float)
        assert np.mean(black == 0) == pytest.approx(0.5, abs=0.1)
        assert grey.std() == pytest.approx(std, rel=0.15)
    (same,) = {divide(raw, feature_noise(raw, 2, np.random.default_rng(1), sigma=0.0)).train.x.tobytes()}
    assert same == divide(raw, owner).train.x.tobytes()


def test_a_partition_with_inputs_of_its_own_leaves_the_test_set_clean():
    clean = dataset_of('data = {partition = "iid", num_clients = 10}')
    noisy = dataset_of('data = {partition = "feature_noise", num_clients = 10}')
    assert np.array_equal(clean.x_test, noisy.x_test)
    assert np.array_equal(clean.train.y, noisy.train.y)  # the same clients have the same examples
    differs = (clean.train.x != noisy.train.x).mean(axis=(1, 2, 3))
    assert differs.min() > 0.1
    assert fedsim.Divided is Divided


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 1), np.float64), r"must be float32 \(2, 1\), not float64 \(2, 1\)"),
        (np.zeros((3, 1), np.float32), r"must be float32 \(2, 1\), not float32 \(3, 1\)"),
        (np.full((2, 1), np.nan, np.float32), "contain NaN or infinity"),
    ],
)
def test_wrong_inputs_of_a_partition_are_refused(x, message):
    with pytest.raises(DataError, match=f"^made: a partition's own inputs {message}"):
        divide(raw_of(np.arange(2)), Divided(np.arange(2), x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda raw, rng: shards(raw, 5, rng, num_shards=9),
            r"too few for 9 .*data\.num_clients or shards\.num_shards",
        ),
        (lambda raw, rng: label_quantity(raw, 9, rng, num_classes=8), r"has 7 classes; lower label_quantity"),
        (
            lambda raw, rng: extreme(raw, 40, rng),
            r"6 examples of class 0, too few for its 6 clients|4 examples of class",
        ),
        (lambda raw, rng: quantity(raw, 5, rng, min_examples=9), r"too few for 9 .*quantity\.min_examples"),
        (
            lambda raw, rng: quantity(raw, 5, rng, alpha=0.01, min_examples=7),
            r"no sizes of Dirichlet\(0\.01\) .*raise quantity\.alpha or lower quantity\.min_examples",
        ),
    ],
)
def test_what_cannot_be_divided_so_is_refused_with_advice(make, message):
    raw = raw_of(np.repeat(np.arange(7), [4, 6, 6, 6, 6, 6, 6]))
    with pytest.raises(DataError, match=message) as caught:
        make(raw, np.random.default_rng(0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("partition", [shards, label_quantity, extreme])
def test_without_one_class_an_example_there_are_no_classes_to_divide(partition):
    with pytest.raises(DataError, match=f'"{partition.__name__}" is for examples of one class; made has numbers'):
        partition(raw_of(np.linspace(0, 1, 90), num_classes=0), 4, np.random.default_rng(0))


def test_texts_have_no_noise_of_this_kind():
    raw = raw_of(np.arange(6), np.zeros((6, 4), np.int8), "text")
    with pytest.raises(DataError, match=r'is for images and float32 vectors, .* are texts of int8; use "iid"'):
        feature_noise(raw, 2, np.random.default_rng(0))
