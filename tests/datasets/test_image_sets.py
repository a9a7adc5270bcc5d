"""MNIST, Fashion-MNIST, EMNIST and CIFAR-100, prepared from small files in the official formats."""

import gzip
import hashlib
import io
import pickle
import re
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from fedsim.cli.main import main
from fedsim.datasets import catalog, cifar100, emnist, mnist, prepared
from fedsim.errors import DataError
from tests.datasets.build import build_dataset

no_progress = lambda *args: None
SIZES = {"train": 30, "test": 20}


def encode_idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def compress_idx(array):
    return gzip.compress(encode_idx(array), 1)


def draw_images(seed, labels, shape=(28, 28)):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (len(labels), *shape), np.uint8), rng.permutation(labels).astype(np.uint8)


def sort_examples(x, y):
    """Labeled images in an order that does not depend on the input order."""
    return sorted((image.tobytes(), int(label)) for image, label in zip(x, y, strict=True))


@pytest.fixture(params=["mnist", "fashion_mnist"])
def mnist_files(request, tmp_path, monkeypatch):
    """The four files, the test part unpacked, with 3 and 2 images of each class."""
    folder, parts = tmp_path / "files", {}
    folder.mkdir()
    for split, names in mnist.FILES.items():
        parts[split] = draw_images(SIZES[split], np.arange(SIZES[split]) % 10)
        for name, array in zip(names, parts[split], strict=True):
            if split == "train":
                (folder / f"{name}.gz").write_bytes(compress_idx(array))
            else:
                (folder / name).write_bytes(encode_idx(array))
    monkeypatch.setitem(mnist.CLASS_SIZES, request.param, {"train": (3,) * 10, "test": (2,) * 10})
    return request.param, folder, parts


def test_mnist_round_trip(mnist_files, data_dirs):
    name, folder, parts = mnist_files
    raw = catalog.prepare(name, folder, False, no_progress)
    assert raw.x.shape == (30, 28, 28, 1)
    assert (raw.x.dtype, raw.num_classes, raw.inputs) == (np.uint8, 10, "image")
    assert sort_examples(raw.x, raw.y) == sort_examples(*parts["train"])
    assert sort_examples(raw.x_test, raw.y_test) == sort_examples(*parts["test"])
    assert raw.label_names[9] == {"mnist": "9", "fashion_mnist": "Ankle boot"}[name]
    assert prepared.find_folder(name) == data_dirs[0] / name / "3.0.1"  # the version of TFDS
    dataset = build_dataset(f'data = {{name = "{name}", num_clients = 3}}\nserver.cohort_size = 3')
    assert dataset.train.num_examples.tolist() == [10] * 3
    assert any(info.name == name and info.num_train == 30 for info in catalog.list_datasets())


