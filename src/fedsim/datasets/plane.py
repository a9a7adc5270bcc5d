"""Three clients in the plane whose two classes a line separates (the paper's introductory example)."""

import numpy as np

from fedsim.datasets.raw import RawDataset

NUM_CLIENTS, NUM_TRAIN, NUM_TEST = 3, 60, 400  # examples of a client
NORMAL = np.asarray([1.0, 1.0]) / np.sqrt(2)  # of the true line, which goes through the origin
MARGIN = 0.3  # no example is nearer to the line
ALONG = (-2.0, 0.0, 2.0)  # where each client's examples lie along the line


def plane(seed: int) -> RawDataset:
    """x [180, 2] float32, y [180] 0 or 1: the side of the line; clients differ in where along it they are."""
    rng = np.random.default_rng(seed)
    draw = lambda number: [_client(rng, centre, number) for centre in ALONG]
    x, y = (np.concatenate(parts) for parts in zip(*draw(NUM_TRAIN), strict=True))
    x_test, y_test = (np.concatenate(parts) for parts in zip(*draw(NUM_TEST), strict=True))
    clients = np.arange(NUM_CLIENTS)
    ids, test_ids = np.repeat(clients, NUM_TRAIN), np.repeat(clients, NUM_TEST)
    return RawDataset("plane", x, y, x_test, y_test, 2, "vector", ids, test_ids)


def _client(rng: np.random.Generator, centre: float, number: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(number) % 2
    distance = (2 * y - 1) * (MARGIN + rng.gamma(2.0, 0.5, number))
    along = centre + rng.normal(size=number)
    x = distance[:, None] * NORMAL + along[:, None] * np.asarray([-NORMAL[1], NORMAL[0]])
    return x.astype(np.float32), y.astype(np.int32)
