"""Data sets of Hugging Face from saved folders; skipped unless the extra `huggingface` is installed."""

import numpy as np
import pytest

import fedsim
from fedsim.datasets.huggingface import huggingface
from fedsim.errors import ConfigError, DataError
from tests.datasets.build import build_dataset
from tests.docs.pages import blocks

REASON = "needs the extra huggingface: pip install -e '.[huggingface]'"
hf = pytest.importorskip("datasets", reason=REASON)
RNG = np.random.default_rng(0)
LINES = {"Ann": ["To be, or not", "öäü!"], "Bob": ["a rose is a rose is a rose"]}


def save(path, train, test=None, features=None):
    splits = {"train": train} | ({} if test is None else {"test": test})
    made = {split: hf.Dataset.from_dict(rows, features) for split, rows in splits.items()}
    (made["train"] if test is None else hf.DatasetDict(made)).save_to_disk(path)
    return str(path)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_with_class_names_and_clients(channels, tmp_path):
    pixels = RNG.integers(0, 256, (12, 8, 6, channels), np.uint8)
    labels, owners = [2, 0] * 6, list("abcabcabcabc")
    features = hf.Features(
        {"picture": hf.Image(), "label": hf.ClassLabel(names=["cat", "dog", "eel"]), "writer": hf.Value("string")}
    )
    rows = {"picture": list(pixels.squeeze(-1) if channels == 1 else pixels), "label": labels, "writer": owners}
    train, test = ({name: values[part] for name, values in rows.items()} for part in (slice(9), slice(9, None)))
    raw = huggingface(0, path=save(tmp_path / "saved", train, test, features), label="label", client="writer")
    np.testing.assert_array_equal(np.concatenate([raw.x, raw.x_test]), pixels)
    assert [*raw.y, *raw.y_test] == labels
    assert (raw.num_classes, raw.label_names.tolist(), raw.inputs) == (3, ["cat", "dog", "eel"], "image")
    assert raw.client_names[[*raw.client_ids, *raw.test_client_ids]].tolist() == owners
    dataset = build_dataset(f"""
        data = {{name = "huggingface", partition = "natural"}}
        huggingface = {{path = "{tmp_path / "saved"}", label = "label", client = "writer"}}
        server.cohort_size = 3
    """)
    assert dataset.num_clients == 3
    assert len(dataset.y_test) == 3


def test_tables_are_encoded_as_those_of_files(tmp_path):
    """Categories of both splits; no client column."""
    train = {"age": [1.0, 2.0, 3.0, 6.0], "sex": ["m", "f", "m", "m"], "label": ["a", "b", "b", "a"]}
    test = {"age": [3.0, 3.0], "sex": ["x", "f"], "label": ["a", "b"]}
    raw = huggingface(0, path=save(tmp_path / "saved", train, test), label="label")
    age = np.asarray([*train["age"], *test["age"]])
    x = np.concatenate([raw.x, raw.x_test])
    np.testing.assert_allclose(x[:, 0], (age - age.mean()) / age.std(), rtol=1e-6)
    assert x[:, 1:].argmax(axis=1).tolist() == [1, 0, 1, 1, 2, 0]
    assert (raw.y.tolist(), raw.y_test.tolist(), raw.client_ids) == ([0, 1, 1, 0], [0, 1], None)


def test_splits_with_different_columns_raise(tmp_path):
    path = save(tmp_path / "saved", {"age": [1.0, 2.0], "label": ["a", "b"]}, {"age": [1.0]})
    with pytest.raises(DataError, match=r"must have equal columns, got label \(string\); no other"):
        huggingface(0, path=path, label="label")


def lines(tmp_path):
    rows = [(name, line) for name, texts in LINES.items() for line in texts]
    return save(tmp_path / "lines", {"role": [name for name, _ in rows], "line": [line for _, line in rows]})


def test_texts_are_windows_of_characters(tmp_path):
    raw = huggingface(0, path=lines(tmp_path), text="line", client="role", window=5)
    alphabet = sorted(set("".join("\n".join(texts) for texts in LINES.values())))
    assert raw.label_names.tolist() == alphabet
    expected = [
        (name, text[i : i + 5], text[i + 5])
        for name, text in ((name, "\n".join(texts)) for name, texts in LINES.items())
        for i in range(len(text) - 5)
    ]
    decode = lambda ids: "".join(raw.label_names[ids])
    shown = zip(raw.client_names[raw.client_ids], map(decode, raw.x), raw.label_names[raw.y], strict=True)
    assert list(shown) == expected
    assert (raw.inputs, raw.x.dtype) == ("text", np.int8)
    assert huggingface(0, path=lines(tmp_path), text="line", window=5).client_ids is None


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
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer's file"):
        huggingface(0, path=lines(tmp_path), **settings)


def test_a_run_on_texts(tmp_path):
    long = {"role": ["Ann", "Bob"], "line": ["to be or not to be " * 3, "a rose is a rose " * 3]}
    tables = {
        "data": {"name": "huggingface", "partition": "natural", "test_fraction": 0.3},
        "huggingface": {"path": save(tmp_path / "long", long), "text": "line", "client": "role", "window": 6},
        "model": {"name": "char_lstm"},
        "char_lstm": {"hidden_size": 4},
        "server": {"cohort_size": 2, "num_rounds": 1, "aggregator": "fedavg"},
    }
    result = fedsim.run(tables, out=tmp_path / "out", progress=False)
    assert result.rounds["test_accuracy"].null_count == 0


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({}, ConfigError, r"huggingface\.path: must name a folder"),
        ({"path": "here"}, ConfigError, r"huggingface\.label: must be a column"),
        ({"path": "here", "label": "y", "text": "x"}, ConfigError, r"huggingface\.label: must be left out with texts"),
        ({"path": "lines", "text": "lin"}, DataError, r"text must name one column.*did you mean line\?"),
        ({"path": "lines", "label": "role"}, DataError, "must have classes that occur more than once"),
        ({"path": "lines", "text": "line", "window": 90}, DataError, "must be longer than a window of 90"),
        ({"path": "empty", "label": "y"}, DataError, r"huggingface\.path: empty cannot be loaded: "),
    ],
)
def test_wrong_settings_raise(settings, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=message):
        huggingface(0, **settings)


def test_the_code_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in blocks("docs/how-to/data.md", "python") if "save_to_disk" in block.text)
    exec(compile(block.text, "docs/how-to/data.md", "exec"), {})
