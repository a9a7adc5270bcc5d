"""The built-in partitions, in the order of lists and pages."""

from fedsim.datasets.partition import iid as iid
from fedsim.datasets.dirichlet import dirichlet as dirichlet
from fedsim.datasets.partition import natural as natural
from fedsim.datasets.label_skew import shards as shards, label_quantity as label_quantity, extreme as extreme
from fedsim.datasets.label_skew import similarity as similarity
from fedsim.datasets.dirichlet import quantity as quantity
from fedsim.datasets.feature_noise import feature_noise as feature_noise
