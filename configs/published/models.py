"""Networks of published tables, with the initial distribution of the programs that gave them (PyTorch's defaults)."""

from typing import Annotated, Literal

import flax.linen as nn
import jax
from jax.nn.initializers import Initializer, variance_scaling

from fedsim import DataSpec

MNIST = (0.1307, 0.3081)  # mean and standard deviation of the pixels by which most programs normalize


class LeNet(nn.Module):
    """Valid 5x5 convolutions, each with a relu and a 2x2 max pool, then dense layers.

    x [B, H, W, C], normalized by `mean` and `std`; logits [B, num_classes].
    """

    num_classes: int
    channels: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    mean: float = 0.0
    std: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = (x - self.mean) / self.std
        for features in self.channels:
            x = nn.max_pool(nn.relu(torch_conv(x, features, 5)), (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for features in self.hidden_sizes:
            x = nn.relu(torch_dense(x, features))
        return torch_dense(x, self.num_classes)


def niid_bench_cnn(spec: DataSpec) -> LeNet:
    """For images in [0, 1]; flwrlabs/flower, baselines/niid_bench/niid_bench/models.py: CNNMnist and CNN (CIFAR-10)."""
    return LeNet(spec.num_outputs, (6, 16), (120, 84))


def byzfl_cnn(spec: DataSpec) -> LeNet:
    """For images of MNIST in [0, 1]; LPD-EPFL/byzfl, byzfl/fed_framework/models.py: cnn_mnist."""
    return LeNet(spec.num_outputs, (20, 50), (500,), *MNIST)


class BucketingCNN(nn.Module):
    """Two valid 3x3 convolutions, a pool, dense layers of 128 and 10; dropout of channels and of units.

    x [B, H, W, C]; logits [B, num_classes]. The second convolution has no relu, as in the program.
    """

    num_classes: int
    repeats_masks: bool

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = nn.relu(torch_conv((x - MNIST[0]) / MNIST[1], 32, 3))
        x = nn.max_pool(torch_conv(x, 64, 3), (2, 2), (2, 2))
        channels, units = jax.random.split(jax.random.key(0)) if self.repeats_masks else (None, None)
        x = nn.Dropout(0.25, broadcast_dims=(1, 2))(x, deterministic=not train, rng=channels)
        x = nn.relu(torch_dense(x.reshape(x.shape[0], -1), 128))
        x = nn.Dropout(0.5)(x, deterministic=not train, rng=units)
        return torch_dense(x, self.num_classes)


def bucketing_cnn(
    spec: DataSpec,
    *,
    masks: Annotated[
        Literal["repeated", "new"], "the same dropout masks in every step, as in the published program, or new ones"
    ] = "repeated",
) -> BucketingCNN:
    """For images of MNIST in [0, 1]; epfml/byzantine-robust-noniid-optimizer, codes/tasks/mnist.py: Net.

    The program restores the state of the random generator after each worker's step (codes/simulator.py: parallel_get),
    so example i of every batch has the same masks in all rounds and at all workers.
    """
    return BucketingCNN(spec.num_outputs, masks == "repeated")


class FoolsGoldSoftmax(nn.Module):
    """Softmax regression without bias on pixels divided by 100; x [B, H, W, C] in [0, 1], logits [B, num_classes]."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = 2.55 * x.reshape(x.shape[0], -1)
        return nn.Dense(self.num_classes, use_bias=False, kernel_init=nn.initializers.uniform(0.01))(x)


def foolsgold_softmax(spec: DataSpec) -> FoolsGoldSoftmax:
    """DistributedML/FoolsGold, ML/code/softmax_model_obj.py; not dividing test pixels, as there, changes no argmax."""
    return FoolsGoldSoftmax(spec.num_outputs)


def torch_dense(x: jax.Array, features: int, use_bias: bool = True) -> jax.Array:
    """A new dense layer on x [..., F], inside a compact method: uniform on ±1 / sqrt(F), as torch.nn.Linear."""
    return nn.Dense(features, use_bias, kernel_init=torch_kernel, bias_init=torch_bias(x.shape[-1]))(x)


def torch_conv(x: jax.Array, features: int, size: int, padding: str = "VALID") -> jax.Array:
    """A new `size` x `size` convolution of x [B, H, W, C]: uniform on ±1 / sqrt(size^2 C), as torch.nn.Conv2d."""
    bias_init = torch_bias(size**2 * x.shape[-1])
    return nn.Conv(features, (size, size), padding=padding, kernel_init=torch_kernel, bias_init=bias_init)(x)


torch_kernel = variance_scaling(1 / 3, "fan_in", "uniform")


def torch_bias(fan_in: int) -> Initializer:
    """Uniform on ±1 / sqrt(fan_in)."""
    limit = fan_in**-0.5
    return lambda key, shape, dtype=float: jax.random.uniform(key, shape, dtype, -limit, limit)


class MLP(nn.Module):
    """Hidden layers, each with dropout before its relu; x [B, H, W, C] in [0, 1], logits [B, num_classes]."""

    num_classes: int
    hidden_sizes: tuple[int, ...]
    mean: float
    std: float
    dropout_rate: float = 0.0
    is_normalized_in_training_only: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        x = (x - self.mean) / self.std if train or not self.is_normalized_in_training_only else x
        for features in self.hidden_sizes:
            x = nn.relu(nn.Dropout(self.dropout_rate)(torch_dense(x, features), deterministic=not train))
        return torch_dense(x, self.num_classes)


class ReadmeCNN(nn.Module):
    """Two convolutions, the second with dropout of whole channels; x and logits as of `MLP`."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = nn.relu(nn.max_pool(torch_conv((x - MNIST[0]) / MNIST[1], 10, 5), (2, 2), (2, 2)))
        x = nn.Dropout(0.5, broadcast_dims=(1, 2))(torch_conv(x, 20, 5), deterministic=not train)
        x = nn.relu(nn.max_pool(x, (2, 2), (2, 2)))
        x = nn.relu(torch_dense(x.reshape(x.shape[0], -1), 50))
        return torch_dense(nn.Dropout(0.5)(x, deterministic=not train), self.num_classes)


def readme_mlp(spec: DataSpec) -> MLP:
    """For images of MNIST; shaoxiongji/federated-learning, models/Nets.py: MLP."""
    return MLP(spec.num_outputs, (200,), *MNIST, dropout_rate=0.5)


def readme_cnn(spec: DataSpec) -> ReadmeCNN:
    """For images of MNIST; shaoxiongji/federated-learning, models/Nets.py: CNNMnist."""
    return ReadmeCNN(spec.num_outputs)


def flanders_mlp(
    spec: DataSpec,
    *,
    normalizes: Annotated[
        Literal["training", "always"], "when pixels are normalized: as in the published program, or also in tests"
    ] = "training",
) -> MLP:
    """For images of MNIST; flwrlabs/flower, baselines/flanders/flanders/models.py: MnistNet.

    The program normalizes training images (dataset.py: mnist_transformation), but not test images (utils.py:
    mnist_evaluate).
    """
    return MLP(spec.num_outputs, (128,), 0.5, 0.5, is_normalized_in_training_only=normalizes == "training")


def lpa_softmax(spec: DataSpec) -> MLP:
    """For images of MNIST; pengj97/LPA, ByrdLab/tasks/softmaxRegression.py, ByrdLab/library/dataset.py: get_mnist.

    The program passes its `ZeroInitialize` on, but never calls it.
    """
    return MLP(spec.num_outputs, (), 0.5, 0.5)
