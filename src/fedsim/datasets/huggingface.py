"""Data sets of Hugging Face: images, texts or tables from a folder saved by `save_to_disk`, or from the hub.

This needs the extra `huggingface`. Nothing is executed that comes with a data set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedsim.core.settings import Bounds
from fedsim.datasets import columns, windows
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.datasets.spool import Spool
from fedsim.errors import ConfigError, DataError, import_extra, pip_install

if TYPE_CHECKING:
    import pyarrow as pa

GRAY_MODES = ("1", "L")  # of a picture; others are converted to RGB
TRAIN, TEST = "train", "test"


def huggingface(
    seed: int,
    *,
    path: Annotated[str, "a folder saved by save_to_disk, or the name of a data set on the hub"] = "",
    subset: Annotated[str, "name of a subset on the hub; default: the only one"] = "",
    label: Annotated[str, "column of the labels, unless there are texts"] = "",
    client: Annotated[str, "column that names the client of each row; default: none"] = "",
    drop: Annotated[tuple[str, ...], "columns to leave out"] = (),
    text: Annotated[
        str, "column of texts: inputs are windows of a client's texts, labels the next character or token"
    ] = "",
    window: Annotated[int, Bounds(ge=1), "characters or tokens of an input"] = 80,
    tokenizer: Annotated[str, "file of a tokenizer (tokenizer.json) that divides texts; default: characters"] = "",
) -> RawDataset:
    """The splits train and, if there is one, test, of texts, of the only column of images, or of a table.

    A table is encoded as in `columns.encode`. Raises `ConfigError` or `DataError` if it cannot be loaded.
    """
    del seed
    if not path:
        raise ConfigError('huggingface.path: must name a folder or a data set on the hub, got ""')
    if bool(text) == bool(label):
        raise ConfigError(
            f"huggingface.label: must be {'left out with texts' if text else 'a column'}, got {label!r}; labels of "
            "texts (huggingface.text) are the next characters or tokens"
        )
    splits = _load(path, subset)
    name = Path(path).name
    if text:
        documents = {split: _documents(name, rows, text, client) for split, rows in splits.items()}
        return windows.make(name, documents[TRAIN], documents.get(TEST, {}), window, tokenizer, bool(client))
    drop = tuple(drop)
    images = _image_columns(splits[TRAIN], drop)
    if len(images) > 1:
        raise DataError(f"{name}: must have one column of images, got {', '.join(images)}; add others to drop")
    if images:
        raw = _read_images(name, splits, images[0], label, client)
    else:
        raw = columns.encode(name, _table(*splits.values()), label, client, drop)
    raw, num_train = _with_class_names(raw, splits, label), len(splits[TRAIN])
    both = replace(raw, x_test=raw.x, y_test=raw.y, test_client_ids=raw.client_ids)
    return select_examples(both, slice(num_train), slice(num_train, None))


def _load(path: str, subset: str) -> dict[str, Any]:
    """The splits train and test, as far as there are."""
    missing = f"huggingface: needs the package datasets; {pip_install('huggingface')} ({{error}})"
    datasets = import_extra("datasets", DataError, missing)
    folder = Path(path).expanduser()
    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_from_disk(folder) if folder.is_dir() else datasets.load_dataset(path, subset or None)
    except Exception as error:  # of many types
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise DataError(f"huggingface.path: {path} cannot be loaded: {reason}") from None
    splits = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {TRAIN: loaded}
    if TRAIN not in splits:
        raise DataError(f"huggingface.path: {path} must have a split train, got {', '.join(splits)}")
    return {split: splits[split] for split in (TRAIN, TEST) if split in splits}


def _table(*splits: Any) -> "pa.Table":
    """The rows of all splits. Raises `DataError` if their columns differ."""
    import pyarrow as pa

    try:
        return pa.concat_tables([rows.with_format("arrow")[:] for rows in splits])
    except pa.ArrowException:
        names = "; ".join(", ".join(rows.column_names) for rows in splits)
        raise DataError(f"huggingface.path: the splits train and test must have equal columns, got {names}") from None


def _image_columns(rows: Any, drop: Sequence[str]) -> list[str]:
    import datasets

    return [name for name, kind in rows.features.items() if isinstance(kind, datasets.Image) and name not in drop]


def _read_images(name: str, splits: Mapping[str, Any], image: str, label: str, client: str) -> RawDataset:
    table = _table(*(rows.remove_columns([image]) for rows in splits.values()))
    y, classes, client_ids, clients = columns.targets(name, table, label, client)
    spool = Spool()
    for rows in splits.values():
        for row in rows.select_columns([image]):
            pixels = _pixels(name, row[image])
            if spool.shape not in (None, pixels.shape):
                raise DataError(f"{name}: images must have one shape, got {spool.shape} and {pixels.shape}")
            spool.append(pixels[None])
    x = spool.array()
    num_classes = 0 if classes is None else len(classes)
    return RawDataset(name, x, y, x[:0], y[:0], num_classes, "image", client_ids, None, clients, classes)


def _pixels(name: str, picture: Any) -> np.ndarray:
    """[height, width, channels] uint8."""
    if picture is None:
        raise DataError(f"{name}: every row must have an image, got none")
    pixels = np.asarray(picture.convert("L" if picture.mode in GRAY_MODES else "RGB"))
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _with_class_names(raw: RawDataset, splits: Mapping[str, Any], label: str) -> RawDataset:
    """`raw` with the numbers and names that the data set itself gives its classes, if it does."""
    import datasets

    kind = splits[TRAIN].features[label]
    if not isinstance(kind, datasets.ClassLabel):
        return raw
    y = np.concatenate([_table(rows.select_columns([label])).column(label).to_numpy() for rows in splits.values()])
    return replace(raw, y=y, y_test=y[:0], num_classes=kind.num_classes, label_names=np.asarray(kind.names))


def _documents(name: str, rows: Any, text: str, client: str) -> dict[str, str]:
    """The texts of each client, one after another; of a client without a name if `client` is empty."""
    table = _table(rows)
    columns.require_column(name, table, "text", text)
    texts = table.column(text).to_pylist()
    if not all(isinstance(value, str) for value in texts):
        raise DataError(f"{name}: text {text} must have a text in every row, got type {table.column(text).type}")
    if not client:
        return {"": "\n".join(texts)}
    columns.require_column(name, table, "client", client)
    names, numbers = columns.clients(name, table.column(client), client)
    parts: dict[str, list[str]] = {}
    for number, value in zip(numbers, texts, strict=True):
        parts.setdefault(str(names[number]), []).append(value)
    return {owner: "\n".join(values) for owner, values in parts.items()}
