"""Data sets that are generated from a seed, without any preparation."""

import numpy as np

import fedsim


def vectors(num_clients: int, examples: int, features: int = 64, num_classes: int = 10) -> fedsim.FederatedDataset:
    """`num_clients` x `examples` float vectors around the corner of their class."""
    rng = np.random.default_rng(0)
    y = rng.integers(num_classes, size=num_clients * examples)
    x = rng.normal(size=(len(y), features)).astype(np.float32)
    x += np.eye(num_classes, features, dtype=np.float32)[y]
    return fedsim.from_arrays(x, y, np.arange(len(y)) // examples, x[:100], y[:100])


def images(num_clients: int, examples: int) -> fedsim.FederatedDataset:
    """`num_clients` x `examples` uint8 noise images of 32 x 32 x 3, brighter by class."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=num_clients * examples)
    x = rng.integers(0, 156, size=(len(y), 32, 32, 3), dtype=np.uint8) + (10 * y[:, None, None, None]).astype(np.uint8)
    return fedsim.from_arrays(x, y, np.arange(len(y)) // examples, x[:100], y[:100])
