"""The official files of CIFAR-10: 50,000 + 10,000 images of 32x32x3 in ten classes.

A. Krizhevsky: "Learning Multiple Layers of Features from Tiny Images", 2009,
https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf
"""

import hashlib
from pathlib import Path

import numpy as np

from fedsim.datasets import archives
from fedsim.datasets.download import Download
from fedsim.errors import DataError

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
BATCH_SIZE, PIXELS = 10_000, 3072
# SHA-256 of the sorted MD5s of all images with their labels: the same for the python and the binary form.
CONTENT = {
    "train": "e4c747cf033586a5687068aceb377210e72bd35f4f78420223b6d5d4d40d0cbd",
    "test": "e4771144d5234c9f244d47030672aac9c9cb720b56031cc63971a7f71ecacbe2",
}


def read(source: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [50,000 or 10,000, 32, 32, 3] uint8 and labels, by split, in the official order.

    `source` is the archive, python or binary, or a folder with it, with its unpacked files or with these as `.xz`.
    Raises `DataError` if a file is missing or is not the official one.
    """
    files = archives.list_files(source, "cifar-10-*.tar.gz", "cifar-10-batches-*")
    splits = {}
    for split, batches in BATCHES.items():
        parts = [read_batch(source, files, name, md5) for name, md5 in batches.items()]
        records = np.concatenate(parts)  # [M, 1 + 3072]
        digests = sorted(hashlib.md5(record.tobytes()).digest() for record in records)
        if hashlib.sha256(b"".join(digests)).hexdigest() != CONTENT[split]:
            raise DataError(f"{source}: not the official {split} images of CIFAR-10; a file was altered")
        images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[split] = np.ascontiguousarray(images), records[:, 0].astype(np.int32)
    return splits


def read_batch(source: Path, files: archives.Files, name: str, md5: str) -> np.ndarray:
    """Label and pixels of each image of a batch in any form, [10,000, 3073] uint8. Raises `DataError` as `read`."""
    names = (name, f"{name}.xz", f"{name}.bin", f"{name}.bin.xz")
    needed = f"CIFAR-10's archive or its unpacked batches ({ARCHIVE.url})"
    name, content = archives.read_file(source, files, names, needed)
    if ".bin" in name:
        if len(content) != BATCH_SIZE * (1 + PIXELS):
            raise DataError(f"{source}: {name} must have {BATCH_SIZE * (1 + PIXELS)} bytes, got {len(content)}")
        return np.frombuffer(content, np.uint8).reshape(BATCH_SIZE, 1 + PIXELS)
    batch = archives.unpickle(source, name, content, md5)
    labels = np.asarray(batch[b"labels"], np.uint8)
    return np.concatenate([labels[:, None], batch[b"data"]], axis=1)
