"""LEAF's format: made files with its quirks, and the real ones where they are at hand."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedsim.datasets import leaf
from fedsim.datasets.text import LETTERS
from fedsim.errors import ConfigError, DataError
from tests.datasets.made import dataset_of, write_leaf

DATA = os.environ.get("FEDSIM_DATA_DIR")
needs_data = pytest.mark.skipif(DATA is None, reason="FEDSIM_DATA_DIR is not set")


def image(*values):
    return [v / 255 for v in values]


def test_images_of_several_files(tmp_path):
    write_leaf(
        tmp_path / "train" / "b.json.gz", {"zoe": {"x": [image(0, 1, 2, 255)], "y": [1]}, "nil": {"x": [], "y": []}}
    )
    write_leaf(tmp_path / "train" / "a.json", {"al": {"x": [image(4, 5, 6, 7), image(8, 9, 10, 11)], "y": [0, 2]}})
    write_leaf(tmp_path / "test" / "a.json", {"al": {"x": [image(1, 1, 1, 1)], "y": [3]}})
    raw = leaf.read_folder(tmp_path)
    assert raw.x.dtype == np.uint8
    assert raw.x.shape == (3, 2, 2, 1)
    assert raw.x[2].ravel().tolist() == [0, 1, 2, 255]
    assert raw.client_names[raw.client_ids].tolist() == ["al", "al", "zoe"]
    assert raw.y.tolist() == [0, 2, 1]
    assert (raw.num_classes, raw.inputs) == (4, "image")
    dataset = dataset_of(f'data = {{name = "leaf", partition = "natural"}}\nleaf.path = "{tmp_path}"')
    assert dataset.train.counts.tolist() == [2, 1]


def test_text_and_the_wrong_num_samples(tmp_path):
    """LEAF counts windows of text before it drops some; the arrays are right."""
    write_leaf(tmp_path / "train" / "a.json", {"HAMLET": {"x": ["To be", "o be,"], "y": [",", " "]}}, num_samples=[81])
    write_leaf(tmp_path / "test" / "a.json", {"HAMLET": {"x": ["be, o"], "y": ["r"]}}, num_samples=[80])
    raw = leaf.read_folder(tmp_path)
    assert ["".join(LETTERS[i] for i in row) for row in raw.x] == ["To be", "o be,"]
    assert [LETTERS[i] for i in raw.y] == [",", " "]
    assert (raw.num_classes, raw.inputs) == (80, "text")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"users": ["a"], "num_samples": [3], "user_data": {"a": {"x": [[0.1]], "y": [1]}}}, "num_samples 3"),
        (
            {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": ["to", "be"], "y": ["b", "e"]}}},
            "num_samples 1",
        ),
        ({"users": ["a"], "num_samples": [0], "user_data": {"a": {"x": [[0.1]], "y": []}}}, "1 inputs and 0 labels"),
        ({"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [], "y": [1]}}}, "0 inputs and 1 labels"),
        (
            {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0.1]], "y": [2**40]}}},
            "not in LEAF's format",
        ),
        ({"users": [], "num_samples": [], "user_data": {"a": {"x": [[0.1]], "y": [1]}}}, "not of the same users"),
        ({"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0.1]], "y": [0.7]}}}, "label 0.7 is no class"),
        ({"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": ["to"], "y": ["be"]}}}, "'be' is no single"),
        ([], "not in LEAF's format"),
    ],
)
def test_rows_are_never_lost(tmp_path, content, message):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        leaf.read_folder(tmp_path)


def test_a_user_comes_once(tmp_path):
    for name in ("a.json", "a.json.gz"):
        write_leaf(tmp_path / "train" / name, {"al": {"x": [image(1)], "y": [0]}})
    with pytest.raises(DataError, match=r"a\.json\.gz: has user al again, who is in a\.json already"):
        leaf.read_folder(tmp_path)


def test_float_features(tmp_path):
    write_leaf(
        tmp_path / "train" / "a.json",
        {"a": {"x": [[0.5, -1.0, 2.0]], "y": [0]}, "b": {"x": [[0.0, 1.0, 1.0]], "y": [1]}},
    )
    write_leaf(tmp_path / "test" / "a.json", {"a": {"x": [[1.0, 0.0, 0.0]], "y": [0]}})
    raw = leaf.read_folder(tmp_path)
    assert raw.x.dtype == raw.x_test.dtype == np.float32
    assert raw.inputs == "vector"
    np.testing.assert_allclose(raw.x, [[0.5, -1, 2], [0, 1, 1]])
    np.testing.assert_allclose(raw.x_test, [[1, 0, 0]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"users": ["a"], "user', "a.json: broken"),
        (b'{"users": ["a"], "user_data": {}}', "not in LEAF's format: KeyError"),
        (b"[1, 2]", "not in LEAF's format"),
        (b'{"users": ["a"], "user_data": {"a": {"x": [[1], [2]], "y": [1]}}}', "user a has 2 inputs and 1 labels"),
        (b'{"users": ["a"], "user_data": {"a": {"x": ["caf\xc3\xa9"], "y": ["e"]}}}', "not in LEAF's format"),
    ],
)
def test_broken_files_are_named(content, message, tmp_path):
    write_leaf(tmp_path / "test" / "a.json", {"a": {"x": [[1.0]], "y": [0]}})
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=message):
        leaf.read_folder(tmp_path)
    (tmp_path / "train" / "a.json").unlink()
    with pytest.raises(DataError, match=r"train: no \.json"):
        leaf.read_folder(tmp_path)


def test_texts_and_vectors_do_not_mix(tmp_path):
    write_leaf(
        tmp_path / "train" / "a.json", {"a": {"x": ["abc"], "y": ["d"]}, "b": {"x": [[0.5, 2.0, 3.0]], "y": [1]}}
    )
    write_leaf(tmp_path / "test" / "a.json", {"a": {"x": ["bcd"], "y": ["e"]}})
    with pytest.raises(DataError, match=r"some inputs are of kind \w+, others \w+; they must be alike"):
        leaf.read_folder(tmp_path)


def test_the_folder_must_be_given():
    with pytest.raises(ConfigError, match=r"leaf\.path: which folder\?"):
        leaf.leaf(0)
    with pytest.raises(DataError, match=r"nowhere/train: no \.json"):
        leaf.leaf(0, path="nowhere")


def test_users_without_examples_are_an_error(tmp_path):
    write_leaf(tmp_path / "train" / "a.json", {"nil": {"x": [], "y": []}})
    with pytest.raises(DataError, match="no user has examples"):
        leaf.read_folder(tmp_path)


def test_a_truncated_archive_is_an_error(tmp_path):
    write_leaf(tmp_path / "train" / "a.json.gz", {"a": {"x": [[1.0]], "y": [0]}})
    path = tmp_path / "train" / "a.json.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a\.json\.gz: broken"):
        leaf.read_folder(tmp_path)


@needs_data
def test_real_femnist_counts():
    raw = leaf.read_folder(Path(DATA) / "femnist")
    assert (len(raw.y), len(raw.y_test)) == (67_423, 7_727)
    assert len(set(raw.client_ids)) == 489
    assert raw.num_classes == 62
    assert raw.x.shape[1:] == (28, 28, 1)
    assert raw.x.dtype == np.uint8
    counts = np.bincount(np.unique(raw.client_ids, return_inverse=True)[1])
    assert (counts.min(), np.median(counts), counts.max()) == (2, 150, 320)


@needs_data
def test_real_shakespeare_windows(tmp_path):
    """The published test file: 17,703 windows, though it claims 20,389."""
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    (source,) = (Path(DATA) / "shakespeare").glob("all_data*.json.gz")
    for split in ("train", "test"):
        (tmp_path / split / source.name).symlink_to(source)
    raw = leaf.read_folder(tmp_path)
    assert raw.x_test.shape == (17_703, 80)
    assert len(set(raw.client_ids)) == 34
