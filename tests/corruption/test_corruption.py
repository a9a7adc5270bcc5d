"""Corruption and attacks: what changes, and that nothing else does."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.attacks import all_ as attacks
from fedsim.core.types import CohortReport
from fedsim.corruption.all_ import CHANGES, CORRUPTIONS, NOISE_STD, choose_clients, corrupt, owners
from tests.conftest import COUNTS, make_dataset, make_simulation

KEY = jax.random.key(5)
NUM = 3


@pytest.fixture(scope="module")
def images():
    """Eight clients with 4x4 images."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (sum(COUNTS), 4, 4, 1)).astype(np.uint8)
    y = rng.integers(0, 3, sum(COUNTS))
    ids = np.repeat(np.arange(len(COUNTS)), COUNTS)
    return jax.tree.map(jnp.asarray, fedsim.from_arrays(x, y, ids, x[:5], y[:5]).train)


def parts(values):
    return np.split(np.asarray(values), np.cumsum(COUNTS)[:-1])


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_only_corrupted_clients_change_and_only_what_is_declared(kind, images):
    after = corrupt(CORRUPTIONS[kind], KEY, images, NUM)
    corrupted = np.asarray(after.corrupted)
    assert corrupted.sum() == NUM
    for name in set(images._fields) - CHANGES[kind] - {"corrupted"}:
        np.testing.assert_array_equal(getattr(after, name), getattr(images, name))
    for i in np.flatnonzero(~corrupted):
        np.testing.assert_array_equal(parts(after.x)[i], parts(images.x)[i])
        np.testing.assert_array_equal(parts(after.y)[i], parts(images.y)[i])
        assert after.counts[i] == images.counts[i]
    nobody = corrupt(CORRUPTIONS[kind], KEY, images, 0)
    chex.assert_trees_all_equal(nobody, images)


def test_shuffling_permutes_labels_within_a_client(data):
    after = corrupt(CORRUPTIONS["shuffling"], KEY, data, len(COUNTS))
    for old, new in zip(parts(data.y), parts(after.y), strict=True):
        np.testing.assert_array_equal(np.sort(old), np.sort(new))
    assert (after.y != data.y).any()


def test_shuffling_is_uniform():
    """Each of the six orders of one client's three labels comes up about equally often."""
    data = jax.tree.map(jnp.asarray, make_dataset(counts=(3, 2)).train)._replace(y=jnp.asarray([0, 1, 2, 0, 1]))
    shuffled = jax.vmap(lambda key: corrupt(CORRUPTIONS["shuffling"], key, data, 2).y)(jax.random.split(KEY, 6000))
    orders, counts = np.unique(np.asarray(shuffled[:, :3]), axis=0, return_counts=True)
    assert len(orders) == 6
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_flipping_and_collusion(data):
    many = make_dataset(counts=(6,) * 40)
    data = jax.tree.map(jnp.asarray, many.train)
    flipped = np.asarray(corrupt(CORRUPTIONS["flipping"], KEY, data, 40).y).reshape(40, 6)
    assert (flipped == flipped[:, :1]).all()
    assert set(flipped[:, 0]) == {0, 1, 2}  # a class for each client
    colluding = np.asarray(corrupt(CORRUPTIONS["collusion"], KEY, data, 40).y)
    assert len(set(colluding)) == 1


def test_noise_fills_the_range_of_each_client():
    rng = np.random.default_rng(0)
    x = np.full((400, 8, 8, 1), 128, np.uint8)
    x[200:] = rng.integers(0, 256, (200, 8, 8, 1))
    data = fedsim.from_arrays(
        x, np.zeros(400, int), np.repeat([0, 1], 200), x[:3], np.zeros(3, int), num_classes=2
    ).train
    noisy = np.asarray(corrupt(CORRUPTIONS["noisy"], KEY, jax.tree.map(jnp.asarray, data), 2).x)
    assert noisy.dtype == np.uint8
    for client in (noisy[:200], noisy[200:]):
        assert client.min() == 0
        assert client.max() == 255
    scale = 255 * NOISE_STD / noisy[:200].std()  # the range of 0.5 + N(0, 0.7^2) over 12,800 pixels
    expected = np.mean([np.ptp(NOISE_STD * rng.normal(size=12800)) for _ in range(20)])
    assert scale == pytest.approx(expected, rel=0.15)


def test_noise_on_float_images_stays_float(data):
    after = corrupt(CORRUPTIONS["noisy"], KEY, data, 8)
    assert after.x.dtype == jnp.float32
    assert float(after.x.min()) == 0.0
    assert float(after.x.max()) == 1.0


