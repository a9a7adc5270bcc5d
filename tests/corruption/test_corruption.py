"""The effect of each corruption; tests/testing checks that it has no others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import DataSpec
from fedsim.config.kinds import KINDS
from fedsim.config.registry import find
from fedsim.core.corrupt import choose_clients, example_owners
from fedsim.corruption import backdoor, mix, noisy, shift, shuffling
from fedsim.engine import make_plan
from fedsim.testing import check_corruption
from fedsim.testing.corruptions import accepts
from fedsim.testing.tiny import join_clients
from tests.conftest import COUNTS, make_dataset

KEY = jax.random.key(5)
NUM_CORRUPTED = 3
LABEL_NOISE = (
    "flipping",
    "collusion",
    "symmetric",
    "pairflip",
    "targeted",
    "localized",
    "furthest_flipping",
    "backdoor",
)

VECTORS = DataSpec("vector", 3, (5,), "float32")
IMAGES = DataSpec("image", 2, (8, 8, 1), "uint8")


def corrupt(kind, key, data, num_corrupted, client_ids=(), spec=VECTORS, **settings):
    corruption = find("corruption.kind", kind).make(**settings)
    return jax.jit(lambda key, data: fedsim.corrupt(corruption, key, data, spec, num_corrupted, client_ids))(key, data)


def split_clients(values):
    return np.split(np.asarray(values), np.cumsum(COUNTS)[:-1])


def test_shuffling_permutes_labels_within_a_client(data):
    after = corrupt("shuffling", KEY, data, len(COUNTS))
    for old, new in zip(split_clients(data.y), split_clients(after.y), strict=True):
        np.testing.assert_array_equal(np.sort(old), np.sort(new))
    assert (after.y != data.y).any()


def test_shuffling_is_uniform():
    """Each of the six orders of a client's three labels is about equally frequent."""
    data = jax.tree.map(jnp.asarray, make_dataset(num_examples=(3, 2)).train)._replace(y=jnp.asarray([0, 1, 2, 0, 1]))
    shuffled = jax.vmap(lambda key: corrupt("shuffling", key, data, 2).y)(jax.random.split(KEY, 6000))
    orders, num_examples = np.unique(np.asarray(shuffled[:, :3]), axis=0, return_counts=True)
    assert len(orders) == 6
    assert abs(num_examples - 1000).max() < 5 * np.sqrt(1000)


def test_flipping_draws_a_class_per_client_and_collusion_one_for_all(data):
    many = make_dataset(num_examples=(6,) * 40)
    data = jax.tree.map(jnp.asarray, many.train)
    flipped = np.asarray(corrupt("flipping", KEY, data, 40).y).reshape(40, 6)
    assert (flipped == flipped[:, :1]).all()
    assert set(flipped[:, 0]) == {0, 1, 2}  # a class for each client
    classes = [set(np.asarray(corrupt("collusion", key, data, 40).y)) for key in jax.random.split(KEY, 20)]
    assert {len(one) for one in classes} == {1}
    assert set().union(*classes) == {0, 1, 2}


def test_flipping_to_the_opposite_class(data):
    y = np.asarray(data.y)
    flipped = np.asarray(corrupt("flipping", KEY, data, 1, client_ids=[0], to="opposite").y)
    last = int(data.num_examples[0])
    assert flipped.tolist() == [*(2 - y[:last]), *y[last:]]


def test_of_several_corruptions_each_corrupted_client_has_one_in_turn(data):
    """As if each were alone, on its clients, with its part of the key."""
    kinds = "shuffling", "symmetric", "shift"
    mixed = mix(*(find("corruption.kind", kind).make() for kind in kinds))
    assert mixed.changed_fields == {"x", "y"}
    after = fedsim.corrupt(mixed, KEY, data, VECTORS, 0, client_ids=[0, 2, 3, 5, 6, 7])
    keys = jax.random.split(jax.random.split(KEY)[1], 3)
    expected = data
    for kind, key, clients in zip(kinds, keys, ([0, 5], [2, 6], [3, 7]), strict=True):
        is_corrupted = jnp.isin(jnp.arange(len(COUNTS)), jnp.asarray(clients))
        alone = find("corruption.kind", kind).make().apply(data, is_corrupted, VECTORS, key)
        is_changed = np.isin(example_owners(data), clients)
        x, y = np.where(is_changed[:, None], alone.x, expected.x), np.where(is_changed, alone.y, expected.y)
        expected = expected._replace(x=x, y=y)
    np.testing.assert_array_equal(after.x, expected.x)
    np.testing.assert_array_equal(after.y, expected.y)
    assert (np.asarray(after.x) != data.x).any()
    assert (np.asarray(after.y) != data.y).any()


