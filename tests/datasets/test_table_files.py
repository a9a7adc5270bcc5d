"""CSV and Parquet files as users have them, compared with what pandas reads; notes on their columns and names."""

import gzip
from functools import partial

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import fedsim
from fedsim.cli.main import main
from fedsim.datasets import table
from fedsim.engine import make_plan
from fedsim.errors import ConfigError, DataError
from tests.datasets.build import build_dataset

M = 24
FRAME = pd.DataFrame({"a": np.linspace(1, 2, M) ** 2, "y": ["u", "v"] * 12, "c": ["s", "t", "r"] * 8})


def read(path, **settings):
    return table.table(0, path=str(path), label="y", client="c", **settings)


def names_of(raw):
    return raw.label_names[raw.y].tolist(), raw.client_names[raw.client_ids].tolist()


@pytest.fixture
def csv_file(tmp_path):
    """Writes the frame with other columns as CSV."""

    def write(*, name="rows.csv", options=(), **columns):
        FRAME.assign(**columns).to_csv(tmp_path / name, index=False, **dict(options))
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    "names",
    [
        ["12345678901234567890123", "12345678901234567890124"],
        ["1e5", "100000", "1E5"],
        ["007", "7", "07", "0007"],
        ["0x10", "16"],
        ["true", "True", "TRUE"],
        ["1", "1.0", "1.00"],
        ["+1", "1"],
        ["12:00", "12:00:00"],
        ["inf", "Infinity"],
        ["a,b", 'a"b', "é\nb"],
    ],
)
def test_names_are_texts(names, csv_file):
    texts = [names[i % len(names)] for i in range(M)]
    path = csv_file(y=texts, c=texts[::-1])
    plain = pd.read_csv(path, dtype=str, keep_default_na=False)
    raw = read(path)
    assert names_of(raw) == (plain.y.tolist(), plain.c.tolist())
    assert raw.num_classes == len(raw.client_names) == len(names)


def test_digits_of_other_scripts_are_names(csv_file):
    assert names_of(read(csv_file(y=["٠.٥", "1.25"] * 12, c=["1٣", "13", "7"] * 8)))[1] == ["1٣", "13", "7"] * 8


def test_plain_numbers_are_sorted_as_numbers(csv_file):
    """Also numbers to be predicted, which may not be one number written in two ways."""
    raw = read(csv_file(y=[10, 9, -3] * 8, c=[10.0, 9.0] * 12))
    assert (raw.label_names.tolist(), raw.client_names.tolist()) == (["-3", "9", "10"], ["9.0", "10.0"])
    raw = read(csv_file(y=[1.5, 2, 0.25] * 8))
    np.testing.assert_array_equal(raw.y, [1.5, 2, 0.25] * 8)
    with pytest.raises(DataError, match=r"rows\.csv: labels 250\.0 and 250\.00 are one number"):
        read(csv_file(y=["250.0", "250.00", "250.01"] * 8))


@pytest.mark.parametrize("route", ["csv", "parquet", "pandas"])
def test_missing_cells_are_refused_on_every_route(route, csv_file, tmp_path):
    cells = ["", "NA", "NULL", "nan", "N/A", "None", "<NA>", " ", " NA"]
    for column, message in (("y", "label y has"), ("c", "client c has"), ("text", "column 'text' has")):
        path = csv_file(**{"text": "p", column: [*cells, *["q", "r", "s"] * 5]})
        frame = pd.read_csv(path, skipinitialspace=True)
        frame.to_parquet(tmp_path / "rows.parquet")
        if route == "pandas":
            load = partial(fedsim.from_pandas, frame, label="y", client="c")
        else:
            load = partial(read, path.with_suffix(f".{route}"))
        with pytest.raises(DataError, match=rf"{message} no value in 9 of 24 rows; "):
            load()


