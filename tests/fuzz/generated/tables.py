"""Tables as CSV, Parquet, pandas frames and Hugging Face folders, with what a plain reading by pandas gives."""

import contextlib
import csv
import decimal
import gzip
import io
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa

import fedsim
from fedsim.datasets import huggingface, table
from tests.fuzz.generated.cases import Case, Truth, data_case, pick
from tests.fuzz.generated.columns import NAMES, NUMBERS, REFUSED, TYPED, WRONG

LABEL, CLIENT = "diag", "site"


def tables(rng: np.random.Generator, folder: Path, container: str) -> Case:
    """A table in a container, "csv", "parquet", "pandas" or "huggingface"."""
    folder.mkdir(parents=True)
    frame, kinds, fault = _draw_frame(rng, can_be_typed=container != "csv")
    form, plain, declared, sizes = container, frame.apply(_native), None, [len(frame)]
    names = {"label": LABEL, "client": CLIENT if CLIENT in frame else ""}
    path = folder / "d.parquet"
    try:
        if container == "csv":
            path, form = _write_csv(frame, rng, folder)
            plain = _read_plainly(path, list(frame))
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
    return data_case(f"{form}, {len(frame)} rows, {kinds}", fault, read, parts, CLIENT in frame)


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


def _write_csv(frame: pd.DataFrame, rng: np.random.Generator, folder: Path) -> tuple[Path, str]:
    options = {
        "sep": pick(rng, ",,;\t|"),
        "quoting": pick(rng, [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
        "lineterminator": pick(rng, ["\n", "\r\n"]),
        "index": bool(rng.random() < 0.2),
    }
    encoding = pick(rng, ["utf-8", "utf-8", "utf-8-sig", "utf-16"])
    suffix = pick(rng, [".csv", ".csv", ".CSV", ".csv.gz", ".tsv" if options["sep"] == "\t" else ".csv"])
    content, path = frame.to_csv(None, **options).encode(encoding), folder / f"d{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    return path, f"{path.name} {options | {'encoding': encoding}}"


def save_splits(
    frame: pd.DataFrame, sizes: list[int], rng: np.random.Generator, folder: Path, pictures: Any = None
) -> tuple[list[str] | None, str]:
    """Saves rows as splits, with texts as class names in some; returns the classes that train declares, and a fault."""
    declared, splits, fault = None, {}, ""
    for name, rows in zip(("train", "test"), np.split(np.arange(len(frame)), np.cumsum(sizes)[:-1]), strict=False):
        part = frame.iloc[rows].reset_index(drop=True)
        split = datasets.Dataset(pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata())
        add = lambda column, values, kind, split: datasets.concatenate_datasets(
            [split, datasets.Dataset.from_dict({column: values}, datasets.Features({column: kind}))], axis=1
        )
        for column in part:
            values = part[column].tolist()
            if not all(isinstance(value, str) for value in values) or rng.random() < 0.5:
                continue
            names = rng.permutation(np.unique(values)).tolist()  # in another order in each split
            numbers = [names.index(value) for value in values]
            if column == LABEL and rng.random() < 0.05:
                numbers[0], fault = -1, "no label"
            split = add(column, numbers, datasets.ClassLabel(names=names), split.remove_columns(column))
            declared = names if column == LABEL and name == "train" else declared
        split = split.select_columns(list(part)) if name == "train" else split  # in another order in the test split
        if name == "test" and rng.random() < 0.05:
            split, fault = split.add_column("more", [1] * len(split)), "a column of one split"
        splits[name] = (
            split if pictures is None else add("image", pictures[rows[0] :][: len(rows)], datasets.Image(), split)
        )
    datasets.disable_progress_bars()
    (datasets.DatasetDict(splits) if len(splits) > 1 else splits["train"]).save_to_disk(folder)
    return declared, fault


def _read_plainly(path: Path, columns: list[str]) -> pd.DataFrame:
    """The columns as pandas reads them: names as texts, others as numbers or truth values if these merge no texts."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    sep = max(",;\t|", key=text.splitlines()[0].count)
    plain, names = (pd.read_csv(io.StringIO(text), sep=sep, dtype=dtype) for dtype in (None, str))
    for name in columns:
        texts = names[name].str.strip()
        is_whole = texts.dropna().str.fullmatch(r"-?\d+").all()
        merges = is_whole and texts.nunique() > texts.dropna().map(int).nunique()
        is_number = pd.api.types.is_numeric_dtype(plain[name]) and np.isfinite(plain[name].dropna()).all()
        is_usual = name not in (LABEL, CLIENT) and (plain[name].dtype == bool or (is_number and not merges))
        plain[name] = plain[name] if is_usual else texts
    for convert in (float, int):  # labels are numbers if all are written as Python writes these
        with contextlib.suppress(ValueError):
            numbers = [convert(text) for text in plain[LABEL].dropna()]
            if [repr(number) for number in numbers] == plain[LABEL].dropna().tolist() and max(
                map(abs, numbers)
            ) < np.inf:
                plain[LABEL] = plain[LABEL].map(convert, na_action="ignore")
                break
    return plain[columns]


def _native(column: pd.Series) -> pd.Series:
    """The column as pandas can group it: dense, of this machine's byte order, categories as their values."""
    kind = column.dtype
    if isinstance(kind, pd.SparseDtype):
        return column.sparse.to_dense()
    if isinstance(kind, pd.CategoricalDtype):
        return column.astype(str if isinstance(kind.categories.dtype, pd.IntervalDtype) else kind.categories.dtype)
    if isinstance(kind, pd.PeriodDtype):
        return column.astype(str)
    return column.astype(kind.newbyteorder("=")) if getattr(kind, "byteorder", "=") == ">" else column


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
    is_target = labels.dtype.kind == "f" and np.any(labels % 1)
    y = labels if is_target else np.asarray([order.index(label) for label in labels])
    names = np.asarray(plain[CLIENT].tolist()) if CLIENT in plain else 0 * y
    return y, np.unique(names, return_inverse=True)[1]


def _features(plain: pd.DataFrame) -> np.ndarray:
    """One column for numbers, standardized, and one for each value of a text."""
    parts = []
    for _, column in plain.items():
        if column.dtype in (bool, "boolean"):
            parts.append(column.to_numpy(float))
        elif pd.api.types.is_numeric_dtype(column) or isinstance(column.iloc[0], decimal.Decimal):
            is_exact = column.dtype.kind in "iuO"
            exact = np.asarray([int(v) for v in column], object) if is_exact else column.to_numpy(float)
            shifted = (exact - exact[0]).astype(float)
            spread = shifted.std() if shifted.min() < shifted.max() else 1.0
            parts.append((shifted - shifted.mean()) / spread)
        else:
            texts = column.astype(str).to_numpy(str)
            parts.append((texts[:, None] == np.unique(texts)).astype(float))
    return np.column_stack(parts)
