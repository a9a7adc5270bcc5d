"""Tables as CSV, Parquet, pandas frames and Hugging Face folders, with what a plain reading by pandas gives."""

import contextlib
import csv
import decimal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import fedsim
from fedsim.datasets import huggingface, table
from tests.fuzz.generated.cases import Case, Truth, pick

LABEL, CLIENT = "diag", "site"
LISTS = """
flu,cold,none Köln,Koln,ко́д,日本 a,A,b 0,1,2,12 -1,0,1 +1,1,-1 007,7,07 01234,12345,99999 1e5,100000,10e4,1E5
9007199254740992,9007199254740993,9007199254740994 123456789012345678901,123456789012345678902 0x10,16,0X10
0x10,0x1F,0x2A true,True,false True,False 1.0,2.0,10.0 1.0,1,1.00 1.,1,.5 2024-01-01,2024-01-02,01.01.2024
12:00,12:00:00,13:00 1_000,1000,10_00 inf,Infinity,1 NA,a,b None,a,nan,null ?,a,b
"""
SPACED = [["a\nb", "a", "b"], ["a b", "a  b", "ab"], ["a", " a", "a "], ["", "a", "b"], ["a,b", 'say "a"', "a;b", "c"]]
NAMES = [names.split(",") for names in LISTS.split()] + SPACED
TYPED: dict[str, Callable[[np.ndarray], Any]] = {  # of numbers [M] from 0 to 3; for all but CSV
    "int8": lambda n: (n - 1).astype(np.int8),
    "big integers": lambda n: 2**53 + n.astype(np.int64),
    "unsigned": lambda n: np.uint64(2**63) + n.astype(np.uint64),
    "whole floats": lambda n: n.astype(float),
    "halves": lambda n: n / 2,
    "float32": lambda n: n.astype(np.float32),
    "truth": lambda n: n % 2 == 0,
    "nullable truth": lambda n: pd.array(n % 2 == 0, "boolean"),
    "decimals": lambda n: [decimal.Decimal(2**60 + int(k)) for k in n],
    "decimal fractions": lambda n: [decimal.Decimal(int(k)) / 4 for k in n],
    "categories": lambda n: pd.Categorical.from_codes(n, ["b", "a", "NA", "c"]),
    "number categories": lambda n: pd.Categorical(n + 2**53),
    "cut": lambda n: pd.cut(n.astype(float), [-1, 0.5, 9]),
    "periods": lambda n: pd.PeriodIndex.from_ordinals(n + 600, freq="M"),
    "big-endian": lambda n: n.astype(">i4"),
    "sparse": lambda n: pd.arrays.SparseArray(n),
}
REFUSED: dict[str, Callable[[np.ndarray], Any]] = {
    "nullable": lambda n: pd.array([None if k == 2 else k for k in n], "Int64"),
    "missing floats": lambda n: np.where(n == 2, np.nan, n),
    "missing texts": lambda n: np.where(n == 2, None, n.astype(str)),
    "missing categories": lambda n: pd.Categorical.from_codes(n - 1, ["b", "a", "c"]),
    "cut with holes": lambda n: pd.cut(n.astype(float), [0.5, 9]),
    "times": lambda n: pd.to_datetime("2024-01-01") + pd.to_timedelta(n, "D"),
    "NaT": lambda n: pd.to_datetime(np.where(n == 1, None, "2024-01-01")),
    "complex": lambda n: n + 1j,
    "bytes": lambda n: [bytes([k + 65]) for k in n],
    "ragged lists": lambda n: [[int(k)] * (1 + int(k == 2)) for k in n],
    "mixed": lambda n: [int(k) if k else "a" for k in n],
    "timedelta": lambda n: pd.to_timedelta(n, "D"),
}
NUMBERS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, m: rng.normal(size=m),
    "small": lambda rng, m: 1e-30 * rng.normal(size=m),
    "integers": lambda rng, m: rng.integers(-5, 50, m),
    "seconds": lambda rng, m: 1_700_000_000 + rng.integers(0, 10_000, m),
    "beyond 2^53": lambda rng, m: 2**60 + rng.integers(0, 50, m),
    "unsigned": lambda rng, m: np.uint64(2**63) + rng.integers(0, 50, m).astype(np.uint64),
    "constant": lambda rng, m: np.full(m, 3.25),
    "truth values": lambda rng, m: rng.random(m) < 0.4,
}
WRONG = {"NaN": np.nan, "infinity": np.inf, "too large": 8e299}