def test_exclude_takes_clients_out(data):
    after = corrupt(CORRUPTIONS["exclude"], KEY, data, NUM)
    np.testing.assert_array_equal(after.counts == 0, after.corrupted)


def test_a_larger_fraction_contains_a_smaller_one():
    fewer, more = (np.asarray(choose_clients(KEY, 20, n)) for n in (6, 10))
    assert fewer.sum() == 6
    assert more.sum() == 10
    assert (more | ~fewer).all()


def test_explicit_clients(data):
    after = corrupt(CORRUPTIONS["exclude"], KEY, data, 5, client_ids=(1, 7))
    assert np.flatnonzero(after.corrupted).tolist() == [1, 7]


def test_owners_skip_empty_clients():
    data = make_dataset().train._replace(
        y=np.zeros(5, int), offsets=np.asarray([0, 2, 2, 5]), counts=np.asarray([2, 0, 3, 0])
    )
    assert owners(jax.tree.map(jnp.asarray, data)).tolist() == [0, 0, 2, 2, 2]


def test_attacks():
    updates = {"w": jnp.ones((3, 2))}
    report = CohortReport(jnp.arange(3), jnp.ones(3, int), jnp.asarray([1.0, 2.0, 3.0]), updates, jnp.ones(3, bool))
    corrupted = jnp.asarray([False, True, False])
    faked = attacks.fake_loss(0.01)(report, corrupted)
    np.testing.assert_allclose(faked.losses, [1, 0.02, 3])
    chex.assert_trees_all_equal(faked.updates, updates)
    flipped = attacks.sign_flip(3.0)(report, corrupted)
    np.testing.assert_allclose(flipped.updates["w"], [[1, 1], [-3, -3], [1, 1]])
    chex.assert_trees_all_equal(flipped.losses, report.losses)
    chex.assert_trees_all_equal(attacks.honest(report, corrupted), report)


def test_fake_loss_buys_weight_under_arfl(dataset, data):
    """The paper's limitation: a false small loss, reported from the start, draws the weight."""
    corrupted = corrupt(CORRUPTIONS["shuffling"], KEY, data, 2)
    weight = {}
    for name, attack in [("honest", attacks.honest), ("liar", attacks.fake_loss(0.0))]:
        simulation = make_simulation(dataset, attack=attack, cohort_size=len(COUNTS))
        hparams = fedsim.HParams(0.2, 0.3)
        _, records = simulation.run(simulation.init(KEY, corrupted, hparams), corrupted, hparams, 5)
        weight[name] = float(jnp.sum(jnp.where(corrupted.corrupted[records.client_ids], records.weights, 0)))
    assert weight["honest"] < 4 < 4.9 < weight["liar"]  # of five rounds


def test_noisy_text_permutes_a_half_of_each_window():
    """Per window: the same characters, half of the positions or fewer changed, others untouched; labels stay."""
    windows = np.broadcast_to(np.arange(80, dtype=np.int8), (40, 80))  # each position its own character
    fields = windows, np.arange(40) % 80, np.asarray([0, 20]), np.asarray([20, 20]), np.zeros(2, bool)
    data = fedsim.ClientData(*(jnp.asarray(a) for a in fields))
    noisy = fedsim.corrupt(CORRUPTIONS["noisy"], jax.random.key(0), data, 0, client_ids=[1])
    x = np.asarray(noisy.x)
    np.testing.assert_array_equal(x[:20], windows[:20])
    np.testing.assert_array_equal(np.sort(x[20:], axis=1), windows[20:])
    changed = (x[20:] != windows[20:]).sum(axis=1)
    assert changed.max() <= 40
    assert changed.mean() > 36  # a random permutation of 40 has one fixed point on average
    assert len({row.tobytes() for row in x[20:]}) == 20
    np.testing.assert_array_equal(noisy.y, data.y)


def test_a_shift_moves_all_examples_of_a_client_alike(data):
    """Over many clients the moves have twice the inputs' standard deviation."""
    many = make_dataset(counts=(3,) * 400, num_features=5).train
    after = np.asarray(corrupt(CORRUPTIONS["shift"], KEY, many, 400).x)
    moves = (after - many.x).reshape(400, 3, 5)
    np.testing.assert_allclose(moves, np.broadcast_to(moves[:, :1], moves.shape), atol=1e-5)
    assert moves[:, 0].std() / many.x.std() == pytest.approx(2, rel=0.05)
    some = corrupt(CORRUPTIONS["shift"], KEY, data, NUM)
    moved = [np.any(a != b) for a, b in zip(parts(some.x), parts(data.x), strict=True)]
    assert moved == np.asarray(some.corrupted).tolist()
