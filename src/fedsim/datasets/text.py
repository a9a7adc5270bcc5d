"""Characters as numbers: LEAF's alphabet for Shakespeare."""

import numpy as np

# The 80 characters, in LEAF's order.
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_POSITION = {letter: i for i, letter in enumerate(LETTERS)}


def encode(text: str) -> np.ndarray:
    """The characters of `text` as int8 positions in `LETTERS`; `ValueError` where one is not among them."""
    try:
        return np.asarray([_POSITION[letter] for letter in text], np.int8)
    except KeyError as error:
        raise ValueError(f"the character {error} is not one of LEAF's 80") from None


def decode(characters: np.ndarray) -> str:
    """The text that `encode` made `characters` [T] of."""
    return "".join(LETTERS[i] for i in characters)
