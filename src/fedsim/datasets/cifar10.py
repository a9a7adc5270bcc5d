"""The official files of CIFAR-10: 50,000 + 10,000 images of 32x32x3 in ten classes.

A. Krizhevsky: "Learning Multiple Layers of Features from Tiny Images", 2009,
https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedsim.datasets import archives
from fedsim.datasets.download import Download

ARCHIVE = Download("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "md5", "c58f30108f718f92721af3b95e74349a")

LABELS = "airplane automobile bird cat deer dog frog horse ship truck".split()  # noqa: SIM905
BATCHES = {
    "train": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
}


def read(source: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [50,000 or 10,000, 32, 32, 3] uint8 and labels, by split, in the official order.

    `source` is the archive of the python version, or a folder with it, with its unpacked files or with these as `.xz`.
    Raises `DataError` if a file is missing or is not the official one.
    """
    return read_pickles(source, "CIFAR-10", ARCHIVE, BATCHES, b"labels")


def read_pickles(
    source: Path, name: str, archive: Download, batches: Mapping[str, Mapping[str, str]], label: bytes
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """As `read`, from the `batches` {split: {file: MD5}} of CIFAR-10 or CIFAR-100."""
    files = archives.list_files(source, f"{name.lower()}-*.tar.gz", f"{name.lower()}-*")
    needed = f"{name}'s archive or its unpacked files ({archive.url})"
    splits = {}
    for split, md5s in batches.items():
        contents = [
            (*archives.read_file(source, files, (file, f"{file}.xz"), needed), md5) for file, md5 in md5s.items()
        ]
        parts = [archives.unpickle(source, *content) for content in contents]
        images = np.concatenate([part[b"data"] for part in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[split] = np.ascontiguousarray(images), np.concatenate([part[label] for part in parts]).astype(np.int32)
    return splits
