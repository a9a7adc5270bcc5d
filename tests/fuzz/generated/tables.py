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
from tests.fuzz.generated.folders import save

LABEL, CLIENT = "diag", "site"


def tables(rng: np.random.Generator, folder: Path, container: str) -> Case:
    """A table in a container, "csv", "parquet", "pandas" or "huggingface"."""
    folder.mkdir(parents=True)
    frame, kinds = _draw_frame(rng, can_be_typed=container != "csv")
    plain, declared, fault = frame.apply(_native), None, ""
    sizes, client = [len(frame)], CLIENT if CLIENT in frame else ""
    names = {"label": LABEL, "client": client}
    if container == "csv":
        path, form = _write_csv(frame, rng, folder)
        plain, read = _read_plainly(path, list(frame)), partial(table.table, 0, path=str(path), **names)
    elif container == "pandas":
        form, read = container, partial(fedsim.from_pandas, frame, **names)
    else:
        form = container
        try:
            if container == "parquet":
                frame.to_parquet(folder / "d.parquet", index=bool(rng.random() < 0.5))
                read = partial(table.table, 0, path=str(folder / "d.parquet"), **names)
            else:
                sizes, declared, fault = _save_splits(frame, rng, folder)
                read = partial(huggingface.huggingface, 0, path=str(folder), **names)
        except (pa.ArrowException, TypeError, ValueError, NotImplementedError):  # has no such type
            form, read = "pandas", partial(fedsim.from_pandas, frame, **names)
    fault = fault or _find_fault(plain, kinds, form.partition(" ")[0])
    form += f", {len(frame)} rows, {kinds}"
    parts = [] if fault else _truth(plain, client, sizes, declared)
    return data_case(form, fault, read, parts, bool(client))


def _draw_frame(rng: np.random.Generator, can_be_typed: bool) -> tuple[pd.DataFrame, dict[str, str]]:
    """The frame and the kind of each column."""
    m, columns, kinds = int(rng.integers(24, 60)), {}, {}
    for name in [LABEL, *[CLIENT] * (rng.random() < 0.7), *[f"f{i}" for i in range(int(rng.integers(1, 4)))]]:
        is_number = name.startswith("f") and rng.random() < 0.8
        kind = pick(rng, NUMBERS if rng.random() < 0.93 else WRONG) if is_number else pick(rng, NAMES)
        values = (NUMBERS | WRONG)[kind](rng, m) if is_number else rng.choice(NAMES[kind], m)
        if name == LABEL and rng.random() < 0.1:
            kind, values = "targets", np.round(rng.normal(size=m), 2)
        if can_be_typed and rng.random() < 0.3:
            kind, numbers = pick(rng, TYPED if rng.random() < 0.7 else REFUSED), rng.integers(0, 4, m)
            numbers[:4] = np.arange(4)
            values = (TYPED | REFUSED)[kind](numbers)
        columns[name], kinds[name] = values, kind
    return pd.DataFrame({name: columns[name] for name in rng.permutation(list(columns))}), kinds


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
    return path, f"csv {path.name} {options | {'encoding': encoding}}"


def _save_splits(frame: pd.DataFrame, rng: np.random.Generator, folder: Path) -> tuple[list[int], Any, str]:
    """Sizes of the splits, the class names that the first declares, and the fault; texts are named classes in some."""
    m, declared, splits, fault = len(frame), None, {}, ""
    sizes = [m] if rng.random() < 0.4 else [m - 10, 10]
    for name, rows in zip(("train", "test"), np.split(np.arange(m), [sizes[0]]), strict=False):
        if not len(rows):
            continue
        part = frame.iloc[rows].reset_index(drop=True)
        split = datasets.Dataset(pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata())
        for column in part:
            values = part[column].tolist()
            if not all(isinstance(value, str) for value in values) or rng.random() < 0.5:
                continue
            names = rng.permutation(np.unique(values)).tolist()  # in another order in each split
            numbers = [names.index(value) for value in values]
            if column == LABEL and rng.random() < 0.1:
                numbers, fault = [-1, *numbers[1:]], "no label"
            features = datasets.Features({column: datasets.ClassLabel(names=names)})
            named = datasets.Dataset.from_dict({column: numbers}, features=features)
            split = datasets.concatenate_datasets([split.remove_columns(column), named], axis=1)
            split = split.select_columns(list(part)) if name == "train" else split  # order of the features
            declared = names if column == LABEL and name == "train" else declared
        if name == "test" and rng.random() < 0.1:
            split, fault = split.add_column("more", [1] * len(split)), "a column of one split"
        splits[name] = split
    save(splits, folder)
    return sizes, declared, fault


