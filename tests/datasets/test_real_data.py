"""The paper's data sets from their real files have the published sizes."""

import gzip
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedsim.datasets import archives, catalog, prepared, shakespeare
from fedsim.datasets.subsets import deduplicate
from tests.datasets.build import build_dataset

DATA = os.environ.get("FEDSIM_DATA_DIR")
pytestmark = [pytest.mark.data, pytest.mark.skipif(DATA is None, reason="FEDSIM_DATA_DIR is not set")]
DIRECTORY = Path(DATA or ".")
SOURCES = {
    "cifar10": DIRECTORY / "cifar-10-batches-py",
    "femnist": DIRECTORY / "femnist",
    "shakespeare": DIRECTORY / "shakespeare" / "pg100.txt.gz",
}


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory):
    """All three sets, prepared once."""
    folder = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(folder / "tfds"))
        patch.setenv("FEDSIM_CACHE_DIR", str(folder / "cache"))
        for name, source in SOURCES.items():
            catalog.prepare(name, source, False, lambda *args: None)
    return folder


@pytest.fixture
def load(prepared_folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared_folder / "tfds"))
    monkeypatch.setenv("FEDSIM_CACHE_DIR", str(prepared_folder / "cache"))
    return prepared.load


def test_cifar10_sizes_and_order(load):
    raw = load("cifar10")
    assert raw.x.shape == (50_000, 32, 32, 3)
    assert raw.x_test.shape == (10_000, 32, 32, 3)
    assert np.bincount(raw.y).tolist() == [5000] * 10
    assert np.bincount(raw.y_test).tolist() == [1000] * 10
    # Class sizes of single official batches.
    assert np.bincount(raw.y[:10_000]).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert np.bincount(raw.y[40_000:]).tolist() == [1014, 1014, 952, 1016, 997, 1025, 980, 977, 1003, 1022]
    np.testing.assert_allclose(raw.x.mean(axis=(0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)
    # What was prepared as PNG against the batches, which have their channels first.
    files = archives.list_files(SOURCES["cifar10"], "cifar-10-*.tar.gz", "cifar-10-*")
    for name, images in (("test_batch", raw.x_test), ("data_batch_5", raw.x[40_000:])):
        _, content = archives.read_file(SOURCES["cifar10"], files, (name, f"{name}.xz"), "")
        pixels = pickle.loads(content, encoding="bytes")[b"data"]
        np.testing.assert_array_equal(images[::100], pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)[::100])


def test_femnist_sizes(load):
    raw = load("femnist")
    assert (len(raw.y), len(raw.y_test), raw.num_classes) == (67_423, 7_727, 62)
    assert len(np.unique(raw.client_ids)) == len(np.unique(raw.test_client_ids)) == 489
    assert set(np.unique(raw.y)) == set(range(62))
    assert (raw.x.shape[1:], raw.x.dtype) == ((28, 28, 1), np.uint8)
    num_examples = np.bincount(raw.client_ids)
    assert (num_examples.min(), np.median(num_examples), num_examples.max()) == (2, 150, 320)
    assert build_dataset('data = {name = "femnist", partition = "natural"}').num_test_clients == 489


def test_femnist_has_491_duplicate_images(load):
    """392 only in the training set, 7 only in the test set, 92 in both; all but one of the writers have exactly one."""
    raw, deduplicated = load("femnist"), deduplicate(load("femnist"))
    assert (len(deduplicated.y), len(deduplicated.y_test)) == (67_423 - 392, 7_727 - 92 - 7)
    assert len({image.tobytes() for part in (deduplicated.x, deduplicated.x_test) for image in part}) == 74_659
    count = lambda ids: np.bincount(ids, minlength=489)
    before, after = (count(data.client_ids) + count(data.test_client_ids) for data in (raw, deduplicated))
    assert np.unique(before - after, return_counts=True)[1].tolist() == [488, 1]


def test_shakespeare_has_leaf_s_published_figures(load):
    text = shakespeare.read_text(SOURCES["shakespeare"])
    assert len(shakespeare.parse_plays(text)) == 36
    raw = load("shakespeare")
    assert len(raw.client_names) == len(np.unique(raw.client_ids)) == 1_129
    assert raw.x.shape == (4_226_158, 80)
    assert len(np.union1d(np.unique(raw.x), np.unique(raw.y))) == 79


def test_windows_of_the_real_leaf_file_occur_in_the_same_roles(load):
    roles = shakespeare.parse_roles(shakespeare.read_text(SOURCES["shakespeare"]))
    path = DIRECTORY / "shakespeare" / "all_data_niid_05_keep_0_test_9.json.gz"
    users = json.loads(gzip.decompress(path.read_bytes()))["user_data"]
    windows = [(user, x + y) for user, data in users.items() for x, y in zip(data["x"], data["y"], strict=True)]
    assert len(windows) == 17_703
    assert all(window in roles[user] for user, window in windows)
