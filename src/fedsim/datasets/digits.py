"""Handwritten digits: 1,797 8x8 images that come with fedsim, so that a first run needs no download.

E. Alpaydin, C. Kaynak: "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998,
https://doi.org/10.24432/C50P49 (CC BY 4.0). The file is that of scikit-learn.
"""

from importlib.resources import as_file, files

import numpy as np

from fedsim.datasets.raw import RawDataset

TEST_FRACTION = 0.2


def digits(seed: int) -> RawDataset:
    """x [M, 8, 8, 1] uint8; the test set is a fifth of each class, drawn by `seed`."""
    table = _read_table()
    x = np.round(table[:, :64].reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)  # 17 levels, 0 to 16
    y = table[:, 64].astype(np.int32)
    rng = np.random.default_rng(seed)
    test = np.zeros(len(y), bool)
    for k in range(10):
        members = rng.permutation(np.flatnonzero(y == k))
        test[members[: round(TEST_FRACTION * len(members))]] = True
    return RawDataset("digits", x[~test], y[~test], x[test], y[test], 10, "image")


def _read_table() -> np.ndarray:
    """Pixels and label [1797, 65] uint8."""
    with as_file(files("fedsim.datasets") / "digits.csv.gz") as path:
        return np.loadtxt(path, np.uint8, delimiter=",")
