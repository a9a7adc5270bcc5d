"""Folders of images: classes, clients and splits from the names of folders, and names in results."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from PIL import Image

import fedsim
from fedsim import report
from fedsim.cli.main import main
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.images import images
from fedsim.datasets.pictures import decode
from fedsim.engine.data import load_dataset
from fedsim.engine.environment import dataset_digest
from fedsim.errors import ConfigError, DataError
from fedsim.report.cells import cells
from fedsim.report.html.clients import _weights

RNG = np.random.default_rng(0)


def save(root, *names, shape=(6, 5), **options):
    """Random images in the files `names`; returns their pixels by name."""
    pixels = {name: RNG.integers(0, 256, shape, np.uint8) for name in names}
    for name, image in pixels.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / name, **options)
    return pixels


def test_classes_and_clients_are_the_names_of_folders(tmp_path):
    pixels = save(tmp_path, "Uni/dog/1.png", "Spital/cat/a.png", "Uni/cat/2.PNG", "Spital/eel/b.bmp")
    save(tmp_path, ".cache/cat/no.png")
    raw = images(0, path=str(tmp_path))
    assert (raw.label_names.tolist(), raw.client_names.tolist()) == (["cat", "dog", "eel"], ["Spital", "Uni"])
    folders = zip(raw.client_names[raw.client_ids], raw.label_names[raw.y], strict=True)
    by_folder = dict(zip(map("/".join, folders), raw.x, strict=True))
    for name, image in pixels.items():
        np.testing.assert_array_equal(by_folder[name.rpartition("/")[0]], image[..., None])
    assert (raw.num_classes, raw.inputs, len(raw.y_test)) == (3, "image", 0)


@pytest.mark.parametrize(
    ("names", "num_test", "notes"),
    [
        (("train/a/1.png", "train/b/2.png", "test/b/3.png", "val/a/4.png"), 1, ("the split val is not used",)),
        (("Train/a/1.png", "Train/b/2.png", "valid/b/3.png"), 1, ()),
        (("train/k1/a/1.png", "train/k2/b/2.png", "test/k2/b/3.png"), 1, ()),
    ],
)
def test_splits_are_the_outermost_folders(names, num_test, notes, tmp_path):
    pixels = save(tmp_path, *names)
    raw = canonicalize(images(0, path=str(tmp_path)))
    assert (len(raw.y), raw.y.tolist(), len(raw.y_test), raw.y_test.tolist()) == (2, [0, 1], num_test, [1])
    np.testing.assert_array_equal(raw.x_test[0, ..., 0], pixels[names[2]])
    assert (raw.client_ids is None) == ("k1" not in names[0])
    assert tuple(note.partition(": ")[2] for note in raw.notes) == notes


def test_linked_folders_unused_classes_and_the_folder_that_one_is_in(tmp_path, monkeypatch):
    save(tmp_path, "scans/train/a/1.png", "scans/val/rare/2.png", "scans/test/a/3.png", "elsewhere/4.png")
    (tmp_path / "scans" / "train" / "b").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "scans")
    raw = images(0, path=".")
    assert (raw.name, raw.label_names.tolist()) == ("scans", ["a", "b"])
    assert (raw.y.tolist(), raw.y_test.tolist()) == ([0, 1], [0])


def test_levels_in_another_order_and_one_size(tmp_path):
    save(tmp_path, "cat/Ann/1.png", "dog/Bob/2.png")
    save(tmp_path, "dog/Ann/3.png", shape=(9, 14, 3))
    raw = images(0, path=str(tmp_path), levels=("class", "client"), size=4)
    assert raw.x.shape == (3, 4, 4, 3)
    assert (raw.label_names.tolist(), raw.client_names.tolist()) == (["cat", "dog"], ["Ann", "Bob"])
    with pytest.raises(DataError, match=r"inputs must have one shape.*3\.png"):
        images(0, path=str(tmp_path), levels=("class", "client"))


def test_resized_pictures_of_16_bits_stay_within_them(tmp_path):
    step = np.repeat([[0, 2**16 - 1]], 4, 1).repeat(8, 0).astype(np.uint16)  # bicubic interpolation overshoots
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(step).save(tmp_path / name / "1.png")
    of_8_bits = decode(Image.fromarray((step // 257).astype(np.uint8)), 12)
    x = images(0, path=str(tmp_path), size=12).x[0]
    np.testing.assert_allclose(x / 257, of_8_bits, atol=1)


def test_pictures_are_turned_as_their_camera_says(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise
    pixels = save(tmp_path, "a/1.png", "b/2.png", exif=exif)
    raw = images(0, path=str(tmp_path))
    np.testing.assert_array_equal(raw.x[0, ..., 0], np.rot90(pixels["a/1.png"], -1))


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        ((), {}, "must be a folder of images"),
        (("1.png",), {"path": "scanz"}, "^scanz: no such folder$"),
        (("1.png",), {}, "must be in folders by class"),
        (("a/b/c/d/1.png",), {}, r"set images\.levels"),
        (("train/1.png", "test/2.png"), {}, r"in folders by class.*got test/2\.png"),
        (("a/1.png", "b/x/2.png", "b/3.png"), {}, r"2\.png: must be in 1 folders \(class\)"),
        (("a/1.png",), {"levels": ("client",)}, "must have class"),
        (("dev/a/1.png", "test/a/1.png"), {}, "must have a folder train, got dev, test"),
    ],
)
def test_folders_that_are_not_clear(names, settings, message, tmp_path):
    save(tmp_path, *names)
    with pytest.raises((ConfigError, DataError), match=message):
        images(0, **{"path": str(tmp_path)} | settings)


def test_levels_of_another_type():
    with pytest.raises(ConfigError, match=r"^images\.levels: must be a list, .* got 3$"):
        fedsim.load({"data": {"name": "images"}, "images": {"levels": 3}}).runs()


def test_a_broken_file_is_named(tmp_path):
    save(tmp_path, "a/1.png")
    (tmp_path / "a" / "2.jpg").write_text("no image")
    with pytest.raises(DataError, match=r"a/2\.jpg: cannot identify image file"):
        images(0, path=str(tmp_path))


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """The folder of runs on images of three named clients, the second of which is corrupted by name or number."""
    root = tmp_path_factory.mktemp("hospitals")
    labels = "cat", "dog"
    save(root / "scans", *(f"{client}/{labels[i % 2]}/{i}.png" for client in ("H07", "H3", "Uni") for i in range(10)))
    tables = {
        "data": {"name": "images", "partition": "natural"},
        "images": {"path": str(root / "scans")},
        "model": {"name": "logistic"},
        "corruption": {"kind": "flipping"},
        "server": {"aggregator": "arfl", "cohort_size": 2, "num_rounds": 2, "eval_every": 1},
        "record": {"models": True},
    }
    results = [
        fedsim.run(fedsim.load(tables, corruption__clients=clients), out=root / "run", progress=False)
        for clients in (["H3"], [1])
    ]
    return root, tables, results[-1]


def test_clients_are_listed_by_name(hospitals):
    """The same run as by their numbers: it is not computed twice, and a report of the configuration finds it."""
    root, tables, result = hospitals
    assert len(result.runs) == 1
    by_name, both = (fedsim.load(tables, corruption__clients=value) for value in (["H3"], fedsim.sweep([["H3"], [1]])))
    results = report.load(root / "run", config=both)
    assert (results.runs, results.notes) == (report.load(root / "run").runs, ())
    assert [name for name, _ in cells(results, by_name, lambda run, setting: "cell")] == ["cell"]
    assert result.runs[0]["corruption.clients"] == [1]


def test_names_are_in_tables_and_with_the_model(hospitals):
    _, _, result = hospitals
    clients = result.clients
    assert clients["client_name"].to_list() == [("H07", "H3", "Uni")[number] for number in clients["client_id"]]
    assert set(clients.filter("corrupted")["client_name"]) == {"H3"}
    dataset = result.model(0).dataset
    assert (dataset.label_names, dataset.client_names) == (("cat", "dog"), ("H07", "H3", "Uni"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruption__clients": ["H7"]}, "unknown client 'H7'; did you mean H07"),
        ({"corruption__clients": ["Ost"]}, "unknown client 'Ost'; the clients are H07, H3, Uni"),
        ({"corruption__clients": ["H3", 1]}, "must be different clients, got 1 twice"),
        ({"corruption__clients": ["H3"], "data__partition": "iid", "data__num_clients": 3}, "have numbers only"),
    ],
)
def test_unknown_clients_are_refused(changes, message, hospitals):
    root, tables, _ = hospitals
    with pytest.raises(ConfigError, match=message):
        fedsim.run(fedsim.load(tables, **changes), out=root / "other", progress=False)


def test_init_writes_a_configuration_that_runs(tmp_path, capsys):
    names = [f"{client}/{label}/{i}.png" for client in ("H1", "H2") for label in ("cat", "dog") for i in range(5)]
    save(tmp_path / "scans", *names, shape=(40, 30))
    save(tmp_path / "scans", "H1/cat/5.png", "H2/dog/6.png", shape=(90, 80, 3))
    init = ["init", "scans.toml", "--data-path", "scans", "--suspect", "none", "--client"]
    assert main([*init, "hospital"]) == 2
    assert "--client: must be left out unless --data-path is a table" in capsys.readouterr().err
    assert main([*init, "none", "--clients", "natural"]) == 0
    assert "all become 30 x 30" in capsys.readouterr().out
    config = fedsim.load("scans.toml").runs()[0]
    assert (config.model.name, dict(config.settings)["images.size"]) == ("femnist_cnn", 30)


class Scans(list):
    """A map-style data set, as of torchvision."""

    classes = ("cat", "dog")


def test_map_style_data_sets(hospitals):
    """Pictures, an array of one label as in medmnist, and the client in the metadata as in WILDS; from memory or files
    the same data set."""
    root, _, _ = hospitals
    files = sorted((root / "scans").rglob("*.png"))
    items = [
        (Image.open(file), np.asarray([Scans.classes.index(file.parts[-2])]), (file.parts[-3], "2024"))
        for file in files
    ]
    dataset = fedsim.from_dataset(Scans(items), client=lambda x, y, place: place[0], seed=0)
    (config,) = fedsim.load(hospitals[1]).runs()
    from_files = load_dataset(config)
    assert dataset_digest(dataset) == dataset_digest(from_files)
    assert dataset.client_names == from_files.client_names
    assert dataset.label_names == from_files.label_names
    listed = fedsim.from_dataset(Scans(items[:20]), Scans(items[20:]), client=[place[0] for *_, place in items[:20]])
    assert (listed.num_clients, len(listed.y_test), listed.test_clients) == (2, 10, None)


def test_map_style_data_sets_that_are_wrong():
    with pytest.raises(DataError, match="example 1: must be an input and a label, got ndarray"):
        fedsim.from_dataset([(np.zeros(2), 0), np.zeros(2)])
    with pytest.raises(DataError, match=r"inputs must have one shape, got \(2,\) and \(3,\) of example 1"):
        fedsim.from_dataset([(np.zeros(2), 0), (np.zeros(3), 1)])
    with pytest.raises(DataError, match=r"labels must have one shape, got \(\), \(2,\)"):
        fedsim.from_dataset([(np.zeros(2), 0), (np.zeros(2), [0, 1])])
    with pytest.raises(DataError, match="must have a length, got list_iterator; make a list of its examples"):
        fedsim.from_dataset(iter([(np.zeros(2), 0)]))
    with pytest.raises(DataError, match="must have examples, got none"):
        fedsim.from_dataset([])


def test_clients_of_map_style_data_sets_are_checked_like_others():
    examples = [(np.zeros(2), 0), (np.ones(2), 1)] * 3
    owners = pd.Series(list("aabbab"))
    assert fedsim.from_dataset(examples, client=owners, test_fraction=0.4).client_names == ("a", "b")
    with pytest.raises(DataError, match="client ids must name the client of each example"):
        fedsim.from_dataset(examples, client=lambda x, y: "a" if y else float("nan"))


def test_the_page_takes_a_client_with_any_name():
    rows = {"run": 0, "round": [1, 2] * 2, "client_id": [0, 0, 1, 1], "alpha": 0.5, "weight": 0.5, "corrupted": False}
    rows["malicious"] = False
    clients = pl.DataFrame(rows | {"client_name": ["round", "round", "Ulm", "Ulm"]})
    assert set(_weights(clients, 1000)["clients"]) == {"round", "Ulm"}