def test_spaces(csv_file):
    """Around names they are no part of these, and names that differ in them only are refused."""
    path = csv_file()
    plain = read(path)
    path.write_text(path.read_text().replace(",", ", "))
    assert names_of(read(path)) == names_of(plain)
    path = csv_file(y=["u", "u "] * 12)
    with pytest.raises(DataError, match=r"column 'y' has 'u' and 'u ', which differ in spaces; remove these"):
        read(path)
    unread = {"drop": ["y"]}, {"text": "y"}
    assert [table.table(0, path=str(path), label="c", **settings).num_classes for settings in unread] == [3, 3]
    path = csv_file(y=["u", "u "] * 12, b=["of", "to"] * 12)
    assert table.table(0, path=str(path), label="c", text="b").num_classes == 3  # y is not used
    with pytest.raises(DataError, match="text y must have a text in every row, got None in row 1"):
        table.table(0, path=str(csv_file(y=["u", "NA"] * 12)), label="c", text="y")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("D.CSV", {"sep": ";", "encoding": "utf-16"}),
        ("d.tsv.gz", {"sep": "\t", "encoding": "utf-8-sig", "lineterminator": "\r\n"}),
        ("d.csv.bz2", {"sep": "|", "quoting": 1}),
        ("d.csv", {"sep": ";", "decimal": ","}),
        ("d.tsv", {"sep": "\t", "decimal": ",", "encoding": "utf-16"}),
    ],
)
def test_forms_of_csv(name, options, csv_file):
    raw, expected = read(csv_file(name=name, options=options)), read(csv_file())
    assert names_of(raw) == names_of(expected)
    np.testing.assert_array_equal(raw.x, expected.x)


def test_a_text_of_two_lines_has_no_part_in_the_separator(csv_file):
    columns = {"a": ["of\ntwo", "one"] * 12}
    plain, quoted = (names_of(read(csv_file(**columns, options=o))) for o in ({}, {"sep": "\t", "quoting": 1}))
    assert plain == quoted


def test_a_quote_within_a_text(csv_file):
    """As pandas reads it, though writers double it."""
    path = csv_file()
    path.write_text(path.read_text().replace(",u,", ',5" u,'))
    assert names_of(read(path))[0] == pd.read_csv(path).y.tolist() == ['5" u', "v"] * 12


@pytest.mark.parametrize("first_line", ["", "sep=;\n"])
def test_decimal_commas(first_line, csv_file):
    """Where semicolons separate: numbers and labels, as pandas reads them; no clients, no thousands, no mixtures."""
    path = csv_file(
        y=["1,5", "2,25"] * 12, c=["1,5", "2"] * 12, thousands=["1,000", "2,500"] * 12, options={"sep": ";"},
        mixed=["1.5", "2,5"] * 12, **{"b, c (d, e, f)": ["-3,25", "1e-3", "0,125"] * 8},
    )  # fmt: skip
    frame = pd.read_csv(path, sep=";", decimal=",")
    path.write_text(first_line + path.read_text())
    raw = read(path, standardize=False)
    np.testing.assert_allclose(raw.y, frame.y, rtol=1e-6)
    assert raw.client_names.tolist() == ["1,5", "2"]
    assert raw.x.shape == (M, 1 + 2 + 2 + 1)
    np.testing.assert_allclose(raw.x[:, -1], frame["b, c (d, e, f)"].astype(float), rtol=1e-6)
    assert [note.partition(" is text")[0] for note in raw.notes] == [
        "rows.csv: column 'thousands'",
        "rows.csv: column 'mixed'",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has no rows"),
        ("a,y,c\n1,ü,s\n".encode("latin1"), "must be UTF-8 text; convert it: iconv"),
        ("a,y,ü\n1,2,s\n".encode("latin1"), "must be UTF-8 text; convert it: iconv"),
        (b"a,y,c,t\n1,2,s,\xfc\n", "must be UTF-8 text; convert it: iconv"),
        ("a,y,c\n1,2,s\n".encode("utf-16-le"), "it is not text"),
        (b"# by x\na,y,c\n1,2,s\n", "the header has 1 columns, but a row has 3: a,y,c"),
        (b'a,y,c\n1,2,s\n1,2,"s\n1,2,s\n', "unexpected end of data"),
        (b'a,y,c\n1,2,"s\n1,2,"s"\n', "',' expected after"),
        (b"a,y,c\n1,2,s\n  \n", "the header has 3 columns, but a row has 1:"),
        (gzip.compress(mtime=0, data=b"a,y,c\n1,2,s\n" * 99)[:-9], "Compressed file ended before"),
    ],
)
def test_what_is_no_csv_is_refused(content, message, tmp_path):
    (tmp_path / "d.csv").write_bytes(content)
    with pytest.raises(DataError, match=rf"d\.csv: not a \.csv table: {message}"):
        read(tmp_path / "d.csv")


