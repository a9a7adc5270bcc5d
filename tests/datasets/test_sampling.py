"""Properties of LEAF's sampling and splitting, and examples that are left out before."""

from dataclasses import replace

import hypothesis
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsim.config.sections import DataConfig
from fedsim.config.toml import parse
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.portions import floor_fraction
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.sampling import sample_clients
from fedsim.datasets.subsets import deduplicate, make_long_tail
from fedsim.engine import make_plan
from fedsim.errors import ConfigError, DataError
from tests.datasets.build import build_dataset


def make_raw(sizes, test_sizes=None, text=False) -> RawDataset:
    """Client i has sizes[i] training and test_sizes[i] test examples; the input of example j is j."""
    test_sizes = [0] * len(sizes) if test_sizes is None else test_sizes
    m, t = sum(sizes), sum(test_sizes)
    x = np.arange(m + t)[:, None] + np.zeros((1, 5), int)
    x = (x % 80).astype(np.int8) if text else x.astype(np.float32)
    ids, test_ids = np.repeat(np.arange(len(sizes)), sizes), np.repeat(np.arange(len(sizes)), test_sizes)
    y = np.arange(m + t) % 7
    inputs = "text" if text else "vector"
    return RawDataset("example", x[:m], y[:m], x[m:], y[m:], 7, inputs, ids, test_ids)


def draw(raw, seed=0, **settings):
    return sample_clients(raw, DataConfig(partition="natural", **settings), np.random.default_rng(seed))


def test_a_data_set_with_a_test_set_is_unchanged_by_default():
    raw = make_raw([3, 4], [1, 2])
    assert draw(raw) is raw


@settings(max_examples=50)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=8),
    percent=st.integers(5, 95),
)
@example(sizes=[(20, 0), (10, 0)], percent=90)  # 1 - 0.9 is 0.09999999999999998, but a tenth of 20 is 2
def test_a_new_split_keeps_every_example_once(sizes, percent):
    """Of training and test examples; clients with a single one are left out."""
    totals = np.sum(sizes, axis=1)
    hypothesis.assume(totals.max() > 1)
    raw = make_raw(*zip(*sizes, strict=True))
    owners, labels = (np.concatenate(parts) for parts in ((raw.client_ids, raw.test_client_ids), (raw.y, raw.y_test)))
    got = draw(raw, test_fraction=percent / 100)
    train, test = got.x[:, 0].astype(int), got.x_test[:, 0].astype(int)
    assert sorted([*train, *test]) == np.flatnonzero(totals[owners] > 1).tolist()
    np.testing.assert_array_equal(owners[train], got.client_ids)
    np.testing.assert_array_equal(owners[test], got.test_client_ids)
    np.testing.assert_array_equal(labels[train], got.y)
    for client in np.flatnonzero(totals > 1):
        assert np.sum(got.client_ids == client) == max(1, (100 - percent) * totals[client] // 100)


@given(number=st.integers(0, 2**31 - 1), digits=st.integers(1, 8), data=st.data())
def test_fractions_are_rounded_down_as_decimals(number, digits, data):
    part = data.draw(st.integers(0, 10**digits))
    expected = number * part // 10**digits
    if digits <= 5 or number < 10**6:  # otherwise the product exceeds the precision of a float
        assert floor_fraction(number, part / 10**digits) == expected
        assert floor_fraction(number, 1 - (10**digits - part) / 10**digits) == expected


def test_common_fractions_are_as_in_leaf():
    for share in (1 - 0.2, 0.8, 1 - 0.1, 0.9, 0.05, 0.5, 1.0):
        assert [floor_fraction(n, share) for n in range(20_001)] == [int(share * n) for n in range(20_001)]
    assert [floor_fraction(n, 1 / 3) for n in range(0, 3000, 3)] == list(range(1000))
    assert len(draw(make_raw([50, 50], [1, 1]), sample_fraction=0.29).y) == 29  # int(0.29 * 100) is 28


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5).filter(lambda sizes: max(sizes) > 30))
def test_text_is_split_in_time_with_a_gap(sizes):
    """No window of 5 characters in the training part overlaps one in the test part: 4 between them are left out."""
    raw = make_raw(sizes, text=True)
    got = draw(raw, test_fraction=0.2)
    start = np.cumsum([0, *sizes])
    for client, size in enumerate(sizes):
        train, test = got.x[got.client_ids == client], got.x_test[got.test_client_ids == client]
        num_train = max(1, int(0.8 * size))
        if size <= num_train + 4:
            assert len(train) == len(test) == 0
            continue
        np.testing.assert_array_equal(train, raw.x[start[client] :][:num_train])
        np.testing.assert_array_equal(test, raw.x[start[client] + num_train + 4 : start[client + 1]])


