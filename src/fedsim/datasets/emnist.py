"""The official archive of EMNIST: handwritten characters as gray images of 28x28, in six splits.

G. Cohen, S. Afshar, J. Tapson, A. van Schaik: "EMNIST: Extending MNIST to handwritten letters", IJCNN 2017,
https://arxiv.org/abs/1702.05373. The archive's images are transposed, and the labels of `letters` start from 1; here
images are upright and labels start from 0. `bymerge` and `balanced` have one class for both cases of letters whose
cases look alike. URL and digest are those of tensorflow-datasets.
"""

import string
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from fedsim.datasets import archives
from fedsim.datasets.download import Download
from fedsim.datasets.mnist import read_labeled_images
from fedsim.datasets.prepared import load
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

ARCHIVE = Download(
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    "sha256",
    "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
)

MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
LABELS = {
    "byclass": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "bymerge": MERGED,
    "balanced": MERGED,
    "letters": string.ascii_lowercase,
    "digits": string.digits,
    "mnist": string.digits,
}


def emnist(
    seed: int,
    *,
    split: Annotated[
        Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"], "the authors' split"
    ] = "balanced",
) -> RawDataset:
    """A split of EMNIST, prepared."""
    return load(f"emnist_{split}")


def read(name: str, source: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [M, 28, 28, 1] uint8 and labels of the split `name`, by part, in the official order.

    `source` is the archive, a folder with it, or a folder with its files, gzipped or not. Raises `DataError` if a file
    is missing or broken, or the classes are not those of the split.
    """
    files = archives.list_files(source, "*.zip", "gzip")
    splits = {}
    for split in ("train", "test"):
        names = [f"emnist-{name}-{split}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
        images, labels = read_labeled_images(source, files, *names)
        labels = labels - (name == "letters")  # which start from 1
        if set(labels.tolist()) != set(range(len(LABELS[name]))):
            raise DataError(f"{source}: {names[1]} must have the {len(LABELS[name])} classes of {name}")
        splits[split] = images.transpose(0, 2, 1, 3), labels
    return splits
