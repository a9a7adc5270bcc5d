"""Partitions by label skew, quantity skew and feature noise."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsim.datasets.dirichlet import dirichlet, quantity
from fedsim.datasets.feature_noise import feature_noise
from fedsim.datasets.federated import make_federated_dataset
from fedsim.datasets.label_skew import extreme, label_quantity, shards, similarity
from fedsim.datasets.partition import iid
from fedsim.datasets.raw import Partition
from fedsim.errors import DataError, FedsimError
from tests.datasets import build

LABELS = st.lists(st.integers(0, 6), min_size=12, max_size=80).map(np.asarray)
SEEDS = st.integers(0, 99)


make_raw = partial(build.make_raw, num_classes=7)


def count_examples(raw, client_ids, num_clients):
    """The number of examples of each client and class, [N, C], counted in a loop."""
    num_examples = np.zeros((num_clients, raw.num_classes), int)
    for client, label in zip(client_ids, raw.y, strict=True):
        num_examples[client, label] += 1
    assert num_examples.sum() == len(raw.y)
    assert num_examples.sum(axis=1).min() > 0
    return num_examples


@given(LABELS, st.integers(1, 4), st.integers(1, 3), SEEDS)
@settings(max_examples=40)
def test_shards_are_contiguous_in_the_sorted_labels(y, num_clients, num_shards, seed):
    """The order of the examples within a class is known from the same generator."""
    client_ids = shards(make_raw(y), num_clients, np.random.default_rng(seed), num_shards=num_shards)
    by_class = sorted(np.random.default_rng(seed).permutation(len(y)), key=lambda position: y[position])
    pieces = np.array_split(client_ids[by_class], num_clients * num_shards)
    assert all(len(set(piece)) == 1 for piece in pieces)
    assert np.bincount([piece[0] for piece in pieces]).tolist() == [num_shards] * num_clients


@given(st.integers(1, 20), st.integers(1, 7), SEEDS)
@settings(max_examples=60)
def test_label_quantity_gives_every_client_num_classes(num_clients, num_classes, seed):
    raw = make_raw(np.random.default_rng(seed).permutation(np.repeat(np.arange(7), 23)))
    make = lambda: label_quantity(raw, num_clients, np.random.default_rng(seed), num_classes=num_classes)
    if num_clients * num_classes < 7:
        with pytest.raises(DataError, match=r"label_quantity\.num_classes: .*data\.num_clients"):
            make()
        return
    num_examples = count_examples(raw, make(), num_clients)
    assert ((num_examples > 0).sum(axis=1) == num_classes).all()
    for class_sizes in num_examples.T:
        assert np.ptp(class_sizes[class_sizes > 0]) <= 1
    for client in range(num_clients):
        assert num_examples[client, client % 7] > 0
    assert np.array_equal(make(), make())


@given(st.integers(1, 20), SEEDS)
@settings(max_examples=40)
def test_extreme_clients_have_a_single_class_or_complete_classes(num_clients, seed):
    raw = make_raw(np.random.default_rng(seed).permutation(np.repeat(np.arange(7), 5)))
    num_examples = count_examples(raw, extreme(raw, num_clients, np.random.default_rng(seed)), num_clients)
    for client in range(num_clients):
        classes = [client % 7] if num_clients >= 7 else list(range(client, 7, num_clients))
        assert np.flatnonzero(num_examples[client]).tolist() == classes
        if num_clients <= 7:
            assert (num_examples[client][classes] == 5).all()
    for class_sizes in num_examples.T:
        assert np.ptp(class_sizes[class_sizes > 0]) <= 1


def test_classes_without_examples_are_skipped():
    raw = make_raw(np.repeat([1, 4, 6], 6))
    num_examples = count_examples(raw, extreme(raw, 4, np.random.default_rng(0)), 4)
    assert [np.flatnonzero(row).tolist() for row in num_examples] == [[1], [4], [6], [1]]


def held_positions(raw, partition):
    """The positions of each client's examples, if `raw.x` holds the position of each example."""
    data = make_federated_dataset(raw, partition).train
    return [
        data.x[first : first + size, 0].astype(int) for first, size in zip(data.offsets, data.num_examples, strict=True)
    ]


def test_sybils_hold_all_examples_of_one_class_which_others_hold_too():
    raw = make_raw(np.random.default_rng(0).permutation(np.repeat(np.arange(7), 6)))
    partition = extreme(raw, 10, np.random.default_rng(0), num_sybils=3, sybil_class=4)
    *clients, one, two, three = held_positions(raw, partition)
    assert [set(raw.y[positions]) for positions in clients] == [{k} for k in range(7)]
    for positions in (one, two, three):
        assert sorted(positions) == sorted(clients[4]) == np.flatnonzero(raw.y == 4).tolist()
    *same, shard = held_positions(raw, extreme(raw, 10, np.random.default_rng(0), num_sybils=3, sybil_class="iid"))
    assert all(np.array_equal(*pair) for pair in zip(same, [*clients, shard, shard], strict=True))
    assert (len(shard), len(set(raw.y[shard])) > 1) == (6, True)
    alone = extreme(raw, 7, np.random.default_rng(0))
    assert np.array_equal(partition.client_ids[: len(raw.y)], alone)