def _read_plainly(path: Path, columns: list[str]) -> pd.DataFrame:
    """The columns as pandas reads them: names as texts, others as numbers or truth values if these merge no texts."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    sep = max(",;\t|", key=text.splitlines()[0].count)
    plain, names = (pd.read_csv(io.StringIO(text), sep=sep, dtype=dtype) for dtype in (None, str))
    for name in columns:
        names[name] = names[name].str.strip()
        is_number = pd.api.types.is_numeric_dtype(plain[name]) and np.isfinite(plain[name].dropna()).all()
        is_usual = plain[name].dtype == bool or (is_number and not _merges(names[name].dropna()))
        plain[name] = plain[name] if is_usual and name not in (LABEL, CLIENT) else names[name]
    plain[LABEL] = _as_written(plain[LABEL])
    return plain[columns]


def _merges(texts: pd.Series) -> bool:
    """Whether two texts are one whole number: then they are names."""
    return texts.str.fullmatch(r"-?\d+").all() and texts.nunique() > texts.map(int).nunique()


def _as_written(texts: pd.Series) -> pd.Series:
    """Texts as numbers if all are written as Python writes these."""
    for convert in (int, float):
        with contextlib.suppress(ValueError):
            numbers = [convert(text) for text in texts.dropna()]
            if [repr(number) for number in numbers] == texts.dropna().tolist() and max(map(abs, numbers)) < np.inf:
                return texts.map(convert, na_action="ignore")
    return texts


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
    """Why the table must be refused."""
    for name, column in plain.items():
        kind, is_name = kinds[str(name)], name in (LABEL, CLIENT)
        is_blank = is_name & column.map(lambda value: not str(value).strip())
        is_hard = {
            "csv": kind == "outer spaces" or (kind == "times" and not is_name) or (kind == "dots" and name == LABEL),
            "parquet": kind == "periods",
        }
        if kind in REFUSED | WRONG or is_hard.get(container) or (column.isna() | is_blank).any():
            return f"{name} is {kind}"
    return ""


def _truth(plain: pd.DataFrame, client: str, sizes: list[int], declared: list[str] | None) -> list[Truth]:
    """The examples of each split: classes are numbered in sorted order, or as declared."""
    x = _features(plain.drop(columns=[LABEL, *filter(None, [client])]))
    names = np.asarray(plain[LABEL].tolist())
    is_target = names.dtype.kind == "f" and np.any(names % 1)
    y = names if is_target else np.unique(names, return_inverse=True)[1]
    if declared:
        order = list(dict.fromkeys([*declared, *sorted(names)]))
        y = np.asarray([order.index(name) for name in names])
    owner = np.unique(np.asarray(plain[client].tolist()), return_inverse=True)[1] if client else np.zeros(len(y), int)
    cuts = np.cumsum(sizes)[:-1]
    parts = zip(*(np.split(values, cuts) for values in (x, y, owner)), strict=True)
    return [Truth(*part) for part in parts]


def _features(plain: pd.DataFrame) -> np.ndarray:
    """One column for numbers, standardized, and one for each value of a text."""
    parts = []
    for _, column in plain.items():
        if column.dtype in (bool, "boolean"):
            parts.append(column.to_numpy(float)[:, None])
        elif pd.api.types.is_numeric_dtype(column) or isinstance(column.iloc[0], decimal.Decimal):
            is_exact = column.dtype.kind in "iuO"
            exact = np.asarray([int(v) for v in column], object) if is_exact else column.to_numpy(float)
            shifted = (exact - exact[0]).astype(float)
            spread = shifted.std() if shifted.min() < shifted.max() else 1.0
            parts.append(((shifted - shifted.mean()) / spread)[:, None])
        else:
            texts = column.astype(str).to_numpy(str)
            parts.append((texts[:, None] == np.unique(texts)).astype(float))
    return np.concatenate(parts, axis=1)
