"""Data sets that tensorflow-datasets (TFDS) has prepared in array_record, read without TensorFlow.

A record is a client with its examples (`client_id`, `x`, `y`, as fedsim's builders write), or a labeled image
(`image`, `label`, as in any image set of TFDS).
"""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedsim.datasets.cache import cached
from fedsim.datasets.natural_clients import concatenate_clients
from fedsim.datasets.portions import Spool, take
from fedsim.datasets.raw import RawDataset
from fedsim.errors import ConfigError, DataError, expand_user, import_extra, pip_install

NAME = re.compile(r"\w[\w.-]*(/\w[\w.+-]*)*")
IMAGES_PER_READ = 100  # one at a time, reading takes longer than decoding
TFDS_MODULES = ("tensorflow_datasets", "array_record", "importlib_resources", "PIL")  # of the extra `data`


def cifar10(seed: int) -> RawDataset:
    """CIFAR-10: 50,000 + 10,000 images in ten classes."""
    return load("cifar10")


def femnist(seed: int) -> RawDataset:
    """FEMNIST: handwritten digits and letters, each writer a client."""
    return load("femnist")


def shakespeare(seed: int) -> RawDataset:
    """Shakespeare: windows of text and the next character, each speaking role a client; not split."""
    return load("shakespeare")


def tfds(
    seed: int, *, name: Annotated[str, "an image set of tensorflow-datasets, such as kmnist or emnist/letters"] = ""
) -> RawDataset:
    """The image set `name` of tensorflow-datasets. Raises `ConfigError` if `name` is empty."""
    if not name:
        raise ConfigError('tfds.name: must name a data set of tensorflow-datasets, such as "kmnist", got ""')
    return load(name)


def directory() -> Path:
    """The folder of prepared data sets: `TFDS_DATA_DIR`, by default ~/tensorflow_datasets."""
    return expand_user(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def find_folder(name: str) -> Path | None:
    """The folder of the newest prepared version of `name`, such as mnist or emnist/letters; None if there is none.

    Raises `DataError` if `name` cannot be a data set's.
    """
    name = resolve_name(name)
    if not NAME.fullmatch(name):
        raise DataError(f'name: must be like kmnist or emnist/letters, got "{name}"')
    folders = [path.parent for path in directory().glob(f"{name}/*/dataset_info.json")]
    version = lambda folder: [int(part) for part in folder.name.split(".") if part.isdigit()]
    return max(folders, key=version, default=None)


def resolve_name(name: str) -> str:
    """`name`, with the default split if it is EMNIST without one."""
    return "emnist_balanced" if name == "emnist" else name


def require_tfds() -> None:
    """Raises `DataError` if tensorflow-datasets, or what it needs to read its files, is not installed."""
    for module in TFDS_MODULES:
        import_extra(module, DataError, f"this needs tensorflow-datasets; {pip_install('data')} ({{error}})")


def load(name: str) -> RawDataset:
    """The prepared data set `name`, decoded the first time and then cached.

    Raises `DataError` if it is not prepared, or broken.
    """
    name = resolve_name(name)
    folder = find_folder(name)
    if folder is None:
        raise DataError(f"{name} is not prepared in {directory()}; run `fedsim data prepare {name}`")
    return cached(folder, lambda: _decode(name, folder))


def _decode(name: str, folder: Path) -> RawDataset:
    require_tfds()
    import tensorflow_datasets

    logging.getLogger("absl").setLevel(logging.ERROR)  # TFDS recommends OpenCV
    try:
        builder = tensorflow_datasets.builder_from_directory(folder)
        features = builder.info.features or {}
        if "client_id" in features:
            return _read_clients(name, builder)
        if "image" in features and "label" in features:
            return _read_images(name, builder)
    except DataError:
        raise
    except Exception as error:  # TFDS, array_record and protobuf raise various types
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{folder}: broken: {reason}; run `fedsim data prepare {name} --force`") from None
    raise DataError(f"{folder}: must have the features image and label, got {sorted(features)}")


def _read_records(builder: Any, split: str, num_at_once: int = 1) -> Iterator[Any]:
    """All records of a split, `num_at_once` of them read together. Raises `DataError` if some are missing."""
    if split not in builder.info.splits:
        return
    source, expected = builder.as_data_source(split), builder.info.splits[split].num_examples
    if len(source) != expected:
        raise DataError(f"{builder.data_path}: must have {expected} {split} records, got {len(source)}")
    for start in range(0, expected, num_at_once):
        yield from source.__getitems__(range(start, min(start + num_at_once, expected)))


def _read_clients(name: str, builder: Any) -> RawDataset:
    labels, inputs = (builder.info.metadata[key] for key in ("label_names", "inputs"))
    read = lambda split: ((r["client_id"].decode(), r["x"], r["y"]) for r in _read_records(builder, split))
    raw = concatenate_clients(name, read("train"), read("test"), inputs=inputs, num_classes=len(labels))
    return replace(raw, label_names=np.asarray(labels))


def _read_images(name: str, builder: Any) -> RawDataset:
    label = builder.info.features["label"]
    arrays = {}
    for split in ("train", "test"):
        spool, labels, ids = Spool(), [], []
        for record in _read_records(builder, split, IMAGES_PER_READ):
            if spool.shape not in (None, record["image"].shape):
                raise DataError(f"{builder.data_path}: images must have one size, got several")
            spool.append(record["image"][None])
            labels.append(record["label"])
            ids.append(record.get("id", b""))  # TFDS shuffles what it writes
        if not labels:
            raise DataError(f"{builder.data_path}: must have the splits train and test, got no {split}")
        order = np.asarray(sorted(range(len(ids)), key=ids.__getitem__))
        arrays[split] = take(spool.array(), order), np.asarray(labels, np.int32)[order]
    names = np.asarray(label.names)
    return RawDataset(name, *arrays["train"], *arrays["test"], label.num_classes, "image", label_names=names)