def tables(rng: np.random.Generator, folder: Path, container: str) -> Case:
    """A table in a container, "csv", "parquet", "pandas" or "huggingface"."""
    folder.mkdir(parents=True)
    frame, kinds, fault = _draw_frame(rng, can_be_typed=container != "csv")
    form, plain, declared, sizes = container, frame.apply(_plain_column), None, [len(frame)]
    names = {"label": LABEL, "client": CLIENT if CLIENT in frame else ""}
    path = folder / "d.parquet"
    try:
        if container == "csv":
            path, sep, encoding, options = _write_csv(frame, rng, folder)
            form, plain = f"{path.name} {sep!r} {encoding} {options}", _read_plainly(path, list(frame), sep, encoding)
        elif container == "parquet":
            frame.to_parquet(path, index=bool(rng.random() < 0.5))
        elif container == "huggingface":
            sizes = [len(frame)] if rng.random() < 0.4 else [len(frame) - 10, 10]
            declared, broken = save_splits(frame, sizes, rng, folder)
            fault = fault or broken
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):  # has no such type
        container, sizes = "pandas", [len(frame)]
    fault = fault or _find_fault(plain, kinds, container)
    read = {
        "pandas": partial(fedsim.from_pandas, frame, **names),
        "huggingface": partial(huggingface.huggingface, 0, path=str(folder), **names),
    }.get(container, partial(table.table, 0, path=str(path), **names))
    parts = []
    if not fault:
        values = _features(plain.drop(columns=[LABEL, CLIENT], errors="ignore")), *number_names(plain, declared)
        parts = [Truth(*part) for part in zip(*(np.split(v, np.cumsum(sizes)[:-1]) for v in values), strict=True)]
    return Case(f"{form}, {len(frame)} rows, {kinds}", fault, read, parts, CLIENT in frame)


def _draw_frame(rng: np.random.Generator, can_be_typed: bool) -> tuple[pd.DataFrame, dict[str, str], str]:
    """The frame, the kind of each column, and a fault."""
    m, columns, kinds, fault = int(rng.integers(24, 60)), {}, {}, ""
    for name in [LABEL, *[CLIENT] * (rng.random() < 0.7), *[f"f{i}" for i in range(int(rng.integers(1, 4)))]]:
        is_number, numbers = name.startswith("f") and rng.random() < 0.8, rng.permutation(np.arange(m) % 4)
        names = pick(rng, NAMES)
        kind = pick(rng, NUMBERS) if is_number else repr(names)
        values = NUMBERS[kind](rng, m) if is_number else rng.choice(names, m)
        if name == LABEL and rng.random() < 0.1:
            kind, values = "targets", np.round(rng.normal(size=m), 2)
        elif can_be_typed and rng.random() < 0.3:
            kind = pick(rng, TYPED if rng.random() < 0.7 else REFUSED)
            values = (TYPED | REFUSED)[kind](numbers)
        elif is_number and rng.random() < 0.05:
            kind = pick(rng, WRONG)
            values = np.where(np.arange(m) == 3, WRONG[kind], rng.normal(size=m))
        fault = f"{name} is {kind}" if kind in REFUSED or kind in WRONG else fault
        columns[name], kinds[name] = values, kind
    return pd.DataFrame({name: columns[name] for name in rng.permutation(list(columns))}), kinds, fault