@given(LABELS, st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.66, 1.0]), SEEDS)
@example(np.arange(50) % 7, 5, 0.58, 0)  # 0.58 * 50 is a little less than 29
@example(np.arange(7), 7, 0.0, 0)  # one example each
@settings(max_examples=40)
def test_similarity_is_part_iid_and_part_contiguous(y, num_clients, gamma, seed):
    """As ByzFL's gamma_similarity_niid; the examples of the IID part are known from the same generator."""
    client_ids = similarity(make_raw(y), num_clients, np.random.default_rng(seed), gamma=gamma)
    order = np.random.default_rng(seed).permutation(len(y))
    num_iid = round(100 * gamma) * len(y) // 100
    by_class = sorted(order[num_iid:], key=lambda position: y[position])
    for part in (order[:num_iid], by_class):
        bounds = [0]
        for client in range(num_clients):  # the first len(part) % N parts have one more
            bounds.append(bounds[-1] + len(part) // num_clients + (client < len(part) % num_clients))
            assert set(client_ids[part[bounds[-2] : bounds[-1]]]) <= {client}
    if gamma == 0:
        cuts = [np.bincount(part, minlength=7) for part in np.array_split(np.sort(y), num_clients)]
        assert np.array_equal(count_examples(make_raw(y), client_ids, num_clients), cuts)


def test_iid_clients_hold_shards_of_all_examples_besides():
    """As in the program of Karimireddy et al.: worker r >= n has shard r % n of n shuffled ones."""
    raw = make_raw(np.repeat(np.arange(7), 60))
    partition = similarity(raw, 10, np.random.default_rng(3), gamma=0.0, iid_clients=7)
    clients = held_positions(raw, partition)
    assert np.array_equal(raw.y[np.concatenate(clients[:3])], raw.y)  # which are sorted
    assert sorted(np.concatenate(clients[:3]).tolist()) == list(range(420))
    assert sorted(np.concatenate(clients[3:6]).tolist()) == list(range(420))
    for first, second in ((3, 6), (4, 7), (5, 8), (3, 9)):
        assert np.array_equal(clients[first], clients[second])
    sizes = np.bincount(raw.y[clients[3]], minlength=7)
    assert abs(sizes - 20).max() < 5 * np.sqrt(20)


def test_dirichlet_by_client_has_equal_sizes_and_shares_around_those_of_the_data():
    """A share of Dir(alpha p) has mean p and variance p (1 - p) / (alpha + 1); the first clients lack no class."""
    raw = make_raw(np.repeat(np.arange(3), [1000, 2000, 5000]), num_classes=3)
    prior = np.asarray([1, 2, 5]) / 8
    for alpha in (2.0, 50.0):
        draws = [dirichlet(raw, 40, np.random.default_rng(seed), alpha=alpha, by="client") for seed in range(60)]
        num_examples = np.stack([count_examples(raw, client_ids, 40) for client_ids in draws])
        assert (num_examples.sum(axis=2) == 200).all()
        shares = num_examples[:, :5].reshape(-1, 3) / 200
        np.testing.assert_allclose(shares.mean(axis=0), prior, atol=5 * np.sqrt(0.25 / (alpha + 1) / len(shares)))
        variance = prior * (1 - prior) * (1 / (alpha + 1) + alpha / (alpha + 1) / 200)  # and of 200 draws
        np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.25)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
def test_dirichlet_by_client_gives_all_examples_away(alpha):
    raw = make_raw(np.repeat(np.arange(7), [1, 5, 9, 20, 30, 40, 50]))
    client_ids = dirichlet(raw, 10, np.random.default_rng(0), alpha=alpha, by="client")
    sizes = count_examples(raw, client_ids, 10).sum(axis=1)
    assert sorted(sizes) == [15] * 5 + [16] * 5


@given(st.integers(3, 20), st.integers(1, 7), SEEDS)
@settings(max_examples=30)
def test_dirichlet_of_few_classes_splits_them_among_their_clients(num_clients, num_classes, seed):
    raw = make_raw(np.random.default_rng(seed).permutation(np.repeat(np.arange(7), 40)))
    make = lambda alpha: dirichlet(
        raw, num_clients, np.random.default_rng(seed), alpha=alpha, min_examples=1, num_classes=num_classes
    )
    if num_clients * num_classes < 7:
        with pytest.raises(DataError, match=r"^dirichlet\.num_classes: .*data\.num_clients"):
            make(1.0)
        return
    assert ((count_examples(raw, make(2.0), num_clients) > 0).sum(axis=1) <= num_classes).all()
    even = count_examples(raw, make(1e6), num_clients)
    assert ((even > 0).sum(axis=1) == num_classes).all()
    for class_sizes in even.T:
        assert np.ptp(class_sizes[class_sizes > 0]) <= 1


