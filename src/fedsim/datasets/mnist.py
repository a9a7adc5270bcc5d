"""The official files of MNIST and of Fashion-MNIST: 60,000 + 10,000 gray images of 28x28 in ten classes each.

Y. LeCun, C. Cortes, C. Burges: "The MNIST database of handwritten digits", http://yann.lecun.com/exdb/mnist/.
H. Xiao, K. Rasul, R. Vollgraf: "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
2017, https://arxiv.org/abs/1708.07747. URLs and digests are those of tensorflow-datasets.
"""

import math
import struct
from pathlib import Path

import numpy as np

from fedsim.datasets import archives
from fedsim.datasets.download import Download
from fedsim.datasets.prepared import load
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
URLS = {
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}
SHA256 = {  # of the gzipped files, in the order of FILES
    "mnist": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "fashion_mnist": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
CLASS_SIZES = {  # to check unpacked files, which have no published digest and the same names in both data sets
    "mnist": {
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    "fashion_mnist": {"train": (6000,) * 10, "test": (1000,) * 10},
}


def mnist(seed: int) -> RawDataset:
    """MNIST, prepared."""
    return load("mnist")


def fashion_mnist(seed: int) -> RawDataset:
    """Fashion-MNIST, prepared."""
    return load("fashion_mnist")


def list_downloads(name: str) -> list[Download]:
    """The files of the data set `name`."""
    files = [file for pair in FILES.values() for file in pair]
    return [
        Download(f"{URLS[name]}{file}.gz", "sha256", digest) for file, digest in zip(files, SHA256[name], strict=True)
    ]


def read(name: str, source: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [60,000 or 10,000, 28, 28, 1] uint8 and labels of the data set `name`, by split, in the official order.

    `source` is a folder with the four files, gzipped or not, or an archive of them. Raises `DataError` if a file is
    missing or broken, or the class sizes are not the official ones.
    """
    files = archives.list_files(source, "*.zip", "raw")
    splits = {split: read_labeled_images(source, files, *names) for split, names in FILES.items()}
    for split, (_, labels) in splits.items():
        sizes = tuple(np.bincount(labels, minlength=10).tolist())
        if sizes != CLASS_SIZES[name][split]:
            raise DataError(
                f"{source}: not {name}: must have {CLASS_SIZES[name][split]} {split} images by class, got {sizes}"
            )
    return splits


def decode_idx(content: bytes) -> np.ndarray:
    """The uint8 array in `content`, in the IDX format of MNIST's files.

    That is two zero bytes, a byte for the type (8: unsigned bytes), one for the number of axes, a big-endian int32 for
    the length of each axis, then the values. Raises `ValueError` if it is not such a file of bytes, or truncated.
    """
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError("not an IDX file")
    dtype, num_axes = content[2:4]
    start = 4 + 4 * num_axes
    if dtype != 8 or len(content) < start:
        raise ValueError("truncated IDX file, or not of bytes")
    shape = struct.unpack(f">{num_axes}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"truncated or altered: must have {math.prod(shape)} bytes for {shape}, got {len(content) - start}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_labeled_images(
    source: Path, files: archives.Files, images_name: str, labels_name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Images [M, 28, 28, 1] uint8 and labels [M] int32 from two `files` of `source`, which may be gzipped.

    Raises `DataError` if a file is missing or broken, or the shapes differ.
    """
    images, labels = (_read_array(source, files, name) for name in (images_name, labels_name))
    if images.shape[1:] != (28, 28) or labels.ndim != 1:
        raise DataError(
            f"{source}: must have images [M, 28, 28] and labels [M], got {images.shape} in {images_name} and "
            f"{labels.shape} in {labels_name}"
        )
    if len(images) != len(labels):
        raise DataError(f"{source}: {len(images)} images in {images_name}, but {len(labels)} labels in {labels_name}")
    return images[..., None], labels.astype(np.int32)


def _read_array(source: Path, files: archives.Files, name: str) -> np.ndarray:
    file_name, content = archives.read_file(source, files, (name, f"{name}.gz"), f"{name}, gzipped or not")
    try:
        return decode_idx(content)
    except ValueError as error:
        raise DataError(f"{source}: {file_name} is broken: {error}") from None
