"""Networks: plain flax modules that map inputs [B, *feature] to logits [B, num_classes]."""

from fedsim.models.cnn import Cifar10CNN, FemnistCNN
from fedsim.models.lstm import CharLSTM
from fedsim.models.mlp import MLP

__all__ = ["MLP", "CharLSTM", "Cifar10CNN", "FemnistCNN"]
