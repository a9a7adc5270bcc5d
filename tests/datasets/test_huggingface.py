"""Data sets of Hugging Face from saved folders; skipped unless the extra `huggingface` is installed.

`tests/fuzz/generated` has pictures of all modes, and windows of texts.
"""

import io

import numpy as np
import pytest

import fedsim
from fedsim.cli.main import main
from fedsim.datasets.huggingface import huggingface
from fedsim.errors import ConfigError, DataError
from tests.docs.pages import blocks

Image = pytest.importorskip("PIL.Image", reason="needs Pillow, which comes with the extra huggingface")
REASON = "needs the extra huggingface: pip install -e '.[huggingface]'"
hf = pytest.importorskip("datasets", reason=REASON)
RNG = np.random.default_rng(0)
LINES = {"Ann": ["To be, or not", "öäü!"], "Bob": ["a rose is a rose is a rose"]}


def save(path, train, **others):
    """Saves `train` alone, or with other splits by name; their rows are dictionaries or data sets."""
    splits = {"train": train} | others
    splits = {split: hf.Dataset.from_dict(rows) if isinstance(rows, dict) else rows for split, rows in splits.items()}
    (hf.DatasetDict(splits) if others else splits["train"]).save_to_disk(path)
    return str(path)


def test_images_with_class_names_and_clients(tmp_path):
    pixels = RNG.integers(0, 256, (12, 8, 6, 3), np.uint8)
    labels, owners = [2, 0] * 6, list("abcabcabcabc")
    features = hf.Features(
        {"picture": hf.Image(), "label": hf.ClassLabel(names=["cat", "dog", "eel"]), "writer": hf.Value("string")}
    )
    rows = {"picture": list(pixels), "label": labels, "writer": owners}
    both = hf.Dataset.from_dict(rows, features)
    path = save(tmp_path / "saved", both.select(range(9)), test=both.select(range(9, 12)))
    raw = huggingface(0, path=path, label="label", client="writer")
    np.testing.assert_array_equal(np.concatenate([raw.x, raw.x_test]), pixels)
    assert [*raw.y, *raw.y_test] == labels
    assert (raw.num_classes, raw.label_names.tolist(), raw.inputs) == (3, ["cat", "dog", "eel"], "image")
    assert raw.client_names[[*raw.client_ids, *raw.test_client_ids]].tolist() == owners


def test_splits_by_name_and_lists_of_numbers(tmp_path):
    embeddings = RNG.normal(size=(6, 3))
    rows = {"embedding": embeddings.tolist(), "label": list("abaabb")}
    parts = (slice(2), slice(2, 5), slice(5, 6))
    splits = zip(("learn", "validation", "extra"), parts, strict=True)
    made = {split: hf.Dataset.from_dict({name: v[part] for name, v in rows.items()}) for split, part in splits}
    hf.DatasetDict(made).save_to_disk(tmp_path)
    raw = huggingface(0, path=str(tmp_path), label="label", train_split="learn", test_split="validation")
    np.testing.assert_allclose(np.concatenate([raw.x, raw.x_test]), embeddings[:5], rtol=1e-6)
    assert (raw.y.tolist(), raw.y_test.tolist(), len(raw.notes)) == ([0, 1], [0, 0, 1], 1)
    with pytest.raises(DataError, match=r"must have a split train, got .*; set huggingface.train_split"):
        huggingface(0, path=str(tmp_path), label="label")
    with pytest.raises(DataError, match=r"must be a split of .*learn, validation, extra.*, got valid"):
        huggingface(0, path=str(tmp_path), label="label", train_split="learn", test_split="valid")


