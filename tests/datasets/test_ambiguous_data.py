"""Data that could be misread raise an error or a note, and images of any type get one scale."""

from datetime import date

import numpy as np
import pytest

import fedsim
from fedsim.datasets import arrays, windows
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.federated import unseen_notes
from fedsim.datasets.natural_clients import concatenate_clients
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.scales import scale_notes
from fedsim.engine import make_plan
from fedsim.errors import ConfigError, DataError

X, Y = np.zeros((6, 2), np.float32), np.array([0, 1, 2, 0, 1, 2])
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), np.uint8)
PIXELS.flat[0] = 255


def test_characters_that_are_no_class_of_a_text_model_raise():
    """It predicts the next character, so its one-hot rows of others would be zero."""
    texts = np.asarray([[0, 1, 1], [1, 0, 1]] * 3, np.int32)
    plan = lambda x, x_test, model="char_lstm", **tables: make_plan(
        fedsim.load(
            {
                "model": {"name": model},
                **{"char_lstm": {"hidden_size": 4}, "transformer": {"hidden_size": 8, "num_layers": 1}},
                "server": {"cohort_size": 1},
                "data": {"num_clients": 1},
                **tables,
            },
            data=fedsim.from_arrays(x, Y % 2, x_test=x_test, y_test=Y % 2, inputs="text"),
        )
    )
    assert plan(texts.astype(np.uint8), texts.astype(np.uint8)).groups
    assert not [note for note in plan(texts, texts).notes if "as numbers" in note]
    note = "model.name: mlp takes characters as numbers; char_lstm and transformer embed them"
    assert note in plan(texts, texts, "mlp").notes
    backdoor = {"corruption": {"kind": "backdoor", "fraction": 1.0}}
    plan(texts, texts, **backdoor, backdoor={"phrase": [1, 0]})
    with pytest.raises(ConfigError, match=r"backdoor: phrase: must have 1 to 3 tokens, got 0"):
        plan(texts, texts, **backdoor, backdoor={"phrase": []})
    assert make_plan(fedsim.load(backdoor | {"backdoor": {"phrase": []}})).groups  # of images it has no part
    with pytest.raises(ConfigError, match=r"^backdoor\.phrase: must be tokens from 0 to 1, got 2$"):
        plan(texts, texts, **backdoor, backdoor={"phrase": [1, 2]})
    for x, x_test, value in ((10 * texts, texts, 10), (texts, texts + 1, 2), (-texts, texts, -1)):
        remedy = "number the tokens from 0" if value < 0 else "use transformer for other labels of texts"
        with pytest.raises(
            ConfigError, match=rf"^model\.name: char_lstm .* inputs must be 0 to 1, got {value}; {remedy} \("
        ):
            plan(x, x_test)
    message = r"^model\.name: transformer .* got 10; set transformer\.vocabulary_size = 11 for"
    with pytest.raises(ConfigError, match=message):
        plan(10 * texts, texts, "transformer")


def test_no_texts_raise():
    for texts in ({}, {"al": ""}):
        with pytest.raises(DataError, match="mine: some client's texts must be longer than a window of 5"):
            windows.make("mine", texts, {}, 5)


def test_negative_labels_of_natural_clients_are_no_regression():
    raw = concatenate_clients("mine", [("al", X, -1 - Y)], inputs="vector")
    with pytest.raises(DataError, match="training labels must be 0 to 0, got -3 to -1; number them"):
        canonicalize(raw, needs_test=False)


def test_a_part_of_a_test_set_is_no_missing_one():
    """Which would be taken from the training examples."""
    with pytest.raises(DataError, match="6 test inputs but 0 labels"):
        canonicalize(RawDataset("mine", X, Y, X, Y[:0], 3, "vector"), needs_test=False)
    with pytest.raises(DataError, match="0 test examples but 6 client ids"):
        canonicalize(RawDataset("mine", X, Y, X[:0], Y[:0], 3, "vector", Y, Y), needs_test=False)


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        ([b"H7", b"H9"], ("H7", "H9")),
        (np.asarray([b"H7", b"H9"], object), ("H7", "H9")),
        (["1e9", "1e" + "9" * 20], None),
    ],
)
def test_client_ids_are_bytes_or_look_like_huge_numbers(ids, names):
    data = fedsim.from_arrays(X, Y, np.asarray(ids)[np.arange(6) % 2], X, Y)
    assert data.client_names == (names or tuple(ids))


