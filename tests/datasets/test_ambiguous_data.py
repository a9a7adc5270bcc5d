"""Data that could be misread raise an error or a note."""

import numpy as np
import pytest

import fedsim
from fedsim.config.schema import DataConfig
from fedsim.datasets import arrays, natural, sampling, windows
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.federated import unseen_class_notes
from fedsim.engine import make_plan
from fedsim.errors import ConfigError, DataError

X, Y = np.zeros((6, 2), np.float32), np.array([0, 1, 2, 0, 1, 2])


def test_nan_client_ids_raise():
    for ids in (np.array([0, 0, 0, 1, 1, np.nan]), np.array([0, 0, 0, 1, 1, np.nan], object)):
        with pytest.raises(DataError, match=r"client ids must .* got NaN"):
            fedsim.from_arrays(X, Y, ids, X, Y)


def test_characters_that_are_no_class_of_a_text_model_raise():
    """It predicts the next character, so its one-hot rows of others would be zero."""
    texts = np.asarray([[0, 1, 1], [1, 0, 1]] * 3, np.int32)
    plan = lambda x, x_test, model="char_lstm": make_plan(
        fedsim.load(
            {
                "model": {"name": model},
                **({"char_lstm": {"hidden_size": 4}} if model == "char_lstm" else {}),
                "server": {"cohort_size": 1},
                "data": {"num_clients": 1},
            },
            data=fedsim.from_arrays(x, Y % 2, x_test=x_test, y_test=Y % 2, inputs="text"),
        )
    )
    assert not [note for note in plan(texts, texts).notes if "as numbers" in note]
    assert "model.name: mlp takes characters as numbers; char_lstm embeds them" in plan(texts, texts, "mlp").notes
    for x, x_test, value in ((10 * texts, texts, 10), (texts, texts + 1, 2), (-texts, texts, -1)):
        with pytest.raises(ConfigError, match=rf"^model\.name: char_lstm .* inputs must be 0 to 1, got {value};"):
            plan(x, x_test)


def test_no_texts_raise():
    for texts in ({}, {"al": ""}):
        with pytest.raises(DataError, match="mine: some client's texts must be longer than a window of 5"):
            windows.make("mine", texts, {}, 5)


def test_negative_labels_of_natural_clients_are_no_regression():
    raw = natural.concatenate_clients("mine", [("al", X, -1 - Y)], inputs="vector")
    with pytest.raises(DataError, match="training labels must be 0 to 0, got -3 to -1"):
        canonicalize(raw, needs_test=False)


def test_sparse_labels_raise():
    labels = np.where(Y == 2, 100_000, Y)
    with pytest.raises(DataError, match=r"labels must .* got only 3 of 100,001 classes; .* num_classes"):
        fedsim.from_arrays(X, labels, Y, X, labels)
    assert fedsim.from_arrays(X, labels, Y, X, labels, num_classes=100_001).num_classes == 100_001
    assert fedsim.from_arrays(X, Y + 90, Y, X, Y + 90).num_classes == 93


def test_unknown_arrays_in_a_file_raise(tmp_path):
    parts = {"x": X, "y": Y, "x_test": X, "y_test": Y}
    np.savez(tmp_path / "a.npz", **parts, client_id=Y)
    with pytest.raises(DataError, match=r"unknown array client_id; did you mean client_ids\?"):
        arrays.read(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **parts, client_ids=Y, num_classes=7)
    assert arrays.read(tmp_path / "a.npz").num_classes == 7


def test_notes_on_unseen_classes_and_default_split():
    """Classes that occur only in the test set, and a default test split."""
    assert unseen_class_notes(fedsim.from_arrays(X, Y, Y, X, Y)) == []
    (note,) = unseen_class_notes(fedsim.from_arrays(X, Y, Y, X, Y + 1))
    assert note == "arrays: 33.3 % of the test labels are classes that no client trains on: 3"
    raw = fedsim.RawDataset("mine", X, Y, X[:0], Y[:0], 3, "vector", Y, Y[:0])
    (note,) = sampling.default_split_notes(raw, DataConfig(partition="natural"))
    assert note == (
        "data.test_fraction: mine comes without test examples, so 20 % of each client's examples become test examples"
    )
    assert sampling.default_split_notes(raw, DataConfig(partition="natural", test_fraction=0.5)) == []