def test_int8_vectors_are_split_at_random():
    raw = replace(make_raw([40], text=True), inputs="vector")
    got = draw(raw, test_fraction=0.2)
    assert (len(got.y), len(got.y_test)) == (32, 8)
    assert got.x[:, 0].tolist() != list(range(32))


def test_sample_clients_keep_all_examples_and_depend_on_the_seed():
    raw = make_raw([5, 6, 7, 8, 9], [1, 2, 3, 4, 5])
    got = draw(raw, sample_clients=2)
    chosen = np.unique(got.client_ids)
    assert len(chosen) == 2
    np.testing.assert_array_equal(np.unique(got.test_client_ids), chosen)
    np.testing.assert_array_equal(np.bincount(got.client_ids, minlength=5)[chosen], np.asarray([5, 6, 7, 8, 9])[chosen])
    assert len({tuple(np.unique(draw(raw, seed, sample_clients=2).client_ids)) for seed in range(20)}) > 1


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(4, 30), min_size=1, max_size=8), percent=st.integers(50, 100))
def test_sample_fraction_truncates_a_single_client(sizes, percent):
    raw = make_raw(sizes)
    got = draw(raw, sample_fraction=percent / 100, test_fraction=0.5)
    kept = np.bincount(got.client_ids, minlength=len(sizes)) + np.bincount(got.test_client_ids, minlength=len(sizes))
    truncated = [(k, size) for k, size in zip(kept, sizes, strict=True) if 0 < k < size]
    assert len(truncated) <= 1
    assert percent * sum(sizes) // 100 - kept.sum() in (0, 1)  # 1: a client with a single example cannot be split


def test_clients_with_test_examples_only():
    """They stay in the test set, unless clients are drawn, which only draws clients with training examples."""
    raw = make_raw([4, 0, 6], [1, 2, 1])
    assert draw(raw, max_examples=100).test_client_ids.tolist() == [0, 1, 1, 2]
    for seed in range(5):
        got = draw(raw, seed, sample_clients=2)
        assert np.bincount(got.client_ids).tolist() == [4, 0, 6]
        assert got.test_client_ids.tolist() == [0, 2]


def test_test_examples_without_clients_are_kept():
    raw = replace(make_raw([4, 5, 6], [1, 1, 1]), test_client_ids=None)
    got = draw(raw, sample_clients=2, max_examples=2, max_test_examples=1)
    assert np.unique(got.client_ids, return_counts=True)[1].tolist() == [2, 2]
    assert got.x_test.tolist() == raw.x_test.tolist()
    assert got.test_client_ids is None
    with pytest.raises(DataError, match=r"data\.test_fraction: .* example"):
        draw(raw, test_fraction=0.5)


def test_caps_are_evenly_spaced():
    got = draw(make_raw([10, 3], [6, 1]), max_examples=5, max_test_examples=2)
    assert got.x[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 11, 12]
    assert got.x_test[:, 0].tolist() == [13, 16, 19]


def test_impossible_samples_raise():
    with pytest.raises(DataError, match=r"data\.sample_clients: .* 2 clients of example, got 3"):
        draw(make_raw([4, 4], [1, 1]), sample_clients=3)
    with pytest.raises(DataError, match=r"no client is left .*; give test examples, or clients with more examples"):
        draw(make_raw([1, 1]))
    with pytest.raises(DataError, match=r"no client is left .*; raise data\.sample_fraction"):
        draw(make_raw([4, 4]), sample_fraction=0.01)
    with pytest.raises(DataError, match=r"no client is left .*; give test examples, or clients with more examples"):
        draw(make_raw([4, 0], [0, 4]), sample_clients=1)
    with pytest.raises(ConfigError, match=r"data\.max_examples: "):
        make_plan(parse("data.max_examples = 3"))