def test_folders_of_parts(tmp_path):
    """As Spark and Dask write them: a log, checksums, metadata, and columns in the names of folders."""
    frame = FRAME.assign(c=["007", "7", "a b/c"] * 8)
    frame.to_parquet(tmp_path / "hive", partition_cols=["c"])
    (tmp_path / "hive" / "_SUCCESS").touch()
    (tmp_path / "hive" / ".part-0.parquet.crc").write_bytes(b"crc")
    pq.write_metadata(pq.read_schema(next((tmp_path / "hive").rglob("*.parquet"))), tmp_path / "hive" / "_metadata")
    raw = read(tmp_path / "hive")
    assert sorted(zip(*names_of(raw), strict=True)) == sorted(zip(frame.y, frame.c, strict=True))
    (tmp_path / "hive" / "c=7").rename(tmp_path / "elsewhere")
    (tmp_path / "hive" / "c=7").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "hive" / "loop").symlink_to(tmp_path / "hive")
    (tmp_path / "hive" / "gone.parquet").symlink_to(tmp_path / "nowhere")
    assert sorted(names_of(read(tmp_path / "hive"))[1]) == sorted(frame.c)
    (tmp_path / "hive" / "_delta_log").mkdir()  # older versions of rows may be there, too
    with pytest.raises(DataError, match=r"hive: must have no log of versions \(Delta, Hudi\)"):
        read(tmp_path / "hive")
    (tmp_path / "csv").mkdir()
    for part in range(3):  # the first of them has whole numbers only
        rows = frame.assign(a=[*range(8), *frame.a[8:]])[8 * part : 8 * part + 8]
        rows.to_csv(tmp_path / "csv" / f"part-{part}.csv", index=False)
    (tmp_path / "csv" / "part-3.csv").touch()  # a part without rows
    raw = read(tmp_path / "csv", standardize=False)
    assert names_of(raw) == (frame.y.tolist(), frame.c.tolist())
    np.testing.assert_allclose(raw.x[:, 0], [*range(8), *frame.a[8:]], rtol=1e-6)


def test_files_of_several_types(tmp_path):
    """Numbers are unified unless that would round; other types are refused."""
    parts = [FRAME.assign(a=range(M), c=[2**53, 2**53 + 1] * 12), FRAME]
    for i, part in enumerate(parts):
        part.assign(c=1).to_parquet(tmp_path / f"{i}.parquet")
    np.testing.assert_allclose(read(tmp_path, standardize=False).x[:, 0], pd.concat(parts).a, rtol=1e-6)
    for columns, message in (
        ({"a": [[0.5]] * M, "c": 1}, "1.parquet: must have the types of the other files: "),
        ({"c": [0.5, 1] * 12}, "column 'c' has 9007199254740993, which Float64 rounds"),
        (
            {"a": ["u", "v"] * 12, "c": 1},
            "1.parquet: must have the types of the other files: column 'a' has Int64 and String",
        ),
    ):
        for i, part in enumerate((parts[0], FRAME.assign(**columns))):
            part.to_parquet(tmp_path / f"{i}.parquet")
        with pytest.raises(DataError, match=message):
            read(tmp_path)


@pytest.mark.parametrize("names", [("train.csv", "test.csv"), ("Train-0.csv", "sub/validation-0.csv")])
def test_splits_in_a_folder_are_not_merged(names, tmp_path, csv_file):
    (tmp_path / "all" / "sub").mkdir(parents=True)
    for name in names:
        csv_file(name=f"all/{name}")
    with pytest.raises(DataError, match=r"all: must hold one table, got (test|train) and (train|validation); give one"):
        read(tmp_path / "all")


def test_delimiters_at_the_end_of_lines(csv_file):
    path = csv_file()
    path.write_text(path.read_text().replace("\n", ",\n"))
    assert read(path).notes == ("rows.csv: column '' is left out, since it has no values",)


