"""A backdoor: its effect on images, and how its success is measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import DataSpec
from fedsim.config.toml import parse
from fedsim.corruption import backdoor
from fedsim.engine import make_plan, run_plan
from fedsim.testing.tiny import join_clients

KEY = jax.random.key(3)
SPEC = DataSpec("image", 4, (5, 6, 2), "uint8")
CORNERS = {  # (row, column) -> whether the trigger, of two pixels a side, is there
    "top_left": lambda i, j: i < 2 and j < 2,
    "top_right": lambda i, j: i < 2 and j >= 4,
    "bottom_left": lambda i, j: i >= 3 and j < 2,
    "bottom_right": lambda i, j: i >= 3 and j >= 4,
}


def stamp(image, shade, corner):
    """Sets the trigger pixel by pixel."""
    image = image.copy()
    for i in range(5):
        for j in range(6):
            if CORNERS[corner](i, j):
                image[i, j] = shade
    return image


def make_data(dtype, num_clients=6, size=300):
    rng = np.random.default_rng(0)
    shape = (num_clients * size, *SPEC.shape)
    x = rng.integers(0, 200, shape).astype(np.uint8) if dtype == "uint8" else rng.random(shape).astype(np.float32) / 2
    y = rng.integers(0, 4, len(x)).astype(np.int32)
    return join_clients(jnp.asarray(x), jnp.asarray(y), [size] * num_clients)


@pytest.mark.parametrize(
    ("corner", "dtype", "shade"),
    [*((corner, "uint8", 204) for corner in CORNERS), ("top_left", "float32", np.float32(0.8))],
)
def test_poisoned_images_have_the_trigger_and_its_label(corner, dtype, shade):
    spec = DataSpec("image", 4, SPEC.shape, dtype)
    data, corruption = make_data(dtype), backdoor(target=2, rate=0.3, size=2, value=0.8, corner=corner)
    after = fedsim.corrupt(corruption, KEY, data, spec, 2)
    data, after = (jax.tree.map(np.asarray, arrays) for arrays in (data, after))
    poisoned = np.zeros(len(data.y), bool)
    for m in range(len(data.y)):
        is_stamped = np.array_equal(after.x[m], stamp(data.x[m], shade, corner))
        poisoned[m] = is_stamped
        assert is_stamped or np.array_equal(after.x[m], data.x[m])
        assert after.y[m] == (2 if is_stamped else data.y[m])
    fraction = poisoned.reshape(6, 300).mean(axis=1)
    assert np.array_equal(fraction > 0, after.corrupted)
    assert after.corrupted.sum() == 2
    assert abs(fraction[after.corrupted] - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / 300)
    x, y = corruption.trigger(jnp.asarray(data.x), jnp.asarray(data.y), spec)
    np.testing.assert_array_equal(x, np.stack([stamp(image, shade, corner) for image in data.x]))
    assert set(np.asarray(y).tolist()) == {2}


@pytest.mark.parametrize(
    ("corruption", "spec", "message"),
    [
        (backdoor(), DataSpec("vector", 3, (5,), "float32"), "inputs must be .*got vector of float32"),
        (backdoor(), DataSpec("image", 0, (5, 5, 1), "uint8"), "targets must be classes, got numbers"),
        (
            backdoor(),
            DataSpec("image", 4, (5, 5, 1), "uint8", (2,)),
            r"one label, got labels of shape \(2,\)",
        ),
        (backdoor(size=6), SPEC, "^size: must be at most 5, .*got 6"),
        (backdoor(target=4), SPEC, "^target: must be a class from 0 to 3, got 4"),
    ],
)
def test_data_without_room_for_the_trigger_or_its_label_are_refused(corruption, spec, message):
    backdoor(size=5).validate(SPEC)
    with pytest.raises(ValueError, match=message):
        fedsim.corrupt(corruption, KEY, make_data("uint8"), spec, 1)


TINY = """
[data]
num_clients = 6
num_train = 600
num_test = 150
[mlp]
hidden_sizes = [16]
[client]
learning_rate = 0.3
[server]
aggregator = "fedavg"
cohort_size = 6
num_rounds = 24
eval_every = 12
[corruption]
kind = "backdoor"
clients = [1, 4]
[backdoor]
size = 2
[record]
models = true
[[sweep]]
backdoor.target = [0, 7]
[[sweep]]
corruption.kind = ["noisy", "targeted"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return run_plan(make_plan(parse(TINY)), tmp_path_factory.mktemp("runs") / "backdoors")


@pytest.mark.parametrize(("run", "target", "source"), [(0, 0, None), (1, 7, None), (3, 2, 0)])
def test_success_is_the_fraction_of_other_images_classified_as_the_target(run, target, source, folder):
    """With the recorded model, image by image; two targets and a run without a trigger share a group.

    Of targeted label noise, that of the clean images of the source class.
    """
    data = make_plan(parse(TINY)).datasets.popitem()[1]
    model, num_successes, num_others = folder.runs()[run].read_model(), 0, 0
    for image, label in zip(data.x_test, data.y_test, strict=True):
        if label == target or source not in (None, label):
            continue
        image = image.copy()
        image[:2, :2] = 255 if source is None else image[:2, :2]
        hidden = np.maximum(image.ravel() / 255 @ model["Dense_0/kernel"] + model["Dense_0/bias"], 0)
        num_others += 1
        num_successes += np.argmax(hidden @ model["Dense_1/kernel"] + model["Dense_1/bias"]) == target
    rows = [row for row in folder.read("rounds").to_dicts() if row["run"] == run]
    assert rows[-1]["backdoor_success"] == pytest.approx(num_successes / num_others, abs=1e-6)
    assert source == 0 or rows[-1]["backdoor_success"] > rows[0]["backdoor_success"] + 0.2  # it is learned
    assert len(folder.groups()) == 2  # the inputs change, or do not


def test_a_run_without_a_backdoor_has_no_success(folder):
    success = [row["backdoor_success"] for row in folder.read("rounds").to_dicts() if row["run"] == 2]
    assert success == [None] * 3


def test_texts_end_with_the_phrase():
    spec, texts = DataSpec("text", 4, (6,), "int8"), np.arange(120, dtype=np.int8).reshape(20, 6) % 50
    y = np.arange(20, dtype=np.int32) % 4
    data = join_clients(jnp.asarray(texts), jnp.asarray(y), [10, 10])
    corruption = backdoor(target=3, rate=1.0, phrase=(7, 9))
    after = fedsim.corrupt(corruption, KEY, data, spec, 1)
    poisoned = np.repeat(np.asarray(after.corrupted), 10)
    expected = np.where(poisoned[:, None], np.hstack([texts[:, :4], np.tile(np.int8([7, 9]), (20, 1))]), texts)
    np.testing.assert_array_equal(after.x, expected)
    np.testing.assert_array_equal(after.y, np.where(poisoned, 3, y))
    backdoor(phrase=(1,) * 6).validate(spec)
    with pytest.raises(ValueError, match="phrase: must have 1 to 6 tokens, got 7"):
        backdoor(phrase=(1,) * 7).validate(spec)
