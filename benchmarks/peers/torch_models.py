"""fedsim's models in PyTorch, with the same parameters, and a client's training loop.

Images are [B, H, W, C], as in fedsim: transposed to [B, C, H, W] they are channels-last without a copy, like the
kernels. `load_params` and `read_params` convert parameters between the layouts of flax and PyTorch.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LSTM_LEAVES = {"weight_ih": "input_kernel", "weight_hh": "recurrent_kernel", "bias_ih": "bias"}  # the same gate order


class Cifar10CNN(nn.Module):
    """x [B, 32, 32, 3] in [0, 1]; logits [B, num_classes]."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv_0 = nn.Conv2d(3, 32, 3)
        self.conv_1 = nn.Conv2d(32, 64, 3)
        self.conv_2 = nn.Conv2d(64, 64, 3)
        self.dense_0 = nn.Linear(1024, 64)
        self.dense_1 = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2)
        x = F.relu(F.max_pool2d(self.conv_0(x), 2))
        x = F.relu(F.max_pool2d(self.conv_1(x), 2))
        x = F.relu(self.conv_2(x))
        return self.dense_1(F.relu(self.dense_0(x.permute(0, 2, 3, 1).flatten(1))))


class FemnistCNN(nn.Module):
    """x [B, 28, 28, 1] in [0, 1]; logits [B, num_classes]."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv_0 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv_1 = nn.Conv2d(32, 64, 5, padding=2)
        self.dense_0 = nn.Linear(3136, 126)
        self.dense_1 = nn.Linear(126, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2)
        x = F.relu(F.max_pool2d(self.conv_0(x), 2))
        x = F.relu(F.max_pool2d(self.conv_1(x), 2))
        return self.dense_1(F.relu(self.dense_0(x.permute(0, 2, 3, 1).flatten(1))))


class MLP(nn.Module):
    """x [B, features]; logits [B, num_classes]. One hidden layer."""

    def __init__(self, num_classes: int, features: int, hidden_size: int) -> None:
        super().__init__()
        self.dense_0 = nn.Linear(features, hidden_size)
        self.dense_1 = nn.Linear(hidden_size, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense_1(F.relu(self.dense_0(x)))


class CharLSTM(nn.Module):
    """x [B, T] integer characters; logits [B, num_classes] of the next."""

    def __init__(self, num_classes: int, embedding_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_classes, embedding_size)
        self.lstm = nn.LSTM(embedding_size, hidden_size, num_layers, batch_first=True)
        self.dense_0 = nn.Linear(hidden_size, num_classes)
        for name, bias in self.lstm.named_parameters():
            if name.startswith("bias_hh"):  # fedsim has one bias
                nn.init.zeros_(bias)
                bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense_0(self.lstm(self.embedding(x))[0][:, -1])


def build(settings: dict[str, Any], params: dict[str, np.ndarray]) -> nn.Module:
    """The workload's model with parameters `params` on `DEVICE`; convolutions are channels-last."""
    num_classes = settings["num_classes"]
    if settings["model"] == "Cifar10CNN":
        model: nn.Module = Cifar10CNN(num_classes)
    elif settings["model"] == "FemnistCNN":
        model = FemnistCNN(num_classes)
    elif settings["model"] == "MLP":
        model = MLP(num_classes, *params["Dense_0/kernel"].shape)
    else:
        embedding_size, num_layers = params["embedding/kernel"].shape[1], settings["module"]["num_layers"]
        model = CharLSTM(num_classes, embedding_size, params["Dense_0/kernel"].shape[0], num_layers)
    model = model.to(DEVICE, memory_format=torch.channels_last)
    load_params(model, params)
    return model


def set_precision(exact: bool) -> None:
    """Matrix products of float32 on a GPU: TF32, as JAX does by default, or `exact`."""
    torch.set_float32_matmul_precision("highest" if exact else "high")
    torch.backends.cudnn.allow_tf32 = not exact
    torch.backends.cudnn.benchmark = True


def load_examples(work: Any) -> tuple[Tensor, Tensor]:
    """The inputs and labels of a workload on `DEVICE`."""
    return torch.from_numpy(work.x).to(DEVICE), torch.from_numpy(work.y).long().to(DEVICE)


def to_input(x: Tensor) -> Tensor:
    """A batch in the model's type: pixels in [0, 1], characters as indices, features unchanged."""
    if x.dtype == torch.uint8:
        return x.float().div_(255)
    return x if x.dtype == torch.float32 else x.int()


def train_client(model: nn.Module, x: Tensor, y: Tensor, examples: slice, settings: dict[str, Any]) -> None:
    """One epoch of plain SGD on a client's examples; one call updates all parameters."""
    batch_size, learning_rate = settings["batch_size"], settings["learning_rate"]
    params = [p for p in model.parameters() if p.requires_grad]
    for start in range(examples.start, examples.stop, batch_size):
        batch = slice(start, min(start + batch_size, examples.stop))
        grads = torch.autograd.grad(F.cross_entropy(model(to_input(x[batch])), y[batch]), params)
        with torch.no_grad():
            torch._foreach_add_(params, grads, alpha=-learning_rate)


def load_params(model: nn.Module, params: dict[str, np.ndarray]) -> None:
    """Copies `params` in flax's layout into `model`."""
    with torch.no_grad():
        for name, value in to_torch(params).items():
            model.get_parameter(name).copy_(value)


def read_params(model: nn.Module) -> dict[str, np.ndarray]:
    """The parameters of `model` in flax's layout."""
    return to_flax({name: p.detach() for name, p in model.named_parameters() if p.requires_grad})


def to_torch(params: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Converts parameters by flax's path to parameters by PyTorch's name."""
    result = {}
    for layer in dict.fromkeys(path.split("/")[0] for path in params):
        if layer.startswith("LSTM"):
            for name, leaf in LSTM_LEAVES.items():
                result[f"lstm.{name}_l{layer.removeprefix('LSTM_')}"] = params[f"{layer}/{leaf}"].T
        elif layer == "embedding":
            result["embedding.weight"] = params["embedding/kernel"]
        else:
            kernel = params[f"{layer}/kernel"]
            result[f"{layer.lower()}.weight"] = kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T
            result[f"{layer.lower()}.bias"] = params[f"{layer}/bias"]
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in result.items()}


def to_flax(params: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Converts parameters by PyTorch's name to parameters by flax's path."""
    result = {}
    for name, tensor in params.items():
        layer, kind = name.split(".")
        value = tensor.cpu().numpy()
        if layer == "lstm":
            kind, number = kind.split("_l")
            result[f"LSTM_{number}/{LSTM_LEAVES[kind]}"] = value.T
        elif layer == "embedding":
            result["embedding/kernel"] = value
        elif kind == "bias":
            result[f"{layer.capitalize()}/bias"] = value
        else:
            result[f"{layer.capitalize()}/kernel"] = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T
    return result