@pytest.mark.parametrize("route", ["csv", "parquet", "parquet with a name", "pandas"])
def test_the_index_of_a_frame_is_left_out(route, tmp_path):
    route, _, is_named = route.partition(" with ")
    frame = FRAME.sample(frac=0.9, random_state=0).rename_axis("visit" if is_named else None)
    frame.to_csv(tmp_path / "i.csv")
    frame.to_parquet(tmp_path / "i.parquet")
    if route == "pandas":
        columns = fedsim.from_pandas(pd.read_csv(tmp_path / "i.csv"), label="y", client="c")
        assert columns.train.x.shape[1] == 1
        name = "Unnamed: 0"
    else:
        columns = read(tmp_path / f"i.{route}", standardize=False)
        np.testing.assert_allclose(columns.x[:, 0], frame.a, rtol=1e-6)
        name = {"csv": "", "parquet": "visit" if is_named else "__index_level_0__"}[route]
    (note,) = columns.notes
    if (route, is_named) == ("csv", False):  # a column without a name is not the client that is not given
        assert note in table.table(0, path=str(tmp_path / "i.csv"), label="y", standardize=False).notes
    assert f"column {name!r} is left out, since it is the index of a pandas frame" in note


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.arange(M), "has a different whole number in each row, in order"),
        (500 - 7.0 * np.arange(M), "has a different whole number in each row, in order"),
        (np.random.default_rng(0).permutation(M), "has a different whole number in each row, in order"),
        (np.arange(M) // 2, None),
        (np.random.default_rng(0).permutation(M) ** 2, None),
        (["1,5", "2"] * 12, "is text, since it has '1,5': one feature for each of its 2 values"),
        (["$1,000", "-$2"] * 12, "is text, since it has '$1,000': one feature for each of its 2 values"),
        (["7 €", "12%", "\u22121"] * 8, "is text, since it has '7 €': one feature for each of its 3 values"),
        (["0x1F", "1_000", "1D3"] * 8, "is text, since it has '0x1F': one feature for each of its 3 values"),
        (["10-20", "2-3", "3a", "12:30", "A1", "p"] * 4, None),
        (2**53 + np.arange(M) % 9, "has whole numbers that float32 cannot tell apart, up to 9007199254741000"),
    ],
)
def test_notes_of_questionable_columns(column, message, csv_file):
    notes = read(csv_file(z=column), standardize=False).notes
    assert [f"rows.csv: column 'z' {message}" in note for note in notes] == [True] * (message is not None)


def test_neighbors_at_the_limit_of_float64_are_told_apart(csv_file):
    x = read(csv_file(z=2**53 + np.arange(M) % 2)).x[:, -1]
    np.testing.assert_allclose(x, 2.0 * (np.arange(M) % 2) - 1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["1", "1.0"], "has '1' and '1.0', which are taken for different names"),
        (["Yes", "yes"], "has 'Yes' and 'yes', which are taken for different names"),
        (["New  York", "New York"], "has 'New  York' and 'New York', which are taken for different names"),
        (["e\u0301", "\u00e9"], "has 'e\u0301' and '\u00e9', which are taken for different names"),
        (["y", "v"], "has the text 'y', which is taken for a name like others"),  # as in a repeated header
        (["5 %", "10 %"], "is text, since it has '10 %': one class for each of its texts"),
        (["a", "A"], None),  # letters
        (["1.0", "2.0"], None),
        (["-1", "1"], None),
        (["1e5", "1e6"], None),
    ],
)
def test_notes_of_questionable_labels(labels, message, csv_file):
    raw = read(csv_file(y=labels * 12))
    assert sorted(raw.label_names) == sorted(labels)
    assert raw.notes == ((f"rows.csv: column 'y' {message}",) if message else ())


def test_labels_that_are_clients_are_noted():
    (note,) = fedsim.from_pandas(FRAME.drop(columns="c"), label="y", client="y").notes
    assert note == "pandas: column 'y' is the label and the client, so each client has one class"


