"""Data sets: one file each, loaded as a `RawDataset`, then divided among clients into a `FederatedDataset`."""

from collections.abc import Callable

from fedsim.datasets import digits
from fedsim.datasets.arrays import from_arrays
from fedsim.datasets.raw import RawDataset

DATASETS: dict[str, Callable[[int], RawDataset]] = {"digits": digits.load}  # seed of the split -> examples

__all__ = ["DATASETS", "RawDataset", "from_arrays"]