def test_classes_beyond_the_given_number_name_the_number():
    with pytest.raises(DataError, match="training labels must be 0 to 1, got 0 to 2; set num_classes = 3, or number"):
        fedsim.from_arrays(X, Y, Y, X, Y, num_classes=2)


def test_sparse_labels_raise():
    labels = np.where(Y == 2, 100_000, Y)
    with pytest.raises(DataError, match=r"labels must .* got only 3 of 100,001 classes; .* num_classes"):
        fedsim.from_arrays(X, labels, Y, X, labels)
    assert fedsim.from_arrays(X, labels, Y, X, labels, num_classes=100_001).num_classes == 100_001
    assert fedsim.from_arrays(X, Y + 90, Y, X, Y + 90).num_classes == 93


def test_unknown_arrays_in_a_file_raise(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y, client_id=Y)
    with pytest.raises(DataError, match=r"unknown array client_id; did you mean client_ids\?"):
        arrays.read(tmp_path / "a.npz")


def test_classes_that_occur_only_in_the_test_set_are_noted():
    assert not [*unseen_notes(fedsim.from_arrays(X, Y, Y, X, Y))]
    (note,) = unseen_notes(fedsim.from_arrays(X, Y, Y, X, Y + 1))
    assert note == "arrays: 33.3 % of the test labels are classes that no client trains on: 3"