def test_large_whole_numbers_are_standardized_exactly(csv_file):
    """Their differences are, and identifiers that float64 cannot tell apart are no numbers."""
    steps = np.arange(M) % 9 - 4.0
    steps -= steps.mean()
    raw = read(csv_file(z=2**60 + np.arange(M) % 9))
    np.testing.assert_allclose(raw.x[:, 1], steps / steps.std(), rtol=1e-6)
    ids = [str(10**24 + i % 2) for i in range(M)]
    np.testing.assert_array_equal(read(csv_file(z=ids)).x[:, 1:].argmax(axis=1), np.arange(M) % 2)


def test_large_numbers_to_predict_are_noted(csv_file):
    text = f'data.name = "table"\ntable = {{path = "{csv_file(y=1e5 * FRAME.a)}", label = "y", client = "c"}}\n'
    assert any("rows.csv: targets are" in note for note in build_dataset(f"{text}server.cohort_size = 2").notes)
    csv_file(y=FRAME.a)
    assert not any("targets are" in note for note in build_dataset(f"{text}server.cohort_size = 2").notes)


def test_init_says_why_no_column_is_left(csv_file, tmp_path, capsys):
    path = csv_file(a=[f"p{i}" for i in range(M)])
    options = ["--data-path", str(path), "--label", "y", "--client", "c", "--suspect", "none"]
    assert main(["init", str(tmp_path / "a.toml"), *options]) == 2
    captured = capsys.readouterr()
    assert "a: left out, since it is text with 24 different values" in captured.out
    assert "rows.csv: must have a column besides the label and the client" in captured.err


def test_data_with_clients_have_natural_ones_by_default(csv_file, tmp_path):
    path = csv_file()
    np.savez(tmp_path / "mine.npz", x=np.zeros((24, 2)), y=np.arange(24) % 2, client_ids=np.arange(24) % 3)
    for section, settings in (
        ("table", f'path = "{path}", label = "y", client = "c"'),
        ("arrays", f'path = "{tmp_path / "mine.npz"}"'),
    ):
        text = f'data.name = "{section}"\n{section} = {{{settings}}}\nserver.cohort_size = 2\n'
        assert build_dataset(text).num_clients == 3
        dataset = build_dataset(f'{text}data.partition = "iid"\ndata.num_clients = 4')
        assert dataset.num_clients == 4
        assert 'its clients are not used; data.partition = "natural" uses them, got "iid"' in dataset.notes[-1]


def test_which_data_have_clients():
    partition = lambda tables, **keys: {run.data.partition for run in fedsim.load(tables, **keys).runs()}
    small = {"server": {"cohort_size": 2}}
    for name in ("leaf", "femnist", "shakespeare"):
        assert partition(small, data__name=name) == {"natural"}
        swept = fedsim.sweep(["iid", "default"])
        assert partition(small, data__name=name, data__partition=swept) == {"iid", "natural"}
    for client, expected in (("", "iid"), ("c", "natural")):
        experiment = fedsim.load(small, data__name="huggingface", huggingface__client=client)
        assert partition(small, data__name="huggingface", huggingface__client=client) == {expected}
        assert fedsim.load(dict(small), data__name="huggingface", huggingface__client=client) == experiment
    with pytest.raises(ConfigError, match=r"data\.partition: must be set, since only some of the data sets have"):
        fedsim.load(small, data__name=fedsim.sweep(["digits", "leaf"]))


def test_init_counts_the_clients_that_can_be_split(csv_file, capsys):
    csv_file(c=[*["r", "s", "t"] * 7, "r", "s", "alone"], z=np.arange(M))
    init = ["init", "c.toml", "--data-path", "rows.csv", "--label", "y", "--client", "c", "--suspect", "none"]
    assert main(init) == 0
    printed = capsys.readouterr()
    assert "wrote c.toml; `fedsim run c.toml" in printed.out
    assert "note: rows.csv: column 'z' has a different whole number in each row" in printed.err
    experiment = fedsim.load("c.toml", server__aggregator="fedavg", seed=0)
    assert experiment.runs()[0].server.cohort_size == 3
    assert any("rows.csv: 1 of 4 clients are left out" in note for note in make_plan(experiment).notes)
