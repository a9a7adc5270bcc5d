"""Texts as characters or tokens: windows, whose label is the one that follows, or whole texts with a class each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedsim.datasets.natural_clients import ClientExamples, concatenate_clients
from fedsim.datasets.portions import empty
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError, expand_user, import_extra, pip_install, reason

Encode = Callable[[str], np.ndarray]  # text -> [T] integers


def make(
    name: str,
    train: Mapping[str, str],
    test: Mapping[str, str],
    window: int,
    tokenizer: str = "",
    is_natural: bool = True,
) -> RawDataset:
    """All windows x [M, window] of the clients' texts, with the character or token y [M] after each.

    The characters are those that occur, in the order of Unicode; `tokenizer` names the file of a tokenizer that takes
    their place. Without `is_natural`, examples belong to no clients. Raises `DataError` if the tokenizer cannot be read
    or no text is longer than a window.
    """
    encode, size, names = _tokens(tokenizer) if tokenizer else _characters([*train.values(), *test.values()])
    dtype = np.min_scalar_type(-size)  # signed, since uint8 means pixels
    parts = [{client: encode(text).astype(dtype) for client, text in texts.items()} for texts in (train, test)]
    if not any(len(ids) > window for ids in parts[0].values()):
        raise DataError(f"{name}: some client's texts must be longer than a window of {window}; choose a shorter one")
    examples = (cut(part, window) for part in parts)
    raw = concatenate_clients(name, *examples, inputs="text", num_classes=size)
    counts = [(sum(len(ids) <= window for ids in part.values()), len(part)) for part in parts]
    notes = [
        f"{name}: {short} of {total} {what} clients are left out: their texts are not longer than a window of {window}"
        for what, (short, total) in zip(("training", "test"), counts, strict=True)
        if short
    ]
    raw = replace(raw, label_names=names, notes=tuple(notes))
    return raw if is_natural else replace(raw, client_ids=None, test_client_ids=None, client_names=None)


def first_tokens(name: str, texts: Sequence[str], window: int, tokenizer: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The first `window` characters or tokens of each text, x [M, window], and a remark if some are longer.

    Shorter texts start with padding, a token after all others. Raises `DataError` if the tokenizer cannot be read.
    """
    encode, size, _ = _tokens(tokenizer) if tokenizer else _characters(texts)
    x = empty((len(texts), window), np.min_scalar_type(-size - 1))  # signed, since uint8 means pixels
    x[:] = size
    num_cut = 0
    for row, text in zip(x, texts, strict=True):
        ids = encode(text)
        num_cut += len(ids) > window
        row[window - len(ids[:window]) :] = ids[:window]
    return x, (f"{name}: {num_cut} of {len(texts)} texts are cut after {window} tokens",) * bool(num_cut)


def cut(texts: Mapping[str, np.ndarray], window: int) -> Iterator[ClientExamples]:
    """The examples of each client that has a text [T] with T > `window`."""
    for client, ids in texts.items():
        if len(ids) > window:
            windows = np.lib.stride_tricks.sliding_window_view(ids, window + 1)
            yield client, windows[:, :-1], windows[:, -1]


def _characters(texts: Sequence[str]) -> tuple[Encode, int, np.ndarray]:
    """An encoding by the characters of `texts`, their number and names."""
    points = lambda text: np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    alphabet = np.unique(np.concatenate([points(""), *(np.unique(points(text)) for text in texts)]))
    names = np.asarray([chr(point) for point in alphabet])
    return lambda text: np.searchsorted(alphabet, points(text)), len(alphabet), names


def _tokens(file: str) -> tuple[Encode, int, None]:
    """An encoding by the tokenizer in `file`, and the size of its vocabulary."""
    missing = f"tokenizer: needs the package tokenizers; {pip_install('huggingface')} ({{error}})"
    tokenizers = import_extra("tokenizers", DataError, missing)
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(expand_user(file)))
    except Exception as error:  # the library raises no other type
        raise DataError(f"{file}: not a tokenizer's file: {reason(error)}") from None
    return lambda text: np.asarray(tokenizer.encode(text).ids, np.int64), tokenizer.get_vocab_size(), None