def test_splits_with_different_columns_raise(tmp_path):
    path = save(tmp_path / "saved", {"age": [1.0, 2.0], "label": ["a", "b"]}, test={"age": [1.0]})
    with pytest.raises(DataError, match=r"must have equal columns, got label \(String\); no other"):
        huggingface(0, path=path, label="label")
    train = {"age": [1.0, 2.0] * 3, "label": ["a", "b"] * 3, "id": [*range(6)]}
    path = save(tmp_path / "other", train, test={"age": [1.0] * 2, "label": ["a", "b"], "key": ["x", "y"]})
    raw = huggingface(0, path=path, label="label", drop=("id", "key"))
    assert (raw.x.shape, raw.x_test.shape) == ((6, 1), (2, 1))
    with pytest.raises(DataError, match=r"drop must name columns \(age, label, id, key\), got ids"):
        huggingface(0, path=path, label="label", drop=("ids",))


NUMBERS = [1.0, 2.0, 3.0, 4.0] * 2


def features(**kinds):
    return hf.Features(
        {name: hf.ClassLabel(names=k) if isinstance(k, list) else hf.Value(k) for name, k in kinds.items()}
    )


@pytest.mark.parametrize(
    ("test_kind", "test_labels", "expected", "classes"),
    [
        (["dog", "cat"], [0, 1], [1, 0], ["cat", "dog"]),
        (["eel", "dog", "cat"], [0, 2], [2, 0], ["cat", "dog", "eel"]),
        ("string", ["dog", "cat"], [1, 0], ["cat", "dog"]),
        ("large_string", ["dog", "bee"], [1, 2], ["cat", "dog", "bee"]),
    ],
)
def test_classes_of_both_splits_are_matched_by_name(test_kind, test_labels, expected, classes, tmp_path):
    train = {"a": NUMBERS, "label": [0, 1] * 4}, features(a="float32", label=["cat", "dog"])
    test = {"label": test_labels, "a": [1.0, 2.0]}, features(label=test_kind, a="float64")
    train, test = hf.Dataset.from_dict(*train), hf.Dataset.from_dict(*test)
    raw = huggingface(0, path=save(tmp_path / "saved", train, test=test, dev=test), label="label")
    assert (raw.y.tolist(), raw.y_test.tolist()) == ([0, 1] * 4, expected)
    assert (raw.label_names.tolist(), raw.num_classes) == (classes, len(classes))
    assert raw.notes == ("saved: the split dev is not used",)


@pytest.mark.parametrize(
    ("test", "kinds", "message"),
    [
        ({"a": [1.0], "label": [1]}, {"a": "float64", "label": "int64"}, r"got label \(String\); label \(Int64\)"),
        ({"a": [1.0], "label": [-1]}, {"a": "float32", "label": ["cat"]}, "hold 0 to 0 in the split test, got -1; "),
        ({"a": [1.0], "label": [None]}, {"a": "float32", "label": ["cat"]}, "label label has no value in 1 of 9 rows"),
    ],
)
def test_labels_of_one_split_that_do_not_match_raise(test, kinds, message, tmp_path):
    train, test = {"a": NUMBERS, "label": ["cat", "dog"] * 4}, hf.Dataset.from_dict(test, features(**kinds))
    path = save(tmp_path / "saved", train, test=test)
    with pytest.raises(DataError, match=message):
        huggingface(0, path=path, label="label")


GRAY, COLORS = RNG.integers(0, 256, (2, 6, 5), np.uint8), RNG.integers(0, 256, (2, 6, 5, 3), np.uint8)
GRAY[0, 0, :2] = 0, 255


def picture(pixels, mode=None):
    return Image.fromarray(pixels) if mode is None else Image.fromarray(pixels).convert(mode)


def frames(images):
    first, *others = map(Image.fromarray, images)
    first.save(stream := io.BytesIO(), "TIFF", save_all=True, append_images=others)
    return {"bytes": stream.getvalue(), "path": None}


