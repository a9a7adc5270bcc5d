"""Faulty data sets, at least one per clause, and the messages about them; `test_built_in.py` runs them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from tests.conftest import make_dataset

DATASET = make_dataset((2, 3, 4))


def train(**change):
    return replace(DATASET, train=DATASET.train._replace(**change))


def dataset(**change):
    return replace(DATASET, **change)


def edited(array, index, value):
    array = array.copy()
    array[index] = value
    return array


X, Y, OFFSETS, COUNTS = DATASET.train.x, DATASET.train.y, DATASET.train.offsets, DATASET.train.num_examples
FAULTY = [
    ("arrays", train(x=jnp.asarray(X)), "x must be a NumPy array, got ArrayImpl"),
    ("dtypes", train(y=Y.astype(np.int64)), "y must be int32, got int64"),
    ("dtypes", train(x=X.astype(np.float64)), "x must be numbers of at most 32 bits, .*got float64"),
    ("shapes", train(y=Y[1:]), "y must have 9 rows, as x, got 8"),
    ("offsets", train(offsets=edited(OFFSETS, 1, 3)), r"offsets must be \[0 2 5\], .*got \[0 3 5\]"),
    ("offsets", train(num_examples=edited(COUNTS, 0, -1)), "num_examples must be >= 0, and some > 0, got"),
    ("labels", train(y=edited(Y, 4, 3)), r"y must be from 0 to 2, got 0 to 3"),
    ("finite", train(x=edited(X, (0, 0), np.nan)), "x must be finite"),
    (
        "test_examples",
        dataset(x_test=DATASET.x_test[:0], y_test=DATASET.y_test[:0]),
        "y_test must have at least one example",
    ),
    ("test_examples", dataset(x_test=DATASET.x_test[1:]), "y_test must have 39 rows, as x_test, got 40"),
    ("inputs", dataset(inputs="picture"), "inputs must be one of image, text, vector, got 'picture'"),
    ("inputs", dataset(inputs="text"), r"x must be texts, integers \[M, T\], got float32 \(9, 5\)"),
    (
        "test_clients",
        dataset(test_clients=np.zeros(3, np.int32)),
        r"test_clients must have shape \(40,\), as y_test, got \(3,\)",
    ),
    ("clean", train(corrupted=np.ones(3, bool)), "corrupted must be False for all clients"),
]
