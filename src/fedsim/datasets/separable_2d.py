"""Three clients with two linearly separable classes in 2D (the introductory example of the ARFL paper)."""

import numpy as np

from fedsim.datasets.raw import RawDataset
from fedsim.datasets.synthetic import concatenate

NUM_TRAIN, NUM_TEST = 60, 400  # examples per client
NORMAL = np.asarray([1.0, 1.0]) / np.sqrt(2)  # of the true line, which goes through the origin
MARGIN = 0.3  # smallest distance of an example to the line
CENTERS = (-2.0, 0.0, 2.0)  # of each client's examples, along the line


def separable_2d(seed: int) -> RawDataset:
    """x [180, 2] float32, y [180] 0 or 1: the side of the line. Clients differ in their position along it."""
    rng = np.random.default_rng(seed)
    draw = lambda num_examples: [_draw_client(rng, center, num_examples) for center in CENTERS]
    (x, y, ids), (x_test, y_test, test_ids) = concatenate(draw(NUM_TRAIN)), concatenate(draw(NUM_TEST))
    return RawDataset("separable_2d", x, y, x_test, y_test, 2, "vector", ids, test_ids)


def _draw_client(rng: np.random.Generator, center: float, num_examples: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(num_examples) % 2
    distance = (2 * y - 1) * (MARGIN + rng.gamma(2.0, 0.5, num_examples))
    along = center + rng.normal(size=num_examples)
    return distance[:, None] * NORMAL + along[:, None] * np.asarray([-NORMAL[1], NORMAL[0]]), y
