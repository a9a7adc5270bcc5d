"""FedAvg with one class of MNIST a client in PyTorch, as flwrlabs/flower's baselines/niid_bench does it.

    python benchmarks/peers/torch_one_class.py MNIST_FOLDER SEED >> benchmarks/results/torch-one-class.jsonl

Needs PyTorch, and MNIST's files; 26 minutes of one core for 50 rounds. Beside configs/published/niid-bench.toml.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedsim.datasets import mnist

NUM_ROUNDS, EPOCHS, BATCH_SIZE = 50, 10, 64


def make_net() -> nn.Module:
    """The program's CNNMnist."""
    convolutions = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*convolutions, nn.Flatten(), *dense)


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """A client's round."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(y)).split(BATCH_SIZE):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()


def main(folder: str, seed: int) -> None:
    """Prints the test accuracies after each round as one JSON line."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    (x, y), (x_test, y_test) = (
        (torch.from_numpy(np.moveaxis(images, 3, 1) / np.float32(255)), torch.from_numpy(labels.astype(np.int64)))
        for images, labels in mnist.read("mnist", Path(folder)).values()
    )
    net, local, accuracies = make_net(), make_net(), []
    clients = [torch.nonzero(y == label)[:, 0] for label in range(10)]
    for _ in range(NUM_ROUNDS):
        total = {name: torch.zeros_like(values) for name, values in net.state_dict().items()}
        for members in clients:
            local.load_state_dict(net.state_dict())
            train(local, x[members], y[members])
            for name, values in local.state_dict().items():
                total[name] += values * (len(members) / len(y))
        net.load_state_dict(total)
        with torch.no_grad():
            accuracies.append(round(100 * (net(x_test).argmax(1) == y_test).float().mean().item(), 2))
    print(json.dumps({"seed": seed, "torch": torch.__version__, "test_accuracy": accuracies}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
