"""Models: flax modules from inputs [B, *feature] to outputs [B, num_outputs], and their factories.

A factory takes the `DataSpec` of the data and returns a flax module, or a complete `Task`.
"""

from fedsim.models.cnn import Cifar10CNN, FemnistCNN
from fedsim.models.lenet import LeNet5
from fedsim.models.logistic import Logistic
from fedsim.models.lstm import CharLSTM
from fedsim.models.mlp import MLP
from fedsim.models.resnet import ResNet18

__all__ = ["MLP", "CharLSTM", "Cifar10CNN", "FemnistCNN", "LeNet5", "Logistic", "ResNet18"]
