"""Faulty data sets, at least one a clause, and what is said of them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.testing import check_dataset
from fedsim.testing.datasets import CLAUSES
from tests.conftest import make_dataset

RIGHT = make_dataset((2, 3, 4))


def train(**change):
    return replace(RIGHT, train=RIGHT.train._replace(**change))


def whole(**change):
    return replace(RIGHT, **change)


def edited(array, index, value):
    array = array.copy()
    array[index] = value
    return array


X, Y, OFFSETS, COUNTS = RIGHT.train.x, RIGHT.train.y, RIGHT.train.offsets, RIGHT.train.counts
FAULTY = [
    ("arrays", train(x=jnp.asarray(X)), "x is ArrayImpl, no NumPy array"),
    ("arrays", whole(x_test=RIGHT.x_test.tolist()), "x_test is list, no NumPy array"),
    ("dtypes", train(y=Y.astype(np.int64)), "y is int64, not int32"),
    ("dtypes", whole(num_classes=0), "y is int32, not float32"),
    ("dtypes", train(x=X.astype(np.float64)), "x is float64, which JAX would make 32 bits"),
    ("dtypes", train(x=X.astype(str)), "x is <U.*, no numbers"),
    ("dtypes", train(counts=COUNTS.astype(np.uint8)), "counts is uint8, not int32"),
    ("shapes", train(y=Y[1:]), "9 inputs but 8 labels"),
    ("shapes", train(y=Y[:, None, None]), r"y is \(9, 1, 1\), neither \[M\] nor \[M, T\]"),
    ("shapes", train(corrupted=RIGHT.train.corrupted[1:]), r"offsets, counts and corrupted are not all \[N\]"),
    ("offsets", train(offsets=edited(OFFSETS, 1, 3)), "the offsets are not where the clients before them end"),
    ("offsets", train(counts=edited(COUNTS, 2, 5)), "counts sum to 10, not to 9"),
    ("offsets", train(counts=edited(COUNTS, 0, -1)), "counts are negative, or nobody has examples"),
    ("offsets", train(counts=0 * COUNTS), "counts are negative, or nobody has examples"),
    ("labels", train(y=edited(Y, 4, 3)), r"a training label is not in 0\.\.2"),
    ("labels", whole(y_test=edited(RIGHT.y_test, 0, -1)), r"a test label is not in 0\.\.2"),
    ("labels", whole(num_classes=-1), "num_classes is -1"),
    ("finite", train(x=edited(X, (0, 0), np.nan)), "x is not finite"),
    ("finite", whole(x_test=edited(RIGHT.x_test, (0, 0), np.inf)), "x_test is not finite"),
    ("test", whole(x_test=RIGHT.x_test[:0], y_test=RIGHT.y_test[:0]), "there are no test examples"),
    ("test", whole(x_test=RIGHT.x_test[1:]), "39 test inputs but 40 test labels"),
    ("test", whole(x_test=RIGHT.x_test[:, 1:]), r"training inputs are \(5,\), test inputs \(4,\)"),
    ("test", whole(x_test=RIGHT.x_test.astype(np.float16)), "training inputs are float32, test inputs float16"),
    ("inputs", whole(inputs="picture"), 'inputs are "picture", which is none of image, text, vector'),
    ("inputs", whole(inputs="image"), r"images are \[M, height, width, channels\], and x is \(9, 5\)"),
    ("inputs", whole(inputs="text"), r"texts are integers \[M, T\], and x is float32 \(9, 5\)"),
    ("test_clients", whole(test_clients=np.zeros(3, np.int32)), r"test_clients is \(3,\), not one for each example"),
    ("test_clients", whole(test_clients=np.zeros(40)), "test_clients is float64, not int32"),
    ("test_clients", whole(test_clients=np.full(40, -1, np.int32)), "a test client is negative"),
    ("clean", train(corrupted=np.ones(3, bool)), "a client is marked as corrupted"),
]


@pytest.mark.parametrize(("clause", "dataset", "message"), FAULTY)
def test_a_faulty_data_set_is_caught(clause, dataset, message):
    with pytest.raises(AssertionError, match=f"^{clause}: .*{message}") as caught:
        check_dataset(dataset, skip=set(CLAUSES) - {clause})
    assert "\n" not in str(caught.value)
    with pytest.raises(AssertionError):
        check_dataset(dataset)


def test_every_clause_catches_something():
    assert {clause for clause, _, _ in FAULTY} == set(CLAUSES)


def test_the_right_one_is_right():
    check_dataset(RIGHT)
