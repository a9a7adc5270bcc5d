"""Builders, prepared sets, their cache and downloads, on small files; test_real_data.py has the real ones."""

import hashlib
import http.server
import re
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from fedsim.cli.main import main
from fedsim.datasets import cache, catalog, cifar10, prepared, shakespeare
from fedsim.datasets.download import Download, fetch
from fedsim.datasets.raw import RawDataset
from fedsim.errors import ConfigError, DataError
from tests.datasets.build import build_dataset, write_leaf

no_progress = lambda *args: None


@pytest.fixture
def femnist_files(tmp_path):
    """Three writers, one of them in the test part only."""
    rng = np.random.default_rng(0)
    examples = lambda n: {"x": (rng.integers(0, 256, (n, 784)) / 255).tolist(), "y": rng.integers(0, 62, n).tolist()}
    train, test = {"w2": examples(3), "w1": examples(5)}, {"w1": examples(2), "w2": examples(1), "w9": examples(4)}
    write_leaf(tmp_path / "files" / "train" / "a.json.gz", train)
    write_leaf(tmp_path / "files" / "test" / "a.json", test)
    return tmp_path / "files", train, test


@pytest.fixture
def femnist(femnist_files, data_dirs):
    """The folders of these files, prepared and decoded: eight training examples."""
    catalog.prepare("femnist", femnist_files[0], False, no_progress)
    (decoded,) = data_dirs[1].iterdir()
    return data_dirs[0] / "femnist" / "1.0.0", decoded