def _write_csv(frame: pd.DataFrame, rng: np.random.Generator, folder: Path) -> tuple[Path, str, str, dict[str, Any]]:
    """The path, separator, encoding and further options."""
    sep, encoding = pick(rng, ",,;\t|"), pick(rng, ["utf-8", "utf-8", "utf-8-sig", "utf-16"])
    suffix = pick(rng, [".csv", ".csv", ".CSV", ".csv.gz", ".csv.bz2", ".tsv" if sep == "\t" else ".csv"])
    options = {
        "quoting": pick(rng, [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
        "lineterminator": pick(rng, ["\n", "\r\n"]),
        "index": bool(rng.random() < 0.2),
    }
    frame.to_csv(folder / f"d{suffix}", sep=sep, encoding=encoding, **options)
    return folder / f"d{suffix}", sep, encoding, options


def save_splits(
    frame: pd.DataFrame, sizes: list[int], rng: np.random.Generator, folder: Path, pictures: Any = None
) -> tuple[list[str] | None, str]:
    """Saves rows as splits, with texts as class names in some; returns the classes that train declares, and a fault."""
    import datasets

    declared, splits, fault = None, {}, ""
    add = lambda split, column, values, kind: datasets.concatenate_datasets(
        [split, datasets.Dataset.from_dict({column: values}, datasets.Features({column: kind}))], axis=1
    )
    for name, rows in zip(("train", "test"), np.split(np.arange(len(frame)), np.cumsum(sizes)[:-1]), strict=False):
        part = frame.iloc[rows].reset_index(drop=True)
        split = datasets.Dataset(pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata())
        for column in part:
            values = part[column].tolist()
            if not all(isinstance(value, str) for value in values) or rng.random() < 0.3 or LABEL not in frame:
                continue
            names = rng.permutation(np.unique(values)).tolist()  # in another order in each split
            numbers = [names.index(value) for value in values]
            if column == LABEL and rng.random() < 0.05:
                numbers[0], fault = -1, "no label"
            split = add(split.remove_columns(column), column, numbers, datasets.ClassLabel(names=names))
            declared = names if column == LABEL and name == "train" else declared
        split = split.select_columns(list(part)) if name == "train" else split  # in another order in the test split
        if pictures is not None:
            split = add(
                split, "image", [pictures[row] for row in rows], datasets.Image(decode=bool(rng.random() < 0.8))
            )
        elif name == "test" and rng.random() < 0.05 and LABEL in frame:
            split, fault = split.add_column("more", [1] * len(split)), "a column of one split"
        splits[name] = split
    datasets.disable_progress_bars()
    (datasets.DatasetDict(splits) if len(splits) > 1 else splits["train"]).save_to_disk(folder)
    return declared, fault


def _read_plainly(path: Path, columns: list[str], sep: str, encoding: str) -> pd.DataFrame:
    """The columns as pandas reads them: names as texts, others as numbers or truth values if these merge no texts."""
    plain, names = (pd.read_csv(path, sep=sep, encoding=encoding, dtype=dtype) for dtype in (None, str))
    for name in columns:
        texts = names[name].str.strip()
        is_whole = texts.dropna().str.fullmatch(r"-?\d+").all()
        merges = is_whole and texts.nunique() > texts.dropna().map(int).nunique()
        is_number = pd.api.types.is_numeric_dtype(plain[name]) and np.isfinite(plain[name].dropna()).all()
        is_usual = name not in (LABEL, CLIENT) and (plain[name].dtype == bool or (is_number and not merges))
        plain[name] = plain[name] if is_usual else texts
    labels = plain[LABEL].dropna().tolist()
    for convert in (float, int):  # labels are numbers if all are written as Python writes these
        with contextlib.suppress(ValueError):
            if all(repr(convert(text)) == text != "inf" for text in labels):
                plain[LABEL] = plain[LABEL].map(convert, na_action="ignore")
                break
    return plain[columns]


def _plain_column(column: pd.Series) -> pd.Series:
    """Numbers and texts as Python has them; also intervals and periods, which are texts."""
    return pd.Series([str(value) if isinstance(value, pd.Interval | pd.Period) else value for value in column])


def _find_fault(plain: pd.DataFrame, kinds: dict[str, str], container: str) -> str:
    """Why the table must be refused: missing cells, and what a container has no or two names for."""
    for name, column in plain.items():
        kind, is_name = kinds[str(name)], name in (LABEL, CLIENT)
        is_missing = column.isna() | (is_name & column.map(lambda value: not str(value).strip()))
        in_csv = "' a'" in kind or ("12:00" in kind and not is_name) or ("'1.'" in kind and name == LABEL)
        if is_missing.any() or {"csv": in_csv, "parquet": kind == "periods"}.get(container):
            return f"{name} is {kind}"
    return ""


def number_names(plain: pd.DataFrame, declared: list[str] | None) -> tuple[np.ndarray, np.ndarray]:
    """Labels [M], classes in sorted order or as declared, and clients [M]."""
    labels = np.asarray(plain[LABEL].tolist())
    order = list(dict.fromkeys([*(declared or []), *np.unique(labels)]))
    is_target = labels.dtype.kind != "U" and any(label % 1 for label in labels)
    y = labels.astype(float) if is_target else np.asarray([order.index(label) for label in labels])
    names = np.asarray(plain[CLIENT].tolist()) if CLIENT in plain else 0 * y
    return y, np.unique(names, return_inverse=True)[1]


def _features(plain: pd.DataFrame) -> np.ndarray:
    """One column for numbers, standardized, and one for each value of a text."""
    parts = []
    for name in plain:
        values = plain[name].tolist()
        if isinstance(values[0], str):
            parts.append((np.asarray(values)[:, None] == np.unique(values)).astype(float))
        elif isinstance(values[0], bool):
            parts.append(np.asarray(values, float))
        else:
            differences = np.asarray([float(value - values[0]) for value in values])  # exact for integers
            spread = differences.std() if np.ptp(differences) else 1.0
            parts.append((differences - differences.mean()) / spread)
    return np.column_stack(parts)
