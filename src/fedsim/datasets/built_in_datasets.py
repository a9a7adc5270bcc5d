"""The built-in data sets, in the order of lists and pages."""

from fedsim.datasets.digits import digits as digits
from fedsim.datasets.separable_2d import separable_2d as separable_2d
from fedsim.datasets.synthetic import synthetic as synthetic
from fedsim.datasets.prepared import cifar10 as cifar10
from fedsim.datasets.cifar100 import cifar100 as cifar100
from fedsim.datasets.mnist import mnist as mnist, fashion_mnist as fashion_mnist
from fedsim.datasets.emnist import emnist as emnist
from fedsim.datasets.prepared import femnist as femnist, shakespeare as shakespeare, tfds as tfds
from fedsim.datasets.leaf import leaf as leaf
from fedsim.datasets.arrays import arrays as arrays
from fedsim.datasets.images import images as images
from fedsim.datasets.table import table as table
from fedsim.datasets.huggingface import huggingface as huggingface
