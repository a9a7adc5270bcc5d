"""fedsim's networks with flax's layers: under `vmap` over clients, `nn.Conv` becomes a grouped convolution."""

import flax.linen as nn

from fedsim.core.types import Array


class FlaxCNN(nn.Module):
    """A convolutional network of flax's layers: (features, size, pool) for each convolution, then two dense layers."""

    convolutions: tuple[tuple[int, int, bool], ...]
    padding: str
    hidden: int
    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for features, size, pool in self.convolutions:
            x = nn.relu(nn.Conv(features, (size, size), padding=self.padding)(x))
            x = nn.max_pool(x, (2, 2), (2, 2)) if pool else x
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.num_classes)(x)


class FlaxLSTM(nn.Module):
    """`CharLSTM` with flax's layers, without dropout."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Embed(80, 8)(x)
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(256))(x)
        return nn.Dense(80)(x[:, -1])


def flax_cifar10_cnn() -> FlaxCNN:
    """`fedsim.models.Cifar10CNN` with flax's layers."""
    return FlaxCNN(((32, 3, True), (64, 3, True), (64, 3, False)), "VALID", 64, 10)


def flax_femnist_cnn() -> FlaxCNN:
    """`fedsim.models.FemnistCNN` with flax's layers."""
    return FlaxCNN(((32, 5, True), (64, 5, True)), "SAME", 126, 62)
