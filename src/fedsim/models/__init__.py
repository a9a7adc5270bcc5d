"""Models: flax modules from inputs [B, *feature] to outputs [B, num_outputs], and their factories.

A factory takes the `DataSpec` of the data and returns a flax module, or a complete `Task`.
"""

from fedsim.models.mlp import MLP as MLP, mlp as mlp
from fedsim.models.cnn import Cifar10CNN as Cifar10CNN, cifar10_cnn as cifar10_cnn
from fedsim.models.cnn import FemnistCNN as FemnistCNN, femnist_cnn as femnist_cnn
from fedsim.models.resnet import ResNet18 as ResNet18, resnet18 as resnet18
from fedsim.models.cnn import LeNet5 as LeNet5, lenet as lenet
from fedsim.models.mlp import logistic as logistic
from fedsim.models.lstm import CharLSTM as CharLSTM, char_lstm as char_lstm
from fedsim.models.transformer import Transformer as Transformer, transformer as transformer
from fedsim.core.factories import check_factories

check_factories(globals())
