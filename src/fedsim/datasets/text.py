"""Characters as integers: LEAF's alphabet for Shakespeare."""

import numpy as np

# In LEAF's order.
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_INDEX = {character: i for i, character in enumerate(ALPHABET)}


def encode(text: str) -> np.ndarray:
    """Positions [T] int8 of the characters of `text` in `ALPHABET`. Raises `ValueError` if it lacks one."""
    try:
        return np.asarray([_INDEX[character] for character in text], np.int8)
    except KeyError as error:
        raise ValueError(f"characters must be among LEAF's 80, got {error}") from None
