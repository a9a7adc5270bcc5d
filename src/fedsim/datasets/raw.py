"""Examples before they are divided among clients, and the checks that all data go through."""

import tokenize
import zipfile
import zlib
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from fedsim.core.types import ClientData, Examples, FederatedDataset
from fedsim.errors import DataError

MOST_EXAMPLES = 2**31 - 1  # offsets, and sums of counts on a device, are int32
LEAST_UNSEEN, MOST_SHOWN = 0.01, 5  # share of test labels that is told; classes
BROKEN = (  # what NumPy raises of a file that is no array, or no longer one
    OSError, ValueError, EOFError, AttributeError, TypeError, SyntaxError, NotImplementedError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
Inputs: TypeAlias = Literal["image", "text", "vector"]  # what the inputs of a data set are


@dataclass(frozen=True, eq=False)
class RawDataset:
    """A data set as it comes; client ids where the examples belong to clients by nature.

    Images are [M, height, width, channels], and uint8 means that they are divided by 255 for the model. Texts are
    characters [M, T], integer positions in an alphabet.
    """

    name: str
    x: np.ndarray  # [M, *feature] uint8, other integers or float32
    y: np.ndarray  # [M] or [M, T]; int classes 0 .. num_classes - 1, or float32 numbers
    x_test: np.ndarray  # [T, *feature]; T = 0: comes without a test set
    y_test: np.ndarray  # [T] or [T, ...], as `y`
    num_classes: int  # 0: the targets are numbers
    inputs: Inputs
    client_ids: np.ndarray | None = None  # [M] int, from 0
    test_client_ids: np.ndarray | None = None  # [T] int
    client_names: np.ndarray | None = None  # [C] str, the name of client id i
    label_names: np.ndarray | None = None  # [num_classes] str


class Divided(NamedTuple):
    """What a partition returns that changes the training inputs, too."""

    owner: np.ndarray  # [M] the client of each training example
    x: np.ndarray  # [M, *feature] what the clients have of it; the test set stays as it is


def divide(raw: RawDataset, owner: np.ndarray | Divided, test_owner: np.ndarray | None = None) -> FederatedDataset:
    """`raw` with training example j given to client `owner[j]` (0 .. N - 1); examples keep their order within a client.

    Raises `DataError` where `owner` is no such array, a client has no example, inputs of a partition's own are not like
    the data set's, or there are more examples than int32 can count.
    """
    if isinstance(owner, Divided):
        raw, owner = replace(raw, x=_own_inputs(raw, owner.x)), owner.owner
    for part, number in (("training", len(raw.y)), ("test", len(raw.y_test))):
        if number > MOST_EXAMPLES:
            raise DataError(
                f"{raw.name}: {number:,} {part} examples, but int32 counts to {MOST_EXAMPLES:,}; keep fewer, with "
                "data.num_train and data.num_test or, where clients are natural, data.sample_fraction"
            )
    owner = np.asarray(owner)
    if owner.shape != (len(raw.y),) or owner.dtype.kind not in "iu" or owner.min(initial=0) < 0:
        raise DataError(
            f"{raw.name}: a partition must give each of {len(raw.y)} examples a client from 0, not {owner.dtype} "
            f"{owner.shape}"
        )
    counts = np.bincount(owner)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise DataError(f"{raw.name}: client {empty[0]} has no examples; every client needs at least one")
    in_order = bool(np.all(owner[1:] >= owner[:-1]))
    order = slice(None) if in_order else np.argsort(owner, kind="stable")
    dtype = np.int32 if raw.num_classes else np.float32
    train: dict[str, Any] = {
        "x": raw.x[order],
        "y": raw.y[order].astype(dtype),
        "offsets": np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32),
        "counts": counts.astype(np.int32),
        "corrupted": np.zeros(len(counts), bool),
    }
    y_test = raw.y_test.astype(dtype)
    return FederatedDataset(raw.name, ClientData(**train), raw.x_test, y_test, raw.num_classes, raw.inputs, test_owner)


