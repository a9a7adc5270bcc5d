"""Data sets, one file each, loaded as a `RawDataset` and then partitioned into a `FederatedDataset`."""

from fedsim.core.factories import check_factories
from fedsim.datasets.arrays import from_arrays as from_arrays
from fedsim.datasets.built_in_partitions import *  # noqa: F403
from fedsim.datasets.map_style import from_dataset as from_dataset
from fedsim.datasets.raw import DatasetFactory as DatasetFactory, PartitionFunction as PartitionFunction
from fedsim.datasets.raw import Partition as Partition, RawDataset as RawDataset
from fedsim.datasets.table import from_pandas as from_pandas

check_factories(globals())