IMAGES, LABELS = (f"{name}.gz" for name in mnist.FILES["train"])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (IMAGES, lambda content: content[: len(content) // 2], f"{IMAGES} is broken: Compressed file ended"),
        (IMAGES, lambda _: b"no gzip", f"{IMAGES} is broken: Not a gzipped file"),
        (IMAGES, lambda content: gzip.compress(gzip.decompress(content)[:-9]), "truncated or altered: .* got 23511"),
        (IMAGES, lambda _: gzip.compress(b"\0\0\x08\x03\0"), "truncated IDX file"),
        (IMAGES, lambda _: gzip.compress(b"<html>"), "not an IDX file"),
        (IMAGES, lambda _: compress_idx(np.zeros((30, 8, 8), np.uint8)), r"images \[M, 28, 28\].*got \(30, 8, 8\)"),
        (LABELS, lambda _: compress_idx(np.zeros(29, np.uint8)), "30 images in .*, but 29 labels in"),
        (LABELS, lambda _: compress_idx(np.zeros(30, np.uint8)), r"not mnist: .*got \(30, 0"),
        (LABELS, None, f"no {LABELS[:-3]}; needs .* gzipped or not"),
    ],
)
@pytest.mark.parametrize("mnist_files", ["mnist"], indirect=True)
def test_broken_mnist_files_raise_a_single_line(mnist_files, name, change, message, capsys):
    _, folder, _ = mnist_files
    content = (folder / name).read_bytes()
    (folder / name).unlink() if change is None else (folder / name).write_bytes(change(content))
    assert main(["data", "prepare", "mnist", "--from", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
    assert str(folder) in line
    assert prepared.find_folder("mnist") is None


def test_mnist_and_fashion_mnist_are_distinguished(mnist_files):
    """Both have the same file names; their class sizes differ."""
    name, folder, _ = mnist_files
    other = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}[name]
    with pytest.raises(DataError, match=f"not {other}"):
        mnist.read(other, folder)
    sums = {split: sum(sizes) for split, sizes in mnist.CLASS_SIZES[other].items()}
    assert sums == {"train": 60_000, "test": 10_000}


def test_multiple_files_are_downloaded_to_a_separate_folder(monkeypatch, tmp_path):
    files = []

    def fetch(file, folder, progress):
        files.append(file)
        return folder / file.url.rpartition("/")[2]

    monkeypatch.setattr(catalog, "fetch", fetch)
    assert catalog._download("fashion_mnist", no_progress).name == "fashion_mnist"
    assert [file.url.rpartition("/")[2] for file in files] == [
        f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ]
    assert {(file.algorithm, len(file.digest)) for file in files} == {("sha256", 64)}
    assert catalog._download("emnist_letters", no_progress).name == "gzip.zip"


def write_emnist_archive(path, selection, first_label=0):
    """Writes an archive like NIST's, with transposed images; returns upright images and labels from 0."""
    parts = {}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gzip/", "")
        for seed, split in enumerate(("train", "test")):
            x, y = draw_images(seed, np.arange(len(emnist.LABELS[selection])))
            parts[split] = x, y
            for kind, array in (("images-idx3", x.transpose(0, 2, 1)), ("labels-idx1", y + np.uint8(first_label))):
                archive.writestr(f"gzip/emnist-{selection}-{split}-{kind}-ubyte.gz", compress_idx(array))
    return parts


@pytest.mark.parametrize(("selection", "first_label"), [("letters", 1), ("balanced", 0)])
def test_emnist_images_are_upright_and_labels_start_at_0(tmp_path, selection, first_label):
    path = tmp_path / "gzip.zip"
    parts = write_emnist_archive(path, selection, first_label)
    name = "emnist" if selection == "balanced" else f"emnist_{selection}"  # balanced is the default split
    raw = catalog.prepare(name, path, False, no_progress)
    for split, x, y in (("train", raw.x, raw.y), ("test", raw.x_test, raw.y_test)):  # in the official order
        np.testing.assert_array_equal(x[..., 0], parts[split][0])
        np.testing.assert_array_equal(y, parts[split][1])
    assert raw.num_classes == len(raw.label_names) == {"letters": 26, "balanced": 47}[selection]
    assert raw.label_names[-1] == {"letters": "z", "balanced": "t"}[selection]
    keys = f'data = {{name = "emnist", num_clients = 2}}\nemnist.split = "{selection}"\nserver.cohort_size = 2'
    assert build_dataset(keys).num_classes == raw.num_classes
    with pytest.raises(DataError, match=r"emnist_digits is not prepared .* `fedsim data prepare emnist_digits`"):
        emnist.emnist(0, split="digits")


def test_classes_of_emnist():
    """62 classes; two splits merge the cases of 15 letters (Cohen et al., Section II)."""
    assert {name: len(labels) for name, labels in emnist.LABELS.items()} == {
        "byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10,
    }  # fmt: skip
    assert set(emnist.LABELS["byclass"]) - set(emnist.MERGED) == set("cijklmopsuvwxyz")


def test_broken_emnist_archives_raise(tmp_path):
    path = tmp_path / "gzip.zip"
    write_emnist_archive(path, "letters", first_label=0)
    with pytest.raises(DataError, match="train-labels-idx1-ubyte must have the 26 classes of letters"):
        emnist.read("letters", path)
    with pytest.raises(DataError, match=r"no emnist-digits-train-images-idx3-ubyte;"):
        emnist.read("digits", tmp_path)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"emnist-letters-train-images-idx3-ubyte\.gz is broken: Bad CRC-32"):
        emnist.read("letters", path)
    path.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"gzip\.zip: broken: File is not a zip file"):
        emnist.read("letters", path)