def test_inputs_of_some_clients_unless_those_of_all_are_needed():
    """The contract of each alone compares them with the whole corruption; here that of several."""
    check_corruption(mix(shuffling(), noisy(), backdoor(rate=0.7)), skip=["jit"])
    assert mix(noisy(), shuffling()).change_inputs is not None
    for corruption in (noisy(text_noise="replace"), shift(), mix(noisy(), shift())):
        assert corruption.change_inputs is None


@pytest.mark.parametrize("kinds", ["shift+noisy", "noisy+shift"])
def test_one_of_several_corruptions_sees_the_clean_data(kinds):
    """Shifts are relative to the deviation of all inputs, which noise has not changed yet."""
    x = np.random.default_rng(0).normal(size=(400, 50)).astype(np.float32)
    data = fedsim.from_arrays(x, np.arange(400) % 2, np.arange(400) // 20, x[:3], np.arange(3) % 2)
    mixed = mix(*(find("corruption.kind", kind).make() for kind in kinds.split("+")))
    train = jax.tree.map(jnp.asarray, data.train)
    after = mixed.apply(train, jnp.ones(20, bool), data.spec, jax.random.key(0))
    moved = np.asarray(after.x - data.train.x).reshape(20, 20, 50)
    is_shifted = np.ptp(moved, axis=1).max(axis=1) < 1e-4
    assert is_shifted.sum() == 10
    assert np.sqrt((moved[is_shifted] ** 2).mean()) == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ("shuffling+exclude", "one that excludes clients must be the only one"),
        ("backdoor+shuffling+backdoor", r"at most one may aim at a class \(backdoor, targeted\)"),
        ("shuffling+shift", "inputs must be float32, got uint8"),
    ],
)
def test_corruptions_that_do_not_go_together_or_with_the_data(kinds, message):
    mixed = mix(*(find("corruption.kind", kind).make() for kind in kinds.split("+")))
    with pytest.raises(ValueError, match=f"^{message}$"):
        mixed.validate(IMAGES)


def test_a_note_says_that_some_of_several_corruptions_are_not_used():
    plan = make_plan(fedsim.load({"corruption": {"kind": "shuffling+noisy", "clients": [1]}}))
    assert plan.notes == ("corruption.kind: shuffling+noisy has more kinds than there are corrupted clients (1)",)


@pytest.mark.parametrize("std", [0.7, 0.2])
def test_noisy_images_are_rescaled_client_by_client(std):
    rng = np.random.default_rng(0)
    x = np.full((400, 8, 8, 1), 128, np.uint8)
    x[200:] = rng.integers(0, 256, (200, 8, 8, 1))
    data = join_clients(x, np.zeros(400, int), [200, 200])
    settings = {} if std == 0.7 else {"std": std}  # 0.7 is the paper's, and the default
    noisy = np.asarray(corrupt("noisy", KEY, data, 2, spec=IMAGES, **settings).x)
    assert noisy.dtype == np.uint8
    for client in (noisy[:200], noisy[200:]):
        assert client.min() == 0
        assert client.max() == 255
    scale = 255 * std / noisy[:200].std()  # the range of 0.5 + N(0, std^2) over 12,800 pixels
    expected = np.mean([np.ptp(std * rng.normal(size=12800)) for _ in range(20)])
    assert scale == pytest.approx(expected, rel=0.15)