@pytest.mark.parametrize("partition", [dirichlet, quantity])
@given(st.floats(0.1, 100), st.integers(1, 8), SEEDS)
@settings(max_examples=30)
def test_every_client_has_the_minimum(partition, alpha, num_clients, seed):
    raw = make_raw(np.repeat(np.arange(5), 60))
    client_ids = partition(raw, num_clients, np.random.default_rng(seed), alpha=alpha, min_examples=2)
    assert count_examples(raw, client_ids, num_clients).sum(axis=1).min() >= 2


def test_quantity_has_dirichlet_sizes_and_iid_classes():
    """A share of Dir_N(alpha) has mean 1 / N and variance (N - 1) / (N^2 (N alpha + 1))."""
    raw = make_raw(np.repeat(np.arange(5), 400))
    for alpha in (2.0, 8.0):
        partitions = [
            quantity(raw, 10, np.random.default_rng(seed), alpha=alpha, min_examples=1)  # few draws are rejected
            for seed in range(60)
        ]
        shares = np.stack([count_examples(raw, client_ids, 10).sum(axis=1) for client_ids in partitions]) / 2000
        assert np.var(shares) == pytest.approx(9 / (100 * (10 * alpha + 1)), rel=0.25)
    num_examples = count_examples(raw, partitions[0], 10)[:, :5]
    expected = num_examples.sum(axis=1, keepdims=True) / 5
    assert (abs(num_examples - expected) < 5 * np.sqrt(expected)).all()


def test_feature_noise_grows_with_the_client():
    """Variance sigma (i + 1) / N, or deviation sigma i / (N - 1)."""
    raw = make_raw(np.arange(3000) % 7, np.zeros((3000, 4), np.float32))
    for level, expected in (
        ("variance", [np.sqrt(0.3 * i / 5) for i in (1, 2, 3, 4, 5)]),
        ("deviation", [0.3 * i / 4 for i in (0, 1, 2, 3, 4)]),
    ):
        client_ids, x, _ = feature_noise(raw, 5, np.random.default_rng(0), sigma=0.3, level=level)
        assert np.array_equal(client_ids, iid(raw, 5, np.random.default_rng(0)))
        assert x.dtype == np.float32
        deviations = [x[client_ids == client].std() for client in range(5)]
        np.testing.assert_allclose(deviations, expected, rtol=5 / np.sqrt(2 * 2400))
    assert not raw.x.any()


def test_feature_noise_on_images_is_clipped():
    x = np.repeat(np.asarray([0, 128, 255], np.uint8), 900).reshape(-1, 3, 3, 1)
    raw = make_raw(np.arange(300) % 7, x, "image")
    client_ids, noisy, _ = feature_noise(raw, 2, np.random.default_rng(1), sigma=0.02)
    assert noisy.dtype == np.uint8
    assert np.array_equal(raw.x, x)
    for client in (0, 1):
        members, std = client_ids == client, 255 * np.sqrt(0.02 * (client + 1) / 2)
        black, gray = noisy[members & (x[:, 0, 0, 0] == 0)], noisy[members & (x[:, 0, 0, 0] == 128)].astype(float)
        assert np.mean(black == 0) == pytest.approx(0.5, abs=0.1)
        assert gray.std() == pytest.approx(std, rel=0.15)
    without_noise = feature_noise(raw, 2, np.random.default_rng(1), sigma=0.0)
    assert np.array_equal(without_noise.client_ids, client_ids)
    assert np.array_equal(without_noise.x, x)