def damage(path, kind):
    """Deletes a file, or truncates, alters or empties it."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if kind != "missing":
        path.write_bytes(content[: {"truncated": len(content) // 2, "empty": 0}.get(kind)])


def test_femnist_round_trip_with_a_record_per_client(femnist_files, data_dirs):
    import tensorflow_datasets as tfds

    files, train, test = femnist_files
    raw = catalog.prepare("femnist", files, False, no_progress)
    records = tfds.builder_from_directory(data_dirs[0] / "femnist" / "1.0.0").as_data_source("train")
    assert sorted(record["client_id"] for record in records) == [b"w1", b"w2"]
    assert raw.client_names.tolist() == ["w1", "w2", "w9"]
    assert raw.client_ids.tolist() == [0] * 5 + [1] * 3
    assert raw.test_client_ids.tolist() == [0] * 2 + [1] + [2] * 4
    for x, y, parts in [
        (raw.x, raw.y, (train["w1"], train["w2"])),
        (raw.x_test, raw.y_test, (test["w1"], test["w2"], test["w9"])),
    ]:
        assert x.dtype == np.uint8
        np.testing.assert_allclose(x.reshape(-1, 784) / 255, np.concatenate([part["x"] for part in parts]), atol=1e-6)
        assert y.tolist() == [label for part in parts for label in part["y"]]
    assert (raw.num_classes, raw.inputs) == (62, "image")
    assert raw.label_names[[0, 10, 61]].tolist() == ["0", "A", "z"]
    dataset = build_dataset('data = {name = "femnist", partition = "natural"}')
    assert dataset.num_clients == 2
    assert dataset.test_clients.tolist() == raw.test_client_ids.tolist()
    assert dataset.num_test_clients == 3


def test_a_cached_set_is_the_decoded_one(tmp_path, data_dirs):
    names, ids = np.asarray(["no", "yes"]), np.arange(3)
    arrays = {"client_ids": ids, "client_names": names[[0, 1, 1]], "label_names": names}
    raw = RawDataset("cells", ids[:, None], ids % 2, ids[:1, None], ids[:1], 2, "vector", **arrays, notes=("odd",))
    source = tmp_path / "source"
    source.mkdir()
    cache.cached(source, lambda: raw)
    read = cache.cached(source, lambda: pytest.fail("decoded again"))
    np.testing.assert_equal(vars(read), vars(raw))
    assert isinstance(read.x, np.memmap)
    assert not read.x.flags.writeable
    assert (read.notes, read.test_client_ids) == (("odd",), None)
    assert {path.stem for path in data_dirs[1].glob("*/*.npy")} == {"x", "y", "x_test", "y_test", *arrays}


def test_a_set_is_used_without_a_cache_that_cannot_be_written(tmp_path, data_dirs, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDSIM_CACHE_DIR", str(tmp_path / "file"))
    raw = RawDataset("cells", *[np.zeros((2, 1)), np.arange(2)] * 2, 2, "vector")
    read = cache.cached(tmp_path, lambda: raw)
    np.testing.assert_equal(vars(read), vars(raw) | {"notes": read.notes})
    (note,) = read.notes
    assert re.fullmatch(r"cells: is not cached in .*file: .*; set FEDSIM_CACHE_DIR to another folder", note)


@pytest.mark.parametrize("name", ["x.npy", "index.json"])
@pytest.mark.parametrize("kind", ["truncated", "altered", "empty", "missing"])
def test_a_damaged_cache_is_rebuilt(femnist, name, kind):
    _, decoded = femnist
    expected = np.load(decoded / "x.npy")
    damage(decoded / name, kind)
    np.testing.assert_array_equal(prepared.load("femnist").x, expected)


def test_an_interrupted_cache_is_rebuilt(femnist, monkeypatch):
    _, decoded = femnist
    before = sorted(path.name for path in decoded.iterdir())
    (decoded / "index.json").write_text("{}")

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache.np, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepared.load("femnist")
    assert list(decoded.parent.iterdir()) == [decoded]
    assert len(prepared.load("femnist").y) == 8
    assert sorted(path.name for path in decoded.iterdir()) == before


@pytest.mark.parametrize("kind", ["truncated", "altered", "missing", "index"])
def test_a_damaged_prepared_set_raises_with_its_folder(femnist, femnist_files, kind):
    folder, _ = femnist
    if kind == "index":
        for name in ("dataset_info.json", "features.json"):
            (folder / name).write_text("{")
    else:
        (path,) = folder.glob("*train.array_record*")
        damage(path, kind)
    with pytest.raises(DataError, match=str(folder)):
        prepared.load("femnist")
    assert len(catalog.prepare("femnist", femnist_files[0], True, no_progress).y) == 8  # repaired by --force


@pytest.mark.parametrize("missing", ["tensorflow_datasets", "array_record", "importlib_resources", "PIL"])
def test_missing_tensorflow_datasets(femnist, femnist_files, monkeypatch, capsys, missing):
    """Decoded data still load; everything else raises a line that says what to install."""
    for name in (".mnist-x/mnist", "mnist (copy)"):  # of a process that was killed, and the user's
        (prepared.directory() / name / "1.0.0").mkdir(parents=True)
        (prepared.directory() / name / "1.0.0" / "dataset_info.json").touch()
    monkeypatch.setitem(sys.modules, missing, None)
    assert len(prepared.load("femnist").y) == 8
    assert [info.num_train for info in catalog.list_datasets() if info.name == "femnist"] == [8]
    shutil.rmtree(femnist[1])
    with pytest.raises(DataError, match=r"needs tensorflow-datasets; pip install 'fedsim-jax\[data\]'"):
        prepared.femnist(0)
    assert main(["data", "prepare", "shakespeare", "--from", str(femnist_files[0])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'fedsim-jax[data]'" in line


def test_a_failed_preparation_leaves_what_was_there(femnist_files, data_dirs):
    """Nothing, or the previous set."""
    prepare, broken = partial(catalog.prepare, "femnist", progress=no_progress), femnist_files[0].parent / "broken"
    shutil.copytree(femnist_files[0], broken)
    (broken / "test" / "a.json").write_text('{"users"')
    with pytest.raises(DataError, match=r"a\.json: broken"):
        prepare(broken, False)
    assert {path.name for path in data_dirs[0].iterdir()} <= {"downloads"}
    prepare(femnist_files[0], False)
    with pytest.raises(DataError, match=r"a\.json: broken"):
        prepare(broken, True)
    assert len(prepared.load("femnist").y) == 8
    with pytest.raises(DataError, match=r"prepared already .* add --force"):
        prepare(broken, False)


def test_the_newest_version_is_read(femnist):
    folder, _ = femnist
    for version in ("0.9.0", "1.0.10"):
        shutil.copytree(folder, folder.with_name(version))
    assert prepared.find_folder("femnist") == folder.with_name("1.0.10")


@pytest.mark.usefixtures("femnist")
def test_concurrent_loads(data_dirs):
    """Four threads load from a cache that is damaged repeatedly."""

    def load(number):
        for path in data_dirs[1].glob("femnist-*/index.json"):
            if number % 3 == 0:
                path.unlink(missing_ok=True)
        return len(prepared.load("femnist").y)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(load, range(40))) == {8}


@pytest.mark.parametrize(("name", "inputs"), [("femnist", r"uint8 \(28, 28, 1\)"), ("shakespeare", r"int8 \(80,\)")])
def test_files_of_another_data_set_raise(name, inputs, tmp_path):
    write_leaf(tmp_path / "digits" / "train" / "a.json", {"w": {"x": [[0.0] * 64], "y": [1]}})
    with pytest.raises(DataError, match=f"client w of {name} must be {inputs}"):
        catalog.prepare(name, tmp_path / "digits", False, no_progress)


def test_any_image_set_of_tfds(data_dirs, capsys):
    """A set prepared by TFDS, with a partition."""
    import tensorflow_datasets as tfds
    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)

    class Blobs(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = "blobs"
        VERSION = tfds.core.Version("2.1.0")

        def _info(self):
            label = tfds.features.ClassLabel(names=["round", "square"])
            features = {"image": tfds.features.Image(shape=(6, 5, 3)), "label": label}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(0, 24), "test": self._generate_examples(24, 30)}

        def _generate_examples(self, start, end):
            for i in range(start, end):
                yield i, {"image": Image.fromarray(images[i]), "label": i % 2}

    Blobs(data_dir=data_dirs[0], file_format="array_record").download_and_prepare()
    keys = """
        data = {name = "tfds", num_clients = 4, partition = "dirichlet"}
        tfds.name = "blobs"
        dirichlet.min_examples = 1
        server.cohort_size = 4
    """
    dataset = build_dataset(keys)
    assert dataset.train.num_examples.sum() == 24
    assert dataset.num_clients == 4
    np.testing.assert_array_equal(dataset.x_test, images[24:])
    with pytest.raises(ConfigError, match=r"tfds\.name: must name a data set"):
        prepared.tfds(0)
    raw = prepared.load("blobs")
    assert raw.inputs == "image"
    np.testing.assert_array_equal(raw.x, images[:24])
    assert raw.y.tolist() == [0, 1] * 12
    assert raw.label_names.tolist() == ["round", "square"]
    assert main(["data", "list"]) == 0
    assert any("blobs" in line and "24" in line for line in capsys.readouterr().out.splitlines())


PLAY = """\
The complete works
by William Shakespeare

