"""LEAF's format: small files with its quirks; test_real_data.py has the real ones."""

import gzip
import json

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
    assert [ALPHABET[i] for i in raw.y] == raw.label_names[raw.y].tolist() == [",", " "]
    assert (raw.num_classes, raw.inputs) == (80, "text")


TEXT, VECTOR = {"x": ["abc"], "y": ["d"]}, {"x": [[0.5, 2.0, 3.0]], "y": [1]}


def of_user(x, y, **more):
    return {"a.json": json.dumps({"users": ["a"], "user_data": {"a": {"x": x, "y": y}}} | more).encode()}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (of_user([[0.1]], [2**40]), "not in LEAF's format"),
        (of_user([[0.1]], [0.7]), "labels must be integers, or characters that follow a text, got 0.7"),
        (of_user(["to"], ["be"]), "labels must be single characters, got 'be'"),
        (of_user(["to"], [1]), "user a: texts must have the next character as label, got 1"),
        (of_user(["000001.jpg"], [1]), "user a: inputs must be numbers or texts, got file names, such as '000001.jpg'"),
        (of_user([[0.1]], [[0, 1]]), r"user a: labels must be .*, got \[0, 1\]"),
        (of_user([["word"]], [1]), "user a: inputs must be numbers of one shape, or one text each"),
        (of_user([[[1, 2], [1]]], [1]), "user a: inputs must be numbers of one shape, or one text each"),
        (of_user([], []), "no user has examples"),
        ({"a.json": {"a": VECTOR}, "a.json.gz": {"a": VECTOR}}, r"a\.json\.gz: repeats user a of a\.json"),
        ({"a.json": {"a": TEXT, "b": VECTOR}}, "inputs must have one type, got int8 and float32 of client b"),
        ({"a.json": b'{"users": ["a"], "user'}, "a.json: broken"),
        ({"a.json.gz": gzip.compress(b'{"users": ["a"]}')[:-9]}, r"a\.json\.gz: broken"),
        ({"a.json": b'{"users": ["a"], "user_data": {}}'}, "must have the same users"),
        ({"a.json": b"[1, 2]"}, "not in LEAF's format"),
        (of_user([[1]], []), "user a has 1 inputs and 0 labels"),
        (of_user([[1]], [1], num_samples=[3]), "num_samples 3"),
        (of_user(["to", "be"], ["b", "e"], num_samples=[1]), "num_samples 1"),
        (of_user(["caf\u00e9"], ["e"]), "not in LEAF's format: user a: characters must be among LEAF's 80"),
    ],
)
def test_broken_or_inconsistent_files_raise(files, message, tmp_path):
    (tmp_path / "train").mkdir()
    for name, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / "train" / name).write_bytes(content)
        else:
            write_leaf(tmp_path / "train" / name, content)
    with pytest.raises(DataError, match=message):
        leaf.read_folder(tmp_path)


def test_a_missing_folder_raises():
    with pytest.raises(ConfigError, match=r"leaf\.path: must name a folder"):
        leaf.leaf(0)
    with pytest.raises(DataError, match=r"nowhere/train: no \.json"):
        leaf.leaf(0, path="nowhere")


@pytest.mark.parametrize("inputs", [[0.0, 2.0, 3.0], [-1.0, 0.0, 1.0], [0.25, 0.75, 1.0]])
def test_inputs_that_are_no_pixels_stay_numbers(inputs, tmp_path):
    for part in ("train", "test"):
        write_leaf(tmp_path / part / "a.json", {"al": {"x": [inputs], "y": [0]}})
    raw = leaf.read_folder(tmp_path)
    assert (raw.x.dtype, raw.x.tolist(), raw.inputs) == (np.float32, [inputs], "vector")
