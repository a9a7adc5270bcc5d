"""Tables of users: .csv and .parquet files, data frames, and `fedsim init` for them."""

import datetime
import decimal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedsim
from fedsim.cli.main import main
from fedsim.config import toml
from fedsim.datasets import columns, table, table_files
from fedsim.engine import make_plan
from fedsim.engine.data import load_dataset
from fedsim.errors import ConfigError, DataError

M = 120
RNG = np.random.default_rng(0)
COLUMNS = {
    "age": RNG.integers(20, 90, M),
    "dose": RNG.normal(size=M),
    "sex": RNG.choice(["m", "f", "x"], M),
    "smoker": RNG.random(M) < 0.3,
    "site": RNG.choice(["Ulm", "Ghent", "Oslo", "Lund"], M),
    "diagnosis": RNG.choice(["flu", "cold", "none"], M),
}
TEXTS = ("sex", "site", "diagnosis")
FRAME = pd.DataFrame(COLUMNS)


@pytest.fixture
def folder(tmp_path):
    FRAME.to_csv("rows.csv", index=False)
    FRAME.to_parquet("rows.parquet", index=False)
    FRAME.astype(dict.fromkeys(TEXTS, "category")).to_parquet("categories.parquet", index=False)
    views = {name: pa.array(COLUMNS[name], pa.string_view()) for name in TEXTS}
    pq.write_table(pa.table(COLUMNS | views), "views.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "categories.parquet", "views.parquet"])
def test_columns_become_features_classes_and_clients(folder, name):
    raw = table.table(0, path=name, label="diagnosis", client="site")
    assert raw.label_names.tolist() == ["cold", "flu", "none"]
    assert raw.label_names[raw.y].tolist() == COLUMNS["diagnosis"].tolist()
    assert raw.client_names[raw.client_ids].tolist() == COLUMNS["site"].tolist()
    age, dose = ((a - a.mean()) / a.std() for a in (COLUMNS["age"], COLUMNS["dose"]))
    expected = np.stack([age, dose, *(COLUMNS["sex"] == sex for sex in "fmx"), COLUMNS["smoker"]], axis=1)
    assert raw.x.dtype == np.float32
    np.testing.assert_allclose(raw.x, expected, rtol=1e-5, atol=1e-6)


def test_drop_and_raw_numbers(folder):
    raw = table.table(0, path="rows.csv", label="diagnosis", drop=("sex", "site"), standardize=False)
    np.testing.assert_allclose(raw.x, np.stack([COLUMNS[c] for c in ("age", "dose", "smoker")], axis=1), rtol=1e-6)
    assert raw.client_ids is None


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.repeat([7, 3, 5], 40), ["3", "5", "7"]),
        (np.repeat([0.0, 1.0], 60), ["0.0", "1.0"]),
        (np.repeat([-0.0, 1.0], 60), ["0.0", "1.0"]),
        (np.repeat([True, False], 60), ["False", "True"]),
        (np.linspace(0, 1, M), None),
    ],
)
def test_labels_are_classes_or_numbers(labels, classes):
    raw = columns.encode("rows", pl.DataFrame({"x": np.arange(M), "y": labels}), "y")
    if classes is None:
        assert raw.num_classes == 0
        np.testing.assert_allclose(raw.y, labels, rtol=1e-6)
    else:
        assert raw.label_names.tolist() == classes
        assert raw.label_names[raw.y].tolist() == [str(abs(label)) for label in labels]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": [f"p{i}" for i in range(M)]}, "column 'name' is text with 120 different values, more than 20"),
        ({"age": [None, *range(M - 1)]}, "column 'age' has no value in 1 of 120 rows"),
        ({"age": [np.inf, *range(M - 1)]}, "column 'age' has infinity in 1 of 120 rows"),
        ({"code": [[1.0, 2.0], [3.0]] * (M // 2)}, r"'code' has lists of 1 to 2 numbers; their lengths must be equal"),
        ({"code": [[1.0, None]] * M}, rf"'code' has no value in {M} of {2 * M} numbers of its lists"),
        ({"day": [datetime.date(2024, 1, 1)] * M}, r"column 'day' is of type Date, neither numbers nor text"),
        ({"site": [datetime.date(2024, 1, 1)] * M}, "client site must be text or numbers, got type Date; convert it"),
        ({"diagnosis": list(range(M))}, "label diagnosis must have classes .* in 120 rows; standardize numbers"),
        ({"diagnosis": None, "diagnoses": COLUMNS["diagnosis"]}, "got 'diagnosis', .* did you mean diagnoses?"),
    ],
)
def test_what_cannot_be_used_is_refused_by_column(changes, message):
    rows = {name: values for name, values in {**COLUMNS, **changes}.items() if values is not None}
    with pytest.raises(DataError, match=message):
        columns.encode("rows", pl.DataFrame(rows), "diagnosis", "site")


@pytest.mark.filterwarnings("error")
def test_a_table_without_rows_and_constant_columns():
    with pytest.raises(DataError, match="rows: must have rows, got none"):
        columns.encode("rows", pl.DataFrame(schema={"x": pl.Float64, "y": pl.String}), "y")
    raw = columns.encode("rows", pl.DataFrame({"x": [1234567.7] * 1000, "y": ["a", "b"] * 500}), "y")
    assert not raw.x.any()


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("x,x ,y\n1,3,a\n2,4,b\n")
    frame = FRAME.set_axis(["x", "x", *list(FRAME)[2:]], axis=1)
    for read in (
        lambda: table.table(0, path=str(tmp_path / "rows.csv"), label="y"),
        lambda: fedsim.from_pandas(frame, label="diagnosis"),
    ):
        with pytest.raises(DataError, match="columns must have different names, got 'x' more than once"):
            read()


def test_broken_files_raise(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"a\.parquet: not a \.parquet table: "):
        table_files.read(tmp_path / "a.parquet", "y")
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        table_files.read(tmp_path / "none.csv", "y")


def test_from_pandas():
    dataset = fedsim.from_pandas(FRAME, label="diagnosis", client="site", test_fraction=0.25)
    expected = np.unique(COLUMNS["site"], return_counts=True)[1]
    np.testing.assert_array_equal(dataset.train.num_examples, [3 * size // 4 for size in expected])
    assert fedsim.from_pandas(FRAME, label="diagnosis", drop=["site"]).num_clients == 1
    numbered = FRAME.set_axis(range(6), axis=1)
    expected, dataset = (
        fedsim.from_pandas(frame, label=label, client=client, drop=drop, seed=1)
        for frame, label, client, drop in ((FRAME, "diagnosis", "site", "sex"), (numbered, 5, 4, [2]))
    )
    np.testing.assert_array_equal(dataset.train.x, expected.train.x)
    with pytest.raises(DataError, match=r"df: must be a pandas\.DataFrame, got dict"):
        fedsim.from_pandas(COLUMNS, label="diagnosis")
    with pytest.raises(DataError, match=r"got the Table of pyarrow; use df\.to_pandas\(\)"):
        fedsim.from_pandas(pa.table(COLUMNS), label="diagnosis")
    with pytest.raises(DataError, match=r"pandas: column 'dose' cannot be used: .*; change it, or add it to drop"):
        fedsim.from_pandas(FRAME.assign(dose=1j), label="diagnosis")


def test_integers_beyond_float64_are_different_names():
    """Also decimals and unsigned integers, and the levels of an index."""
    decimals = [decimal.Decimal(10**30 + i) for i in range(2)]
    for names in (2**60 + np.arange(2), np.uint64(2**63) + np.arange(2, dtype=np.uint64), decimals):
        rows = FRAME.assign(site=list(names) * 60, diagnosis=list(names) * 60)
        dataset = fedsim.from_pandas(rows.set_index("site"), label="diagnosis", client="site")
        assert (dataset.num_clients, dataset.num_classes) == (2, 2)


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import pandas as pd
import fedsim
from fedsim.datasets import table
frame = pd.read_csv("rows.csv").astype({"age": "Int64", "sex": "category", "site": "string"})
sets = [fedsim.from_pandas(frame.assign(cut=pd.cut(frame.dose, 3)), label="diagnosis", client="site")]
sets += [table.table(0, path=f"rows.{suffix}", label="diagnosis", client="site") for suffix in ("csv", "parquet")]
print(sets[0].train.x.shape[1], *(raw.x.shape for raw in sets[1:]))
"""


@pytest.mark.slow
def test_tables_need_no_pyarrow(folder):
    run = [sys.executable, "-c", WITHOUT_PYARROW]
    shown = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert shown == f"{6 + 3} ({M}, 6) ({M}, 6)\n"


def test_from_pandas_without_pandas(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(DataError, match="from_pandas: needs pandas; pip install pandas"):
        fedsim.from_pandas(FRAME, label="diagnosis")


def test_init_writes_a_configuration_that_runs(folder, capsys):
    """An identifier is left out, and the file says so; with a client column and without."""
    rows = pa.table({"id": [f"p{i}" for i in range(M)]} | COLUMNS)
    pq.write_table(rows, "named.parquet")
    init = ["init", "a.toml", "--data-path", "named.parquet", "--label", "diagnosis", "--suspect", "none"]
    assert main([*init, "--client", "site"]) == 0
    printed = capsys.readouterr().out
    assert "id: left out, since it is text with 120 different values" in printed
    assert "sex: one feature for each value (one-hot)" in printed
    assert "4 clients, 120 examples, not split, 3 classes" in printed
    (run, *_) = toml.read(Path("a.toml")).runs()
    assert run.section("table")["drop"] == ("id",)
    assert load_dataset(run).num_clients == 4
    assert main([*init, "--force", "--clients", "5"]) == 0
    plan = make_plan(toml.read(Path("a.toml"), {"data.partition": "iid"}))
    assert {dataset.num_clients for dataset in plan.datasets.values()} == {5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--data-path rows.csv --clients 3", "--label: must be given"),
        (
            "--data-path rows.csv --label y --client site --clients 3",
            "--clients 3: must be left out with --client site",
        ),
        ("--data-path rows.csv --label y", "rows.csv: label must name one column, got 'y'"),
        (
            "--data-path digits --label y",
            "--label: must be left out unless --data-path is a table (.csv, .tsv, .parquet or Hugging Face)",
        ),
    ],
)
def test_wrong_options_of_init(options, message, folder, capsys):
    assert main(["init", *options.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_texts_with_a_class_each(folder):
    """Padding before short texts; examples are drawn at random, since these are no windows of one text."""
    rows = {"note": ["ab", "a", "cabba", "b", "c"] * 20, "site": ["Ulm", "ulm"] * 50, "kind": list("xyxyx") * 20}
    pl.DataFrame(rows).write_csv("texts.csv", quote_style="always")
    settings = {"path": "texts.csv", "label": "kind", "client": "site", "text": "note", "window": 4}
    raw = table.table(0, **settings)
    padding = 3
    expected = [[3, 3, 0, 1], [3, 3, 3, 0], [2, 0, 1, 1], [3, 3, 3, 1], [3, 3, 3, 2]]
    assert raw.x[:5].tolist() == expected
    assert (raw.inputs, raw.y[:5].tolist(), raw.x.max()) == ("text", [0, 1, 0, 1, 0], padding)
    assert raw.notes == (
        "texts.csv: column 'site' has 'Ulm' and 'ulm', which are taken for different names",
        "texts.csv: 20 of 100 texts are cut after 4 tokens",
    )
    with pytest.raises(DataError, match=r"must fit into memory or .*, got (93\.1 TiB|93,?132\.3 GiB)"):
        table.table(0, **settings | {"window": 10**12})
    tables = {
        "data": {"name": "table", "partition": "natural"},
        "table": settings,
        "model": {"name": "transformer"},
        "transformer": {"hidden_size": 8, "num_layers": 1, "num_heads": 2},
        "corruption": {"kind": "backdoor", "fraction": 0.5},
        "backdoor": {"phrase": [2, 2], "target": 1},
        "server": {"cohort_size": 2, "aggregator": "median"},
    }
    with pytest.raises(ConfigError, match=r"inputs must be 0 to 1, got 3; set transformer\.vocabulary_size = 4"):
        make_plan(fedsim.load(tables))
    adapter = {"adapter": {"rank": 2, "whole": ["Dense_4/*"]}}  # of which the last is the classes' layer
    (data,) = make_plan(fedsim.load(tables | adapter, transformer__vocabulary_size=4)).datasets.values()
    assert data.train.num_examples.sum() == 80