def test_a_long_tail_keeps_a_power_of_each_class_for_training_and_for_testing():
    raw = make_raw([200], [70])
    tail = make_long_tail(raw, 0.5, np.random.default_rng(0))
    for y, before in ((tail.y, raw.y), (tail.y_test, raw.y_test)):
        sizes = [sum(label == k for label in before) for k in range(7)]
        assert [sum(label == k for label in y) for k in range(7)] == [int(size / 2**k) for k, size in enumerate(sizes)]
    assert np.array_equal(tail.y, raw.y[tail.x[:, 0].astype(int)])
    assert np.all(np.diff(tail.x[:, 0]) > 0)
    assert len(tail.client_ids) == len(tail.y)
    tenths = make_long_tail(replace(raw, y=np.arange(200) // 100), 0.29, np.random.default_rng(0))
    assert np.bincount(tenths.y).tolist() == [100, 29]  # 0.29 * 100 is a little less


def test_any_configuration_can_have_a_long_tail():
    whole, tail = (
        build_dataset(f"data = {{num_clients = 5, long_tail = {mu}}}\nserver.cohort_size = 5") for mu in (1, 0.8)
    )
    for before, after in ((whole.train.y, tail.train.y), (whole.y_test, tail.y_test)):
        sizes = [int(0.8**k * size + 1e-9) for k, size in enumerate(np.bincount(before))]
        assert np.bincount(after).tolist() == sizes
    kept = len(tail.train.y)
    with pytest.raises(DataError, match=rf"^data\.num_train: .* the {kept} .* that data\.long_tail = 0\.8 keeps, got"):
        build_dataset(f"data = {{long_tail = 0.8, num_train = {kept + 1}}}")
    with pytest.raises(DataError, match=r"^data\.long_tail: must be larger for the .* examples of example, got 0\.1"):
        make_long_tail(replace(make_raw([5]), y=np.arange(1, 6)), 0.1, np.random.default_rng(0))
    with pytest.raises(DataError, match=r"^data\.long_tail: must be 1 for example, .* no single class, got 0\.5"):
        make_long_tail(replace(make_raw([5]), num_classes=0), 0.5, np.random.default_rng(0))
    with pytest.raises(DataError, match=r"^data\.long_tail: must be larger"):  # for a test set that there is
        make_long_tail(replace(make_raw([70], [5]), y_test=np.full(5, 6)), 0.5, np.random.default_rng(0))


def make_repeated(train, test, inputs="image", has_clients=True) -> RawDataset:
    """Input i is filled with i; example j (training, then test) has label j and client j."""
    shape, dtype = {"image": ((2, 3, 1), np.uint8), "text": ((5,), np.int8), "vector": ((), np.float32)}[inputs]
    x, x_test = (np.stack([np.full(shape, i, dtype) for i in (0, *part)])[1:] for part in (train, test))
    y, y_test = np.split(np.arange(len(train) + len(test)), [len(train)])
    ids = (y, y_test) if has_clients else (None, None)
    return RawDataset("example", x, y, x_test, y_test, 99, inputs, *ids)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=20),
    st.lists(st.integers(0, 12), max_size=20),
    st.sampled_from(["image", "text", "vector"]),
    st.booleans(),
)
@settings(max_examples=100)
def test_the_first_of_equal_inputs_is_kept(train, test, inputs, has_clients):
    raw = make_repeated(train, test, inputs, has_clients)
    seen: set[int] = set()
    kept = [j for j, value in enumerate(train + test) if not (value in seen or seen.add(value))]
    kept_test = [j for j in kept if j >= len(train)]
    if test and not kept_test:
        with pytest.raises(DataError, match=r"data\.deduplicate: .*example"):
            deduplicate(raw)
        return
    got = canonicalize(deduplicate(raw), needs_test=False)
    assert [*got.y, *got.y_test] == kept
    assert got.y_test.tolist() == kept_test
    assert [int(image.max()) for image in got.x] == [train[j] for j in got.y]
    assert [int(image.max()) for image in got.x_test] == [(train + test)[j] for j in kept_test]
    assert (got.client_ids is None) == (got.test_client_ids is None) == (not has_clients)
    if has_clients:
        assert [*got.client_ids, *got.test_client_ids] == kept


def test_inputs_that_differ_in_a_single_number_are_kept():
    raw = make_repeated([0] * 30, [1])
    x = raw.x.copy()
    x.reshape(30, -1)[np.arange(6), np.arange(6)] = 7  # one pixel of each of the first six
    assert len(deduplicate(replace(raw, x=x)).y) == 7


def test_a_data_set_without_repeated_inputs_is_not_copied():
    raw = make_repeated([3, 1, 2], [4])
    assert deduplicate(raw) is raw


@pytest.mark.parametrize("keys", ['partition = "natural", test_fraction = 0.5', 'partition = "iid", num_clients = 10'])
def test_deduplicate_key_applies_before_sampling(keys, tmp_path):
    """Repeated inputs are removed before a new test split or a sample is drawn."""
    rng = np.random.default_rng(0)
    x, x_test, client = rng.integers(0, 40, (60, 1)), rng.integers(0, 50, (30, 1)), np.arange(60) % 4
    parts = {"x": x, "y": x[:, 0] % 3, "x_test": x_test, "y_test": x_test[:, 0] % 3}
    np.savez(tmp_path / "mine.npz", **parts, client_ids=client, test_client_ids=client[:30])

    def build_inputs(keys_to_add):
        dataset = build_dataset(f'data = {{name = "arrays", {keys}{keys_to_add}}}\narrays.path = "{tmp_path}/mine.npz"')
        return dataset.train.x[:, 0].tolist(), dataset.x_test[:, 0].tolist()

    train, test = build_inputs("")
    assert set(train) & set(test)
    train, test = build_inputs(", deduplicate = true")
    assert sorted(train + test) == sorted(set(x[:, 0]) | set(x_test[:, 0]))