def unseen(dataset: FederatedDataset) -> list[str]:
    """What to tell of classes that only test examples have, where these are not very few."""
    if not dataset.num_classes or not dataset.y_test.size:
        return []
    of = lambda labels: np.bincount(np.ravel(labels), minlength=dataset.num_classes)
    number = np.where(of(dataset.train.y) == 0, of(dataset.y_test), 0)
    if number.sum() < LEAST_UNSEEN * dataset.y_test.size:
        return []
    classes = np.flatnonzero(number)
    shown = ", ".join(map(str, classes[:MOST_SHOWN])) + (" ..." if len(classes) > MOST_SHOWN else "")
    share = 100 * number.sum() / dataset.y_test.size
    return [f"{dataset.name}: {share:.3g} % of the test labels are classes that no client trains on: {shown}"]


def _own_inputs(raw: RawDataset, x: np.ndarray) -> np.ndarray:
    """A partition's own inputs, checked."""
    x = np.asarray(x)
    if x.shape != raw.x.shape or x.dtype != raw.x.dtype:
        raise DataError(
            f"{raw.name}: a partition's own inputs must be {raw.x.dtype} {raw.x.shape}, not {x.dtype} {x.shape}"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataError(f"{raw.name}: a partition's own inputs contain NaN or infinity")
    return x


def take(raw: RawDataset, train: np.ndarray | slice, test: np.ndarray | slice) -> RawDataset:
    """`raw` with its training examples at the positions `train` and its test examples at `test`, in that order."""
    client_ids = None if raw.client_ids is None else raw.client_ids[train]
    test_client_ids = None if raw.test_client_ids is None else raw.test_client_ids[test]
    x, y, x_test, y_test = raw.x[train], raw.y[train], raw.x_test[test], raw.y_test[test]
    return replace(raw, x=x, y=y, x_test=x_test, y_test=y_test, client_ids=client_ids, test_client_ids=test_client_ids)


def keep_root(raw: RawDataset, number: int, rng: np.random.Generator) -> tuple[RawDataset, Examples | None]:
    """`raw` without `number` of its training examples, and these: they are the server's, and no client's."""
    if number == 0:
        return raw, None
    if number >= len(raw.y):
        raise DataError(f"data.root_examples: {raw.name} has only {len(raw.y)} training examples; ask for fewer")
    return _kept_back(raw, number, rng.permutation(len(raw.y)))


def keep_validation(
    raw: RawDataset, fraction: float, rng: np.random.Generator, of_clients: bool
) -> tuple[RawDataset, Examples | None]:
    """`raw` without this share of its training examples, rounded, and these. Natural clients keep one each at least."""
    if fraction == 0:
        return raw, None
    order = rng.permutation(len(raw.y))
    if of_clients and raw.client_ids is not None:  # the last that is drawn of each client comes behind all others
        last = len(order) - 1 - np.unique(raw.client_ids[order[::-1]], return_index=True)[1]
        order = np.concatenate([np.delete(order, last), order[last]])
    number, most = round(fraction * len(order)), len(order) - (len(last) if of_clients else 1)
    if not 0 < number <= most:
        raise DataError(
            f"data.validation_fraction: {fraction:g} of {len(order)} training examples of {raw.name} is {number}; "
            f"1 to {most} can be kept from the clients"
        )
    return _kept_back(raw, number, order)


def _kept_back(raw: RawDataset, number: int, order: np.ndarray) -> tuple[RawDataset, Examples]:
    """`raw` without the first `number` training examples of `order` [M], and these."""
    own, rest = np.sort(order[:number]), np.sort(order[number:])
    y: Any = raw.y[own].astype(np.int32 if raw.num_classes else np.float32)
    x: Any = raw.x[own]
    return take(raw, rest, slice(None)), Examples(x, y)


def check(raw: RawDataset, needs_test: bool = True) -> RawDataset:
    """`raw`, with float32 where it has float64, or a `DataError` that says what is wrong with it.

    Without `needs_test` it may come without a test set.
    """
    if not isinstance(raw, RawDataset):
        raise DataError(f"a data set must be a fedsim.datasets.RawDataset, not a {type(raw).__name__}")
    if raw.inputs not in get_args(Inputs):
        raise DataError(f'{raw.name}: inputs must be "image", "text" or "vector", not "{raw.inputs}"')
    if raw.num_classes < 0:
        raise DataError(f"{raw.name}: num_classes must be 0 (the targets are numbers) or more, not {raw.num_classes}")
    x, x_test = (_without_float64(np.asarray(a)) for a in (raw.x, raw.x_test))
    y, y_test = (np.asarray(a) if raw.num_classes else _without_float64(np.asarray(a)) for a in (raw.y, raw.y_test))
    ids, test_ids = (None if a is None else np.asarray(a) for a in (raw.client_ids, raw.test_client_ids))
    raw = replace(raw, x=x, y=y, x_test=x_test, y_test=y_test, client_ids=ids, test_client_ids=test_ids)
    _check_part(raw, "training", x, y, ids)
    if needs_test or y_test.size:
        _check_part(raw, "test", x_test, y_test, test_ids)
    for what, train, test in (("inputs", x, x_test), ("labels", y, y_test)):
        if train.shape[1:] != test.shape[1:]:
            raise DataError(f"{raw.name}: training {what} are {train.shape[1:]}, test {what} {test.shape[1:]}")
    if x.dtype != x_test.dtype:
        raise DataError(f"{raw.name}: training inputs are {x.dtype}, test inputs {x_test.dtype}")
    return raw


def _without_float64(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what becomes infinite is refused then
        return values.astype(np.float32) if values.dtype == np.float64 else values


def _check_part(raw: RawDataset, part: str, x: np.ndarray, y: np.ndarray, ids: np.ndarray | None) -> None:
    """Raises `DataError` where the training or the test examples are wrong in themselves."""
    if x.ndim < 1 or y.ndim not in (1, 2) or (ids is not None and ids.ndim != 1):
        raise DataError(f"{raw.name}: {part} inputs must be [M, ...], labels [M] or [M, T] and client ids [M]")
    if len(x) != len(y):
        raise DataError(f"{raw.name}: {len(x)} {part} inputs but {len(y)} labels")
    if ids is not None and len(ids) != len(y):
        raise DataError(f"{raw.name}: {len(y)} {part} examples but {len(ids)} client ids")
    if y.size == 0:
        raise DataError(f"{raw.name}: {'labels of length 0' if len(y) else f'no {part} examples'}")
    if x.dtype.kind not in "biuf":
        raise DataError(f"{raw.name}: {part} inputs must be numbers, not {x.dtype}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataError(f"{raw.name}: {part} inputs contain NaN or infinity")
    if raw.inputs == "image" and x.ndim != 4:
        raise DataError(f"{raw.name}: images must be [M, height, width, channels], but {part} inputs are {x.shape}")
    if raw.inputs == "text" and (x.ndim != 2 or x.dtype.kind not in "iu"):
        raise DataError(f"{raw.name}: texts must be integers [M, T], but {part} inputs are {x.dtype} {x.shape}")
    if ids is not None and (ids.dtype.kind not in "iu" or ids.min() < 0):
        raise DataError(f"{raw.name}: client ids must be integers from 0; their names are client_names")
    _check_labels(raw, part, y)


def _check_labels(raw: RawDataset, part: str, y: np.ndarray) -> None:
    if raw.num_classes and y.dtype.kind not in "biu":
        raise DataError(f"{raw.name}: {part} labels must be integers, as there are classes, not {y.dtype}")
    if raw.num_classes and (y.min() < 0 or y.max() >= raw.num_classes):
        raise DataError(f"{raw.name}: {part} labels must lie in 0..{raw.num_classes - 1}")
    if y.dtype.kind not in "biuf":
        raise DataError(f"{raw.name}: {part} labels must be numbers, not {y.dtype}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"{raw.name}: {part} labels contain NaN or infinity")
