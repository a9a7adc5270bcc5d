"""Deduplication keeps one of equal inputs, and no test input is a training input."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.subsets import deduplicate
from fedsim.errors import DataError
from tests.datasets.build import build_dataset


def make_raw(train, test, inputs="image", has_clients=True) -> RawDataset:
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
    raw = make_raw(train, test, inputs, has_clients)
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
    raw = make_raw([0] * 30, [1])
    x = raw.x.copy()
    x.reshape(30, -1)[np.arange(6), np.arange(6)] = 7  # one pixel of each of the first six
    assert len(deduplicate(replace(raw, x=x)).y) == 7


def test_a_data_set_without_repeated_inputs_is_not_copied():
    raw = make_raw([3, 1, 2], [4])
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