def saved_pictures(path, pictures, decode=True):
    kinds = hf.Features({"image": hf.Image(decode=decode), "label": hf.ClassLabel(names=["a", "b"])})
    return save(path, hf.Dataset.from_dict({"image": [*pictures] * 2, "label": [0, 1] * len(pictures)}, kinds))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (None, "image of row 1 of the split train: must be there, got none"),
        ({"bytes": b"junk", "path": None}, "image of row 1 of the split train: cannot identify image file"),
        (picture(np.dstack([COLORS[0], GRAY[0]])), "image of row 1 of the split train: is partly transparent; "),
        (frames(GRAY), "image of row 1 of the split train: must be one picture, got 2 frames; "),
        (picture(GRAY[0][:4]), r"got \(6, 5, 1\) and \(4, 5, 1\) of image of row 1 of the split train"),
        (picture(GRAY[0].astype(np.float32)), "images must have one type, got float32, uint8"),
        (picture(GRAY[0].astype(np.int32) * 100), "must have one type, got uint8 and int32 of image of row 1"),
    ],
)
def test_pictures_that_cannot_be_used_raise(bad, message, tmp_path):
    with pytest.raises(DataError, match=message):
        huggingface(0, path=saved_pictures(tmp_path / "p", [picture(GRAY[0]), bad]), label="label")


def lines(tmp_path):
    rows = [(name, line) for name, texts in LINES.items() for line in texts]
    return save(tmp_path / "lines", {"role": [name for name, _ in rows], "line": [line for _, line in rows]})


def test_texts_are_windows_of_tokens(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason=REASON)
    model = tokenizers.models.WordLevel({"?": 0, "a": 1, "rose": 2, "is": 3}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"text": "line", "client": "role", "window": 3, "tokenizer": str(tmp_path / "tokenizer.json")}
    raw = huggingface(0, path=lines(tmp_path), **settings)
    bob = raw.client_ids == raw.client_names.tolist().index("Bob")
    assert raw.x[bob].tolist() == [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3], [2, 3, 1]]
    assert raw.y[bob].tolist() == [1, 2, 3, 1, 2]
    assert raw.num_classes == 4
    assert huggingface(0, path=lines(tmp_path), text="line", window=5).client_ids is None
    unlabeled = {"line": ["a rose"], "label": [-1]}  # a column that is not used
    kinds = hf.Features(line=hf.Value("string"), label=hf.ClassLabel(names=["a", "b"]))
    path = save(tmp_path / "unlabeled", hf.Dataset.from_dict(unlabeled, features=kinds))
    assert huggingface(0, path=path, text="line", window=2).x.size
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer's file"):
        huggingface(0, path=lines(tmp_path), **settings)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({}, ConfigError, r"huggingface\.path: must name a folder"),
        ({"path": "here"}, ConfigError, r"huggingface\.label: must be a column"),
        ({"path": "lines", "text": "lin"}, DataError, r"text must name one column.*did you mean line\?"),
        ({"path": "lines", "label": "role"}, DataError, "must have classes that occur more than once"),
        ({"path": "lines", "text": "line", "window": 90}, DataError, "must be longer than a window of 90"),
        ({"path": "empty", "label": "y"}, DataError, r"huggingface\.path: empty cannot be loaded: "),
    ],
)
def test_wrong_settings_raise(settings, error, message, tmp_path):
    lines(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=message):
        huggingface(0, **settings)


def test_the_code_of_the_page():
    (block,) = (block for block in blocks("docs/how-to/data.md", "python") if "save_to_disk" in block.text)
    exec(compile(block.text, "docs/how-to/data.md", "exec"), {})


def test_init_for_a_saved_folder(tmp_path):
    rows = {"dose": RNG.normal(size=60).tolist(), "site": list("abc") * 20, "label": list("ab") * 30}
    save(tmp_path / "saved", rows)
    options = ["--data-path", "saved", "--label", "label", "--client", "site", "--suspect", "none"]
    assert main(["init", "saved.toml", *options]) == 0
    config = fedsim.load("saved.toml").runs()[0]
    assert (config.data.partition, dict(config.settings)["huggingface.client"]) == ("natural", "site")