Sonnets, which are skipped.
1602

{title}

by William Shakespeare


DRAMATIS PERSONAE
  HAMLET. One line
    and its   continuation,
  Ophelia. First.
Stage directions stand at the margin.
    This has no name... it is still Ophelia's.
  HAMLET. Two.
  OPHELIA. Second, of some length, so that there is a window and a little more than that to learn.
  HAMLET. Three.
  KING. A king of one line.
"""


def test_roles_of_a_synthetic_play():
    (play,) = shakespeare.parse_plays(PLAY.format(title="THE TRAGEDY OF HAMLET, PRINCE OF DENMARK"))
    assert play[0] == "THE TRAGEDY OF HAMLET, PRINCE OF DENMARK"
    assert play[1]["HAMLET"] == ["One line", "and its   continuation,", "Two.", "Three."]
    assert list(play[1]) == ["HAMLET", "OPHELIA", "KING"]
    # Hamlet says less than a window, the king less than three lines; runs of spaces are one.
    assert shakespeare.parse_roles(PLAY.format(title="HAMLET, PRINCE")) == {
        "HAMLET__PRINCE_OPHELIA": "First. This has no name... it is still Ophelia's. Second, of some length, so that "
        "there is a window and a little more than that to learn. "
    }


def test_a_modified_text_raises(tmp_path):
    (tmp_path / "pg100.txt").write_text(PLAY)
    with pytest.raises(DataError, match=r"pg100\.txt has another SHA256"):
        catalog.prepare("shakespeare", tmp_path, False, no_progress)


@pytest.fixture
def server(tmp_path):
    """A web server: its address and the folder that it serves."""
    folder = tmp_path / "www"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}", folder
    httpd.shutdown()
    httpd.server_close()


def test_downloads_are_verified_and_kept(server, tmp_path):
    url, www = server
    content = bytes(range(256)) * 9000
    (www / "set.tar.gz").write_bytes(content)
    digest, reports = hashlib.sha256(content).hexdigest(), []
    file = partial(Download, f"{url}/set.tar.gz", "sha256")
    get = lambda digest: fetch(file(digest), tmp_path / "got", lambda *progress: reports.append(progress))
    with pytest.raises(DataError, match="wrong SHA256"):
        get("0" * 64)
    assert list((tmp_path / "got").iterdir()) == []
    assert get(digest).read_bytes() == content
    assert reports[-1] == ("bytes", len(content), len(content))
    (www / "set.tar.gz").unlink()
    assert get(digest).read_bytes() == content  # no second download
    (tmp_path / "got" / "set.tar.gz").write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"cannot be downloaded .*404"):
        get(digest)


def test_prepare_downloads_cifar10(server, monkeypatch, capsys):
    """Up to the checksum, which a synthetic archive cannot match."""
    url, www = server
    (www / "cifar-10-python.tar.gz").write_bytes(b"some archive")
    monkeypatch.setitem(catalog.DOWNLOADS, "cifar10", [cifar10.ARCHIVE._replace(url=f"{url}/cifar-10-python.tar.gz")])
    assert main(["data", "prepare", "cifar10"]) == 2
    assert "wrong MD5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "femnist"], "femnist: .*LEAF"),
        (["prepare", "femmist"], "no such data set .*did you mean femnist"),
        (["prepare", "femnist", "--from", "nowhere"], "nowhere: no such file or folder"),
        (["prepare", "digits"], "digits: there is nothing to prepare"),
        (["prepare", "synthetic"], "synthetic: there is nothing to prepare"),
        (["prepare", "/abs"], "name: must be like kmnist or emnist/letters"),
        (["prepare", "foo bar"], "name: must be like kmnist or emnist/letters"),
        (["prepare", "imagenet2012"], "imagenet2012: tensorflow-datasets cannot prepare it here"),
        (["shwo", "cifar10"], "invalid choice"),
        ([], "ACTION"),
    ],
)
def test_errors_are_a_single_line(arguments, message, capsys):
    assert main(["data", *arguments]) == 2
    *progress, line = capsys.readouterr().err.splitlines()
    assert progress in ([], ["preparing ..."])
    assert re.search(message, line)
