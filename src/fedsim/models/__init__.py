"""Networks, one a file: flax modules that map inputs [B, *feature] to outputs [B, num_outputs], and their factories.

A model's factory gets the `DataSpec` of the data and returns a flax module, or a whole `Task` of its own.
"""

from fedsim.models.cnn import Cifar10CNN, FemnistCNN
from fedsim.models.lstm import CharLSTM
from fedsim.models.mlp import MLP

__all__ = ["MLP", "CharLSTM", "Cifar10CNN", "FemnistCNN"]