def test_without_noise_images_are_only_rescaled():
    """Pixels from 0 to 255 do not change, others are rescaled to that range, and equal ones do not change."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (400, 8, 8, 1)).astype(np.uint8)
    x[200:] = 50 + x[200:] // 5  # 50 to 101
    data = join_clients(x, np.zeros(400, int), [200, 200])
    after = np.asarray(corrupt("noisy", KEY, data, 2, spec=IMAGES, std=0.0).x)
    np.testing.assert_array_equal(after[:200], x[:200])
    np.testing.assert_allclose(after[200:], (x[200:] - 50.0) * 5, atol=0.501)
    constant = data._replace(x=jnp.full_like(data.x, 77))
    np.testing.assert_array_equal(corrupt("noisy", KEY, constant, 2, spec=IMAGES, std=0.0).x, constant.x)
    floats = data._replace(x=jnp.full(data.x.shape, 0.25))
    np.testing.assert_array_equal(corrupt("noisy", KEY, floats, 2, std=0.0).x, floats.x)


def test_noisy_float_images_stay_float(data):
    after = corrupt("noisy", KEY, data, 8)
    assert after.x.dtype == jnp.float32
    assert float(after.x.min()) == 0.0
    assert float(after.x.max()) == 1.0


def test_several_labels_per_example_are_flipped_and_shuffled_together():
    many = make_dataset(num_examples=(6,) * 10).train
    data = many._replace(y=np.stack([many.y, np.arange(60) % 3], axis=1).astype(np.int32))
    spec = DataSpec("vector", 3, (5,), "float32", (2,))
    flipped = np.asarray(corrupt("flipping", KEY, data, 10, spec=spec).y).reshape(10, 12)
    assert (flipped == flipped[:, :1]).all()
    shuffled = np.asarray(corrupt("shuffling", KEY, data, 10, spec=spec).y).reshape(10, 6, 2)
    for before, after in zip(data.y.reshape(10, 6, 2).tolist(), shuffled.tolist(), strict=True):
        assert sorted(before) == sorted(after)


def test_kinds_of_data_that_corruptions_accept():
    numbers = DataSpec("vector", 0, (5,), "float32")
    for kind in KINDS["corruption.kind"].built_in:
        corruption = find("corruption.kind", kind).make()
        assert accepts(corruption, numbers) == (kind not in LABEL_NOISE)
        assert accepts(corruption, VECTORS) == (kind != "backdoor")  # which requires images
    assert accepts(noisy(), DataSpec("text", 3, (5,), "int8"))
    assert not accepts(noisy(), DataSpec("vector", 3, (5,), "int8"))  # which have no natural scale for noise


def test_exclude_removes_all_examples_of_corrupted_clients(data):
    """Here listed ones, in place of a random choice."""
    after = corrupt("exclude", KEY, data, 5, (1, 7))
    assert np.flatnonzero(after.corrupted).tolist() == [1, 7]
    np.testing.assert_array_equal(after.num_examples == 0, after.corrupted)


def test_a_larger_fraction_contains_a_smaller_one():
    fewer, more = (np.asarray(choose_clients(KEY, 20, n)) for n in (6, 10))
    assert fewer.sum() == 6
    assert more.sum() == 10
    assert (more | ~fewer).all()


def test_example_owners_skip_empty_clients():
    data = make_dataset().train._replace(
        y=np.zeros(5, int), offsets=np.asarray([0, 2, 2, 5]), num_examples=np.asarray([2, 0, 3, 0])
    )
    assert example_owners(jax.tree.map(jnp.asarray, data)).tolist() == [0, 0, 2, 2, 2]


def test_noisy_texts_permute_a_half_of_each_window():
    """Each window keeps its characters and at least half of its positions; labels do not change."""
    windows = np.broadcast_to(np.arange(80, dtype=np.int8), (40, 80))  # each position its own character
    data = join_clients(jnp.asarray(windows), jnp.arange(40), [20, 20])
    spec = DataSpec("text", 80, (80,), "int8")
    noisy = corrupt("noisy", jax.random.key(0), data, 0, [1], spec)
    x = np.asarray(noisy.x)
    np.testing.assert_array_equal(x[:20], windows[:20])
    np.testing.assert_array_equal(np.sort(x[20:], axis=1), windows[20:])
    changed = (x[20:] != windows[20:]).sum(axis=1)
    assert changed.max() <= 40
    assert changed.mean() > 36  # a random permutation of 40 has one fixed point on average
    assert len({row.tobytes() for row in x[20:]}) == 20
    np.testing.assert_array_equal(noisy.y, data.y)


def test_noisy_texts_replace_a_half_of_each_window():
    """By uniform characters: a position keeps its own by chance, with probability 1 / 80."""
    windows = np.broadcast_to(np.arange(80, dtype=np.int8), (400, 80))
    data = join_clients(jnp.asarray(windows), jnp.zeros(400, int), [400])
    spec = DataSpec("text", 80, (80,), "int8")
    x = np.asarray(corrupt("noisy", KEY, data, 1, spec=spec, text_noise="replace").x)
    is_new = x != windows
    assert is_new.sum(axis=1).max() == 40
    assert is_new.mean() == pytest.approx(0.5 * (1 - 1 / 80), abs=0.003)
    counts = np.bincount(x[is_new], minlength=80)  # of 15,800 characters
    assert abs(counts - counts.mean()).max() < 5 * np.sqrt(counts.mean())


def test_shift_adds_one_vector_per_client(data):
    """Over many clients the shifts have twice the inputs' standard deviation."""
    many = make_dataset(num_examples=(3,) * 400, num_features=5).train
    after = np.asarray(corrupt("shift", KEY, many, 400).x)
    shifts = (after - many.x).reshape(400, 3, 5)
    np.testing.assert_allclose(shifts, np.broadcast_to(shifts[:, :1], shifts.shape), atol=1e-5)
    assert shifts[:, 0].std() / many.x.std() == pytest.approx(2, rel=0.05)
    some = corrupt("shift", KEY, data, NUM_CORRUPTED)
    is_shifted = [np.any(a != b) for a, b in zip(split_clients(some.x), split_clients(data.x), strict=True)]
    assert is_shifted == np.asarray(some.corrupted).tolist()
