"""FedProx's synthetic data: 30 clients, each with a linear classifier and inputs of its own.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020,
https://arxiv.org/abs/1812.06127, Section 5.1, and the authors' program (`litian96/FedProx`,
data/synthetic_1_1/generate_synthetic.py).
"""

from typing import Annotated

import numpy as np

from fedsim.core.settings import Bounds, OnlyIf
from fedsim.datasets.raw import RawDataset

NUM_CLIENTS, NUM_FEATURES, NUM_CLASSES = 30, 60, 10
TRAIN_FRACTION = 0.9  # of each client's examples


def synthetic(
    seed: int,
    *,
    beta: Annotated[
        float, Bounds(ge=0, le=1e6), OnlyIf("iid", False), "standard deviation of the clients' mean inputs"
    ] = 1.0,
    iid: Annotated[bool, "one classifier for all clients, and the same distribution of inputs"] = False,
) -> RawDataset:
    """x [M, 60] float32, y [M] 0 to 9: the class with the largest score x W + b. Client sizes are 50 + lognormal(4, 2).

    W [60, 10] and b [10] of a client are standard normal, its inputs N(v, diag(j^-1.2)) with v [60] from N(B, 1) and B
    from N(0, beta^2). The program also adds a number from N(0, alpha^2) to all of W and b. It is added to the scores of
    all classes alike and changes no label, so there is no alpha: "synthetic(alpha, beta)" is `beta`.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.lognormal(4, 2, NUM_CLIENTS).astype(int) + 50
    std = np.arange(1, NUM_FEATURES + 1) ** -0.6
    train, test = [], []
    shared = _draw_classifier(rng)
    for size in sizes:
        weights, bias = shared if iid else _draw_classifier(rng)
        mean = np.zeros(NUM_FEATURES) if iid else rng.normal(rng.normal(0, beta), 1, NUM_FEATURES)
        x = rng.normal(mean, std, (size, NUM_FEATURES))
        y, num_train = np.argmax(x @ weights + bias, axis=1), int(TRAIN_FRACTION * size)
        train.append((x[:num_train], y[:num_train]))
        test.append((x[num_train:], y[num_train:]))
    (x, y, ids), (x_test, y_test, test_ids) = concatenate(train), concatenate(test)
    names = np.arange(NUM_CLIENTS).astype(str)
    return RawDataset("synthetic", x, y, x_test, y_test, NUM_CLASSES, "vector", ids, test_ids, names)


def _draw_classifier(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(NUM_FEATURES, NUM_CLASSES)), rng.normal(size=NUM_CLASSES)


def concatenate(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels and clients of all examples, from the inputs and labels of each client."""
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x.astype(np.float32), y.astype(np.int32), np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
