"""LEAF's format: small files with its quirks; test_real_data.py has the real ones."""

import numpy as np
import pytest

from fedsim.datasets import leaf
from fedsim.datasets.text import ALPHABET
from fedsim.errors import ConfigError, DataError
from tests.datasets.build import build_dataset, write_leaf


def scale_pixels(*values):
    return [v / 255 for v in values]


def test_images_in_multiple_files(tmp_path):
    write_leaf(
        tmp_path / "train" / "b.json.gz",
        {"zoe": {"x": [scale_pixels(0, 1, 2, 255)], "y": [1]}, "nil": {"x": [], "y": []}},
    )
    write_leaf(
        tmp_path / "train" / "a.json",
        {"al": {"x": [scale_pixels(4, 5, 6, 7), scale_pixels(8, 9, 10, 11)], "y": [0, 2]}},
    )
    write_leaf(tmp_path / "test" / "a.json", {"al": {"x": [scale_pixels(1, 1, 1, 1)], "y": [3]}})
    raw = leaf.read_folder(tmp_path)
    assert raw.x.dtype == np.uint8
    assert raw.x.shape == (3, 2, 2, 1)
    assert raw.x[2].ravel().tolist() == [0, 1, 2, 255]
    assert raw.client_names[raw.client_ids].tolist() == ["al", "al", "zoe"]
    assert raw.y.tolist() == [0, 2, 1]
    assert (raw.num_classes, raw.inputs) == (4, "image")
    dataset = build_dataset(f'data = {{name = "leaf", partition = "natural"}}\nleaf.path = "{tmp_path}"')
    assert dataset.train.num_examples.tolist() == [2, 1]
    assert (dataset.test_clients.tolist(), dataset.num_test_clients) == ([0], 2)


def test_text_and_the_wrong_num_samples(tmp_path):
    """LEAF writes num_samples before it drops some windows; the arrays are correct."""
    write_leaf(tmp_path / "train" / "a.json", {"HAMLET": {"x": ["To be", "o be,"], "y": [",", " "]}}, num_samples=[81])
    write_leaf(tmp_path / "test" / "a.json", {"HAMLET": {"x": ["be, o"], "y": ["r"]}}, num_samples=[80])
    raw = leaf.read_folder(tmp_path)
    assert ["".join(ALPHABET[i] for i in row) for row in raw.x] == ["To be", "o be,"]
    assert [ALPHABET[i] for i in raw.y] == [",", " "]
    assert (raw.num_classes, raw.inputs) == (80, "text")


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[0.1]], [2**40], "not in LEAF's format"),
        ([[0.1]], [0.7], "labels must be integers, or characters that follow a text, got 0.7"),
        (["to"], ["be"], "labels must be single characters, got 'be'"),
        (["to"], [1], "user a: texts must have the next character as label, got 1"),
        (["000001.jpg"], [1], "user a: inputs must be numbers or texts, got file names, such as '000001.jpg'"),
        ([[0.1]], [[0, 1]], r"user a: labels must be .*, got \[0, 1\]"),
        ([["word"]], [1], "user a: inputs must be numbers of one shape, or one text each"),
        ([[[1, 2], [1]]], [1], "user a: inputs must be numbers of one shape, or one text each"),
    ],
)
def test_inconsistent_users_raise(tmp_path, x, y, message):
    write_leaf(tmp_path / "train" / "a.json", {"a": {"x": x, "y": y}})
    with pytest.raises(DataError, match=message):
        leaf.read_folder(tmp_path)


TEXT, VECTOR = {"x": ["abc"], "y": ["d"]}, {"x": [[0.5, 2.0, 3.0]], "y": [1]}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.json": {"a": VECTOR}, "a.json.gz": {"a": VECTOR}}, r"a\.json\.gz: repeats user a of a\.json"),
        ({"a.json": {"a": TEXT, "b": VECTOR}}, "inputs must have one type, got int8 and float32 of client b"),
        ({"a.json": {"a": {"x": [], "y": []}}}, "no user has examples"),
    ],
)
def test_inconsistent_files_raise(tmp_path, files, message):
    for name, user_data in files.items():
        write_leaf(tmp_path / "train" / name, user_data)
    with pytest.raises(DataError, match=message):
        leaf.read_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"users": ["a"], "user', "a.json: broken"),
        (b'{"users": ["a"], "user_data": {}}', "must have the same users"),
        (b"[1, 2]", "not in LEAF's format"),
        (b'{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": []}}}', "user a has 1 inputs and 0 labels"),
        (b'{"users": ["a"], "num_samples": [3], "user_data": {"a": {"x": [[1]], "y": [1]}}}', "num_samples 3"),
        (
            b'{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": ["to", "be"], "y": ["b", "e"]}}}',
            "num_samples 1",
        ),
        (b'{"users": ["a"], "user_data": {"a": {"x": ["caf\xc3\xa9"], "y": ["e"]}}}', "not in LEAF's format"),
    ],
)
def test_broken_files_raise(content, message, tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=message):
        leaf.read_folder(tmp_path)


def test_a_missing_folder_raises():
    with pytest.raises(ConfigError, match=r"leaf\.path: must name a folder"):
        leaf.leaf(0)
    with pytest.raises(DataError, match=r"nowhere/train: no \.json"):
        leaf.leaf(0, path="nowhere")


def test_a_truncated_archive_raises(tmp_path):
    write_leaf(tmp_path / "train" / "a.json.gz", {"a": {"x": [[1.0]], "y": [0]}})
    path = tmp_path / "train" / "a.json.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a\.json\.gz: broken"):
        leaf.read_folder(tmp_path)
