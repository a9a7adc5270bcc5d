"""The built-in partitions, in the order of lists and pages."""

from fedsim.datasets.partition import iid as iid, dirichlet as dirichlet, natural as natural
from fedsim.datasets.label_skew import shards as shards, label_quantity as label_quantity, extreme as extreme
from fedsim.datasets.partition import quantity as quantity
from fedsim.datasets.feature_noise import feature_noise as feature_noise
