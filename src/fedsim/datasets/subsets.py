"""Examples that are left out before a partition: repeated ones, a long tail's, and those that are held out."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from fedsim.config.clients import share_of
from fedsim.config.sections import DataConfig
from fedsim.core.types import Examples
from fedsim.datasets.partition import is_single_label
from fedsim.datasets.portions import convert, floor_fraction, portions
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.datasets.sampling import draw_examples, evenly_spaced, make_pools, num_before, num_overlapping
from fedsim.errors import DataError

DIGEST_BYTES = 16  # no two of 10^12 inputs share such a digest by chance


def deduplicate(raw: RawDataset) -> RawDataset:
    """`raw` with the first example of each distinct input, training before test, so that no test input is trained on.

    Inputs are equal if all their bytes are, regardless of labels and clients. The order is kept, and clients with only
    repeated inputs disappear. Raises `DataError` if no test example would be left.
    """
    digests = np.concatenate([_digests(raw.x), _digests(raw.x_test)])
    first = np.sort(np.unique(digests, return_index=True)[1])
    if len(first) == len(digests):
        return raw
    num_train = len(raw.y)
    train, test = first[first < num_train], first[first >= num_train] - num_train
    if len(raw.y_test) and not len(test):
        raise DataError(f"data.deduplicate: must be false for {raw.name}, all of whose test inputs are training inputs")
    return select_examples(raw, train, test)


def _digests(x: np.ndarray) -> np.ndarray:
    """A digest [M] of the bytes of each input."""
    digest = lambda row: hashlib.blake2b(row.data, digest_size=DIGEST_BYTES).digest()
    rows = (row for portion in portions(x) for row in np.ascontiguousarray(x[portion]))
    return np.fromiter((digest(row) for row in rows), np.dtype((np.void, DIGEST_BYTES)), len(x))


def make_long_tail(raw: RawDataset, decay: float, rng: np.random.Generator) -> RawDataset:
    """`raw` with floor(`decay`^k n) of the n examples of class k, drawn at random, for training and for testing.

    Cui, Jia, Lin, Song, Belongie: "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019,
    https://arxiv.org/abs/1901.05555: n_k = n mu^k. Karimireddy, He, Jaggi (ICLR 2022) use it with mu = 0.5.
    Raises `DataError` if examples do not have a single class each, or none is left for training or of a test set.
    """
    if not is_single_label(raw):
        raise DataError(f"data.long_tail: must be 1 for {raw.name}, whose examples have no single class, got {decay:g}")
    train, test = (_draw(y, raw.num_classes, decay, rng) for y in (raw.y, raw.y_test))
    if len(train) == 0 or len(test) < min(len(raw.y_test), 1):
        raise DataError(f"data.long_tail: must be larger for the {len(raw.y)} examples of {raw.name}, got {decay:g}")
    return select_examples(raw, train, test)


def _draw(y: np.ndarray, num_classes: int, decay: float, rng: np.random.Generator) -> np.ndarray:
    """The positions, in their order, of the examples that are kept."""
    members = [rng.permutation(np.flatnonzero(y == k)) for k in range(num_classes)]
    return np.sort(np.concatenate([part[: floor_fraction(len(part), decay**k)] for k, part in enumerate(members)]))


def hold_out(
    raw: RawDataset,
    key: str,
    amount: float,
    rng: np.random.Generator,
    is_natural: bool,
    limits: DataConfig = DataConfig(),  # noqa: B008  it is frozen
) -> tuple[RawDataset, Examples | None]:
    """`raw` without random training examples, and those examples, or None if `amount` is 0.

    `amount` is their number for the key root_examples, their share for validation_fraction. With `is_natural`, every
    natural client keeps at least one. Windows of text are split by time for validation: the last ones of each client
    are held out, and those that overlap both parts are left out; then of each part only as many are kept as the numbers
    of training examples in `limits` allow. Raises `DataError` if that leaves too few examples, or if a share of the
    examples rounds to 0.
    """
    if amount == 0:
        return raw, None
    if key == "validation_fraction" and num_overlapping(raw):
        return _split_by_time(raw, amount, rng, limits)
    order, largest = rng.permutation(len(raw.y)), len(raw.y) - 1
    if is_natural and raw.client_ids is not None:  # the last of each client are kept
        last = len(order) - 1 - np.unique(raw.client_ids[order[::-1]], return_index=True)[1]
        order, largest = np.concatenate([np.delete(order, last), order[last]]), len(order) - len(last)
    num_examples, limit, got = int(amount), f"be at most {largest}", f"{amount}"
    if key == "validation_fraction":
        num_examples = round(share_of(len(order), amount))
        limit, got = f"hold out 1 to {largest}", f"{amount:g}, which is {num_examples}"
    if not 0 < num_examples <= largest:
        raise DataError(f"data.{key}: must {limit} of the {len(order)} training examples of {raw.name}, got {got}")
    return _select(raw, np.sort(order[:num_examples]), np.sort(order[num_examples:]))


def _split_by_time(
    raw: RawDataset, fraction: float, rng: np.random.Generator, limits: DataConfig
) -> tuple[RawDataset, Examples]:
    """`raw` with each client's windows that end before its last ones, which are held out; all of a short text.

    If all texts are too short for this fraction, the last window of each is held out.
    """
    gap = num_overlapping(raw)
    pools = [*make_pools(np.zeros(len(raw.y), int) if raw.client_ids is None else raw.client_ids).values()]
    ends = [num_before(len(pool), fraction) for pool in pools]
    if all(end + gap >= len(pool) for pool, end in zip(pools, ends, strict=True)):
        ends = [len(pool) - gap - 1 for pool in pools]
    ends = [end if 0 < end < len(pool) - gap else len(pool) for pool, end in zip(pools, ends, strict=True)]
    draw_examples(raw.name, "num_train", limits.num_train, len(raw.y), rng)  # refuses more than there are
    later = [pool[end + gap :] for pool, end in zip(pools, ends, strict=True)]
    earlier = [pool[:end] for pool, end in zip(pools, ends, strict=True)]
    kept = []
    for parts, most, number in zip(
        (later, earlier), _divide(limits.max_examples, fraction), _divide(limits.num_train, fraction), strict=True
    ):
        windows = np.sort(np.concatenate([evenly_spaced(part, most) for part in parts]))
        number = number and min(number, len(windows))
        kept.append(windows[draw_examples(raw.name, "num_train", number, len(windows), rng)])
    held_out, rest = kept
    if not len(held_out):
        raise DataError(f"data.validation_fraction: must be 0 for the texts of {raw.name}, which are too short for it")
    num_windows = len(held_out) + len(rest)
    if len(held_out) < fraction / 2 * num_windows:
        few = f"{len(held_out)} of {num_windows} windows are validation data, data.validation_fraction = {fraction:g}"
        raw = replace(raw, notes=(*raw.notes, f"{raw.name}: {few}: texts are short, and windows overlap"))
    return _select(raw, held_out, rest)


def _divide(number: int | None, fraction: float) -> tuple[int | None, int | None]:
    """This fraction of `number` and the rest, each at least 1."""
    if number is None:
        return None, None
    part = max(1, round(share_of(number, fraction)))
    return part, max(1, number - part)


def _select(raw: RawDataset, held_out: np.ndarray, rest: np.ndarray) -> tuple[RawDataset, Examples]:
    """`raw` with the `rest` of its training examples, and those that are `held_out`."""
    y: Any = convert(raw.y[held_out], np.int32 if raw.num_classes else np.float32)
    x: Any = raw.x[held_out]
    return select_examples(raw, rest, slice(None)), Examples(x, y)