class Pairs:
    """As data sets of other libraries are."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], Y[i]


MISSING = "must name the client of each example, got NaN, None or a blank text"
MIXED = "must be all texts, or all numbers, got numbers and texts"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Pairs(), Y), r"x must be one array, got Pairs .* x, y = map\(np\.stack, zip\(\*pairs\)\)"),
        ((iter(X), Y), "x must be one array, got .*iterator"),
        (([[1.0], [1.0, 2.0]] * 3, Y), "x must be one array, got list"),
        ((np.ma.array(X, mask=np.eye(6, 2)), Y), "x must have no masked values"),
        (([np.ma.array([1, 2], mask=[0, 1])] * 6, Y), "x must have no masked values"),
        ((X.astype(str), Y), r"inputs must be numbers, got <U32; .*astype\(float\)"),
        ((X, np.ma.array(Y, mask=Y == 1)), "y must have no masked values"),
        ((X, np.asarray(list("abcabc"))), r"must be integer classes, got <U1; .*np\.unique"),
        ((X, Y.astype(float)), r"must be integers for classes, .* use y\.astype\(int\) .*, or num_classes = 0"),
        ((X, 2.0 * Y - 1), r"must be integers for classes, .* use y\.astype\(int\) .*, or num_classes = 0"),
        ((X, np.eye(3, dtype=int)[Y]), r"got one-hot labels \[M, 3\]; use y\.argmax\(axis=1\)"),
        ((X, Y - 1), r"must be 0 to 1, got -1 to 1; .*np\.unique"),
        ((X, Y.astype("M8[s]")), "must be integer classes, got datetime64"),
        ((X, Y, [1, "1"] * 3), MIXED),
        ((X, Y, [1, None] * 3), MISSING),
        ((X, Y, ["a", None] * 3), MISSING),
        ((X, Y, ["a", " "] * 3), MISSING),
        ((X, Y, [b"a", b""] * 3), MISSING),
        ((X, Y, ["a", float("nan")] * 3), MISSING),
        ((X, Y, np.array([0, 0, 0, 1, 1, np.nan])), MISSING),
        ((X, Y, np.asarray(["2020-01-01", "NaT"] * 3, "M8[D]")), MISSING),
        ((X, Y, np.ma.array(Y, mask=Y == 1)), "client ids must have no masked values"),
        ((X, Y, ["a"] * 6), "must name several clients, got a for all examples; leave them out"),
        ((X, Y, list("aaaabc")), "must name several clients, got a for all training examples; leave them out"),
    ],
)
def test_inputs_labels_and_clients_that_may_be_misread_raise(arguments, message):
    with pytest.raises(DataError, match=message):
        fedsim.from_arrays(*arguments)


@pytest.mark.parametrize(
    ("ids", "test_ids"),
    [
        ([2**63, -1, 2**63 + 1] * 2, None),
        (np.asarray([2**53, 2**53 + 1, 7] * 2), np.asarray([2**53 + 1, 2**53, 7] * 2, np.uint64)),
        (np.asarray([1.5, -2, 3] * 2), None),
        ([b"a", b"c", b"b"] * 2, None),
        (np.asarray([[2], [0], [1]] * 2), None),
        ([date(2020, 1, 3), date(2020, 1, 1), date(2020, 1, 2)] * 2, None),
    ],
)
def test_client_ids_of_any_type(ids, test_ids):
    test_ids = ids if test_ids is None else test_ids
    dataset = fedsim.from_arrays(X + np.arange(6)[:, None], Y, ids, X, Y, test_client_ids=test_ids)
    ids, test_ids = (np.ravel(part).tolist() if isinstance(part, np.ndarray) else part for part in (ids, test_ids))
    assert dataset.train.x[:, 0].tolist() == sorted(range(6), key=ids.__getitem__)
    assert dataset.test_clients.tolist() == [sorted(set(ids)).index(name) for name in test_ids]


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", None])
def test_odd_seeds_raise(seed):
    with pytest.raises(DataError, match=rf"seed: must be an integer >= 0, got {seed!r}"):
        fedsim.from_arrays(X, Y, seed=seed)
    with pytest.raises(ConfigError, match=r"seed: must be an integer >= 0 of 32 bits, got 1099511627776"):
        fedsim.load({}, seed=2**40).runs()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, 0 * Y), "all training labels are 0, so any model learns them"),
        ((300 * (X - 1), Y), "inputs are -300 to -300, and are used as they are; standardize"),
        ((X, 1e5 + 0.5 * Y), "targets are 100000 to 100001, and are used as they are; standardize"),
        ((np.eye(6, 2, dtype=np.uint8), Y), "uint8 inputs are divided by 255, but the largest is 1"),
        ((X, Y + 1), "arrays: class 0 does not occur; renumber the labels, or give num_classes"),
        ((X, Y, ["a", "nan"] * 3), "client ids have the text 'nan', which is taken for a name like others"),
        ((X, Y, ["ab", "Ab"] * 3), "client ids have 'Ab' and 'ab', which are taken for different names"),
        ((X, Y, [0, 0, 1, 1, 2, 3]), "2 of 4 clients are left out: they have too few examples"),
    ],
)
def test_notes_on_unusual_data(arguments, message):
    plan = make_plan(
        fedsim.load({"data": {"num_clients": 2}, "server": {"cohort_size": 2}}, data=fedsim.from_arrays(*arguments))
    )
    (note,) = (note for note in plan.notes if message in note)
    assert note.startswith("arrays: ")


def test_a_data_set_and_an_experiment_are_shown_in_one_line():
    dataset = fedsim.from_arrays(X, Y, Y, X, Y)
    assert repr(dataset) == "<arrays: 3 clients, 6 + 6 examples of 2 vector inputs, 3 classes>"
    experiment = fedsim.load({"name": "mine"}, data=dataset, seed=fedsim.sweep([0, 1]))
    assert repr(experiment) == "<Experiment mine: 2 runs>"


def test_clients_with_short_texts_are_counted():
    raw = windows.make("mine", {"al": "abcdefg", "bob": "ab", "cy": "abc"}, {"al": "a"}, 3)
    assert raw.notes == (
        "mine: 2 of 3 training clients are left out: their texts are not longer than a window of 3",
        "mine: 1 of 1 test clients are left out: their texts are not longer than a window of 3",
    )


def as_models_see(x):
    """The inputs as models see them."""
    return x.astype(np.float64) / (255 if x.dtype == np.uint8 else 1)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4", ">i4", "i8", "u8", "f2", "f4", ">f8", "longdouble"])
def test_pixels_of_any_type_are_scaled(dtype):
    dataset = fedsim.from_arrays(PIXELS.astype(dtype), Y, None, PIXELS.astype(dtype), Y)
    np.testing.assert_array_equal(as_models_see(dataset.train.x), PIXELS / 255)
    np.testing.assert_array_equal(as_models_see(dataset.x_test), PIXELS / 255)


@pytest.mark.parametrize("inputs", [None, "vector"])
def test_counts_that_are_no_images_are_noted(inputs):
    """[M, T, F], or [M, T, F, G] that the user calls vectors, are used as they are."""
    counts = PIXELS.astype(int)[..., 0] if inputs is None else PIXELS.astype(int)
    dataset = fedsim.from_arrays(counts, Y, inputs=inputs, test_fraction=0.2)
    assert set(np.unique(dataset.train.x)) <= set(np.unique(PIXELS))
    assert dataset.train.x.dtype != np.uint8
    assert ["inputs are 0 to 255, and are used as they are" in note for note in scale_notes(dataset)] == [True]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (PIXELS.astype(np.uint16) * 257, PIXELS / 255),
        (PIXELS / 255, PIXELS / 255),
        (PIXELS / 100 - 1, PIXELS / 100 - 1),
        (PIXELS - 123.68, PIXELS - 123.68),
        (PIXELS // 16, PIXELS // 16 / 255),
        ((PIXELS // 16).astype(float), PIXELS // 16),
        (PIXELS.astype(np.int64) % 3 - 1, PIXELS % 3 - 1.0),
        (PIXELS > 99, PIXELS > 99),
        (np.ones((6, 3, 3, 3)), np.ones((6, 3, 3, 3))),
        (np.ones((6, 1, 9, 2)), np.ones((6, 1, 9, 2))),
    ],
)
def test_images_keep_their_scale(images, expected):
    np.testing.assert_allclose(
        as_models_see(fedsim.from_arrays(images, Y, None, images, Y).train.x), expected, atol=1e-6
    )


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (PIXELS * 0.7 + 40, "got float64 of 40 to 218.5; divide them"),
        (PIXELS.astype(np.int64) * 16, "got int64 of 0 to 4080; divide them"),
        (PIXELS.astype(np.int16) - 128, "got int16 of .* to 127; divide them"),
        (np.ones((6, 4, 8, 8)), r"\[M, height, width, channels\], got \(6, 4, 8, 8\); .*np\.moveaxis"),
        (PIXELS.reshape(6, 1, 8, 8), r"\[M, height, width, channels\], got \(6, 1, 8, 8\); .*np\.moveaxis\(x, 1, -1\)"),
        (np.ones((6, 3, 32, 48)), r"got \(6, 3, 32, 48\); .*np\.moveaxis\(x, 1, -1\)"),
    ],
)
def test_images_of_unknown_scale_or_axes_raise(images, message):
    with pytest.raises(DataError, match=message):
        fedsim.from_arrays(images, Y)


def test_the_scales_of_both_parts_must_be_known():
    with pytest.raises(DataError, match="got float64 and uint8 of 0 to 255"):
        fedsim.from_arrays(PIXELS, Y, None, PIXELS / 255, Y)
    dark = fedsim.from_arrays(PIXELS.astype(int), Y, None, PIXELS.astype(float) // 100, Y)
    np.testing.assert_array_equal(as_models_see(dark.x_test), PIXELS // 100 / 255)