PARTITIONS = """
import numpy as np

def lists(raw, num_clients, rng):
    return np.array_split(np.arange(len(raw.y)), num_clients)

def more(raw, num_clients, rng):
    return np.arange(len(raw.y)) % (num_clients + 5)
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "lists",
            "must give a client >= 0 for each of the 1438 examples of digits, not the examples of each client, got",
        ),
        ("more", "must have data.num_clients = 20 clients, got 25"),
    ],
)
def test_wrong_partitions_of_a_plugin_raise(name, message, tmp_path):
    (tmp_path / "partitions.py").write_text(PARTITIONS)
    with pytest.raises(FedsimError, match=rf"^data\.partition: {message}"):
        build.build_dataset(f'data.partition = "{tmp_path}/partitions.py:{name}"')


POSITIONS = "examples must be positions from 0 to 1 of those of example"


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ({"x": np.zeros((2, 1))}, r"inputs must be float32 \(2, 1\) as in example, got float64 \(2, 1\)"),
        ({"x": np.zeros((3, 1), np.float32)}, r"inputs must be float32 \(2, 1\) as in example, got float32 \(3, 1\)"),
        ({"x": np.full((2, 1), np.nan, np.float32)}, "inputs must be finite, got NaN or infinity"),
        *(({"examples": np.asarray(examples)}, POSITIONS) for examples in ([0, 2], [-1, 0], [0.0, 1.0], [[0, 1]])),
    ],
)
def test_wrong_inputs_or_positions_of_a_partition_raise(partition, message):
    with pytest.raises(DataError, match=rf"^data\.partition: {message}"):
        make_federated_dataset(make_raw(np.arange(2)), Partition(np.arange(2), **partition))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_a_partition_may_repeat_examples_and_leave_some_out(dtype):
    raw = make_raw(np.arange(5))
    partition = Partition(np.asarray([1, 0, 1, 0, 1]), raw.x + 10, np.asarray([3, 3, 0, 4, 3], dtype))
    data = make_federated_dataset(raw, partition).train
    assert data.x[:, 0].tolist() == [13, 14, 13, 10, 13]
    assert data.y.tolist() == [3, 4, 3, 0, 3]
    assert data.num_examples.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("partition", "num_clients", "settings", "message"),
    [
        (similarity, 4, {"iid_clients": 4}, r"similarity\.iid_clients: must be less than data\.num_clients = 4, got 4"),
        (
            similarity,
            25,
            {"iid_clients": 1},
            r"similarity\.gamma: must be nearer to 0 or 1 for the 40 .* and 24 clients, got 0\.5; .*data\.num_clients",
        ),
        (extreme, 4, {"num_sybils": 5}, r"extreme\.num_sybils: must be less than data\.num_clients = 4, got 5"),
        (extreme, 9, {"num_sybils": 2, "sybil_class": 7}, r"extreme\.sybil_class: must be a class with .*, got 7"),
        (extreme, 40, {}, r"data\.num_clients: .* 4 examples of class 0 of example, got 6"),
        (shards, 5, {"num_shards": 9}, r"data\.num_clients or shards\.num_shards: must be lower .* at least 9 each"),
        (label_quantity, 9, {"num_classes": 8}, r"label_quantity\.num_classes: .* 7 classes of example, got 8"),
        (quantity, 5, {"min_examples": 9}, r"data\.num_clients or quantity\.min_examples: .* lower .* at least 9 each"),
        (quantity, 5, {"alpha": 0.01, "min_examples": 7}, r"quantity\.alpha: .*got 0\.01; .*quantity\.min_examples"),
        (dirichlet, 5, {"alpha": 0.01, "min_examples": 7}, r"dirichlet\.alpha: .*got 0\.01; .*dirichlet\.min_examples"),
    ],
)
def test_impossible_partitions_raise(partition, num_clients, settings, message):
    raw = make_raw(np.repeat(np.arange(7), [4, 6, 6, 6, 6, 6, 6]))
    with pytest.raises(DataError, match=f"^{message}"):
        partition(raw, num_clients, np.random.default_rng(0), **settings)


@pytest.mark.parametrize(
    "partition", [iid, dirichlet, shards, similarity, quantity, feature_noise, extreme, label_quantity]
)
def test_a_number_of_clients_that_is_not_possible(partition):
    for num_clients in (0, -1, 2.5):
        with pytest.raises(DataError, match=rf"^data\.num_clients: must be .* got {num_clients}"):
            partition(make_raw(np.arange(60, dtype=np.int32) % 7), num_clients, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("y", "num_classes", "labels"),
    [(np.linspace(0, 1, 90), 0, "numbers as labels"), (np.arange(180).reshape(90, 2) % 5, 5, "several labels")],
)
def test_iid_needs_no_single_labels_and_label_skew_does(y, num_classes, labels):
    raw = make_raw(y, num_classes=num_classes)
    client_ids = iid(raw, 4, np.random.default_rng(0))
    assert sorted(np.bincount(client_ids)) == [22, 22, 23, 23]
    assert np.any(np.diff(client_ids) != 1)
    for partition in (dirichlet, shards, label_quantity, extreme, similarity):
        message = f'must be "iid" or "quantity" for example, whose examples have {labels}, got "{partition.__name__}"'
        with pytest.raises(DataError, match=f"^data.partition: {message}$"):
            partition(raw, 4, np.random.default_rng(0))


def test_feature_noise_on_text_raises():
    raw = make_raw(np.arange(6), np.zeros((6, 4), np.int8), "text")
    with pytest.raises(DataError, match=r'data\.partition: must not be "feature_noise" .* texts of int8 .*; use "iid"'):
        feature_noise(raw, 2, np.random.default_rng(0))