# The superclass of each class, as in the official files.
COARSE = """
    4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7
    6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 13 14 17 18 10
    16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16
    12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6 0 17 8 14 13
"""


@pytest.fixture
def cifar100_files(tmp_path, monkeypatch):
    """The archive, with an image of each class, and the images [100, 32, 32, 3] and labels of both parts."""
    path, parts = tmp_path / "cifar-100-python.tar.gz", {}
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for seed, split in enumerate(("train", "test")):
            x, y = draw_images(seed, np.arange(100), (3, 32, 32))
            parts[split] = x.transpose(0, 2, 3, 1), y
            coarse = np.asarray(COARSE.split(), int)[y].tolist()
            batch = {b"data": x.reshape(100, -1), b"fine_labels": y.tolist(), b"coarse_labels": coarse}
            content = pickle.dumps(batch, protocol=2)
            monkeypatch.setitem(cifar100.BATCHES, split, {split: hashlib.md5(content).hexdigest()})
            member = tarfile.TarInfo(f"cifar-100-python/{split}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path, parts


def test_cifar100_has_classes_and_superclasses(cifar100_files, data_dirs):
    path, parts = cifar100_files
    raw = catalog.prepare("cifar100", path.parent, False, no_progress)
    for split, x, y in (("train", raw.x, raw.y), ("test", raw.x_test, raw.y_test)):  # in the official order
        np.testing.assert_array_equal(x, parts[split][0])
        np.testing.assert_array_equal(y, parts[split][1])
    assert raw.num_classes == 100
    assert raw.label_names[[0, 51, 99]].tolist() == ["apple", "mushroom", "worm"]
    coarse = cifar100.cifar100(0, labels="coarse")
    assert coarse.num_classes == 20
    assert coarse.label_names[coarse.y[raw.y == 51]].tolist() == ["fruit_and_vegetables"]
    np.testing.assert_array_equal(coarse.x, raw.x)
    keys = 'data = {name = "cifar100", num_clients = 4}\nserver.cohort_size = 4\ncifar100.labels = "coarse"'
    assert build_dataset(keys).num_classes == 20
    import tensorflow_datasets as tfds

    records = tfds.builder_from_directory(data_dirs[0] / "cifar100" / "3.0.2").as_data_source("test")
    assert all(record["coarse_label"] == cifar100.COARSE[record["label"]] for record in records)


def test_an_unofficial_pickle_is_not_opened(cifar100_files):
    path, _ = cifar100_files

    class Malicious:
        def __reduce__(self):
            return pytest.fail, ("the pickle was opened",)

    (path.parent / "train").write_bytes(pickle.dumps(Malicious()))
    path.unlink()
    with pytest.raises(DataError, match="train is not the official file: its MD5 differs"):
        cifar100.read(path.parent)
    (path.parent / "train").rename(path.parent / "train.xz")
    with pytest.raises(DataError, match=r"train\.xz is broken"):
        cifar100.read(path.parent)
    (path.parent / "train.xz").unlink()
    with pytest.raises(DataError, match="no train; needs CIFAR-100's archive"):
        cifar100.read(path.parent)


def test_a_truncated_cifar100_archive_raises_a_single_line(cifar100_files, capsys):
    path, _ = cifar100_files
    path.write_bytes(path.read_bytes()[:-2000])
    assert main(["data", "prepare", "cifar100", "--from", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cifar-100-python.tar.gz: broken: " in line
