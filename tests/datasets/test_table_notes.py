"""Notes on columns and names of a table that are usable, but maybe not meant as they are read."""

import numpy as np
import pandas as pd
import pytest

import fedsim
from fedsim.cli.main import main
from tests.datasets.build import build_dataset
from tests.datasets.test_table_files import FRAME, M, csv_file, read

__all__ = ["csv_file"]  # a fixture


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
