"""Data sets of Hugging Face: images, texts or tables from a folder saved by `save_to_disk`, or from the hub.

This needs the extra `huggingface`. Nothing is executed that comes with a data set.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedsim.core.settings import Bounds
from fedsim.datasets import windows
from fedsim.datasets.pictures import decode, stack
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.datasets.table import HAS_TEXT
from fedsim.errors import ConfigError, DataError, expand_user, import_extra, pip_install, reason

if TYPE_CHECKING:
    import polars as pl


def huggingface(
    seed: int,
    *,
    path: Annotated[str, "a folder saved by save_to_disk, or the name of a data set on the hub"] = "",
    train_split: Annotated[str, "name of the split of training examples"] = "train",
    test_split: Annotated[str, "name of the split of test examples, such as validation, if there is one"] = "test",
    subset: Annotated[str, "name of a subset on the hub; default: the only one"] = "",
    label: Annotated[str, "column of the labels; of texts by default the next character or token"] = "",
    client: Annotated[str, "column that names the client of each row; default: none"] = "",
    drop: Annotated[tuple[str, ...], "columns to leave out"] = (),
    text: Annotated[
        str, "column of texts: inputs are windows of a client's texts, or with a label each text's first tokens"
    ] = "",
    window: Annotated[int, Bounds(ge=1), HAS_TEXT, "characters or tokens of an input"] = 80,
    tokenizer: Annotated[
        str, HAS_TEXT, "file of a tokenizer (tokenizer.json) that divides texts; default: characters"
    ] = "",
) -> RawDataset:
    """The training split and, if there is one, the test split, of texts, of the only column of images, or of a table.

    A table is encoded as in `columns.encode`. Raises `ConfigError` or `DataError` if it cannot be loaded.
    """
    from fedsim.datasets.columns import encode, encode_texts

    if not path:
        raise ConfigError('huggingface.path: must name a folder or a data set on the hub, got ""')
    if not text and not label:
        raise ConfigError(
            "huggingface.label: must be a column, got none; only texts (huggingface.text) need none: the next "
            "characters or tokens are their labels"
        )
    loaded = _load(path, subset, train_split)
    if test_split != "test" and test_split not in loaded:
        raise DataError(f"huggingface.test_split: must be a split of {path} ({', '.join(loaded)}), got {test_split}")
    name, used = Path(path).absolute().name, [train_split, *({test_split} & loaded.keys() - {train_split})]
    splits = {part: loaded[split] for part, split in zip(("train", "test"), used, strict=False)}
    notes = tuple(f"{name}: the split {split} is not used" for split in loaded if split not in used)
    if text and not label:
        documents = {split: _documents(name, split, rows, text, client) for split, rows in splits.items()}
        raw = windows.make(name, documents["train"], documents.get("test", {}), window, tokenizer, bool(client))
        return replace(raw, notes=raw.notes + notes)
    import datasets

    known = dict.fromkeys(itertools.chain(*(rows.features for rows in splits.values())))
    if unknown := next((column for column in drop if column not in known), ""):
        raise DataError(f"{name}: drop must name columns ({', '.join(known)}), got {unknown}")
    unused = {*drop} - {text, label, client}
    splits = {part: rows.remove_columns(sorted(unused & {*rows.features})) for part, rows in splits.items()}
    kinds = splits["train"].features
    images = [column for column in kinds if isinstance(kinds[column], datasets.Image)]
    if len(images) > 1 and not text:
        raise DataError(f"{name}: must have one column of images, got {', '.join(images)}; add others to drop")
    if text:
        raw = encode_texts(name, _table(name, splits), text, label, client, window, tokenizer)
    elif images:
        raw = _read_images(name, splits, images[0], label, client)
    else:
        raw = encode(name, _table(name, splits), label, client)
    raw, num_train = _with_class_names(raw, splits, label), len(splits["train"])
    both = replace(raw, x_test=raw.x, y_test=raw.y, test_client_ids=raw.client_ids, notes=(*raw.notes, *notes))
    return select_examples(both, slice(num_train), slice(num_train, None))


def _load(path: str, subset: str, train: str) -> dict[str, Any]:
    """The splits, of which one is `train`."""
    missing = f"huggingface: needs the package datasets; {pip_install('huggingface')} ({{error}})"
    datasets = import_extra("datasets", DataError, missing)
    folder = expand_user(path)
    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_from_disk(folder) if folder.is_dir() else datasets.load_dataset(path, subset or None)
    except Exception as error:  # of many types
        raise DataError(f"huggingface.path: {path} cannot be loaded: {reason(error)}") from None
    splits = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {train: loaded}
    if train not in splits:
        got = f"got {', '.join(splits)}; set huggingface.train_split"
        raise DataError(f"huggingface.path: {path} must have a split {train}, {got}")
    return splits


def _table(name: str, splits: Mapping[str, Any], unused: Sequence[str] = ()) -> "pl.DataFrame":
    """The rows of all splits, with names in the place of class numbers. Raises `DataError` if their columns differ."""
    import datasets
    from fedsim.datasets.table_files import concatenate

    tables = []
    for split, rows in splits.items():
        for column in (column for column, kind in rows.features.items() if isinstance(kind, datasets.Image)):
            rows = rows.cast_column(column, datasets.Image(decode=False))
        table = rows.with_format("polars")[:]
        for column, kind in rows.features.items():
            if isinstance(kind, datasets.ClassLabel) and column not in unused:
                names = dict(enumerate(kind.names))
                if wrong := sorted(set(table[column].unique()) - {None, *names}):  # such as -1, for no label
                    message = f"{name}: column {column!r} must hold 0 to {len(names) - 1} in the split {split}, got "
                    raise DataError(f"{message}{wrong[0]}; leave these rows out, or the split")
                table = table.with_columns(table[column].replace_strict(names, return_dtype=str))
        tables.append(table)
    try:
        if len({frozenset(table.columns) for table in tables}) > 1:
            raise DataError(name)
        return concatenate(name, tables)
    except DataError:
        fields = [{f"{column} ({kind})" for column, kind in table.schema.items()} for table in tables]
        shown = "; ".join(", ".join(sorted(part - (fields[0] & fields[-1]))) or "no other" for part in fields)
        raise DataError(f"{name}: the splits train and test must have equal columns, got {shown}") from None


def _read_images(name: str, splits: Mapping[str, Any], image: str, label: str, client: str) -> RawDataset:
    import datasets
    from fedsim.datasets.columns import targets

    table = _table(name, {split: rows.remove_columns([image]) for split, rows in splits.items()})
    raw = targets(name, table, label, client)
    kind = datasets.Image(mode=splits["train"].features[image].mode)
    x = stack(name, _pictures(splits, image, kind))
    return replace(raw, x=x, x_test=x[:0], inputs="image")


def _pictures(splits: Mapping[str, Any], image: str, kind: Any) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    for split, rows in splits.items():
        pictures = iter(rows.select_columns([image]).cast_column(image, kind))  # decodes
        for i in range(len(rows)):
            yield f"image of row {i} of the split {split}", partial(lambda rows: decode(next(rows)[image]), pictures)


def _with_class_names(raw: RawDataset, splits: Mapping[str, Any], label: str) -> RawDataset:
    """`raw` with the classes in the order that the split train gives them, if it does, before those of test alone."""
    declared = [getattr(rows.features[label], "names", ()) for rows in splits.values()]
    if raw.label_names is None or not declared[0]:
        return raw
    names = list(dict.fromkeys([*itertools.chain(*declared), *raw.label_names]))
    y = np.asarray([names.index(label) for label in raw.label_names], np.int32)[raw.y]
    return replace(raw, y=y, y_test=y[:0], num_classes=len(names), label_names=np.asarray(names))


def _documents(name: str, split: str, rows: Any, text: str, client: str) -> dict[str, str]:
    """The texts of each client, one after another; of a client without a name if `client` is empty."""
    from fedsim.datasets.columns import clients, texts_of

    table = _table(name, {split: rows}, [column for column in rows.column_names if column not in (text, client)])
    texts = texts_of(f"{name}: split {split}", table, text)
    if not client:
        return {"": "\n".join(texts)}
    names, numbers = clients(name, table, client)
    parts: dict[str, list[str]] = {}
    for number, value in zip(numbers, texts, strict=True):
        parts.setdefault(str(names[number]), []).append(value)
    return {owner: "\n".join(values) for owner, values in parts.items()}
