"""Data sets, one file each, loaded as a `RawDataset` and then partitioned into a `FederatedDataset`."""

from fedsim.core.factories import check_factories
from fedsim.datasets.arrays import from_arrays
from fedsim.datasets.feature_noise import feature_noise
from fedsim.datasets.label_skew import extreme, label_quantity, shards
from fedsim.datasets.partition import dirichlet, iid, quantity
from fedsim.datasets.raw import DatasetFactory, Partition, PartitionFunction, RawDataset
from fedsim.datasets.table import from_pandas

__all__ = [
    "DatasetFactory",
    "Partition",
    "PartitionFunction",
    "RawDataset",
    "dirichlet",
    "extreme",
    "feature_noise",
    "from_arrays",
    "from_pandas",
    "iid",
    "label_quantity",
    "quantity",
    "shards",
]

check_factories(globals())
