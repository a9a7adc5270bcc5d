"""Texts of the adapters' study: a model reads Shakespeare, and clients adapt it to Python's documentation.

`python configs/robustness/texts.py` trains the model and writes runs/adapters-base.npz.
"""

from pathlib import Path
from pydoc_data.topics import topics
from typing import Annotated, Literal

import numpy as np

import fedsim
from fedsim import Bounds, RawDataset
from fedsim.datasets import prepared, text

BASE = Path("runs/adapters-base.npz")
LEFT_OUT = "THE_"  # with which the titles of plays start that the model does not read
KINDS = ("vowel", "consonant", "capital", "space", "other")
MIN_CHARACTERS = 4_000  # of a topic

Window = Annotated[int, Bounds(ge=1), "characters of an input"]
Number = Annotated[int, Bounds(ge=1), "windows"]


def plays(seed: int, *, window: Window = 32) -> RawDataset:
    """Windows x [M, window] of a part of Shakespeare's plays, one after another, and the next characters y [M, window].

    A twentieth, of other roles, is for the test.
    """
    del seed
    raw = prepared.load("shakespeare")
    assert raw.client_ids is not None
    assert raw.client_names is not None
    is_read = ~np.char.startswith(raw.client_names, LEFT_OUT)[raw.client_ids]
    characters = raw.y[is_read]  # the windows of a role begin one character after another
    x = characters[: (len(characters) - 1) // window * window].reshape(-1, window).astype(np.int8)
    y = characters[1 : x.size + 1].reshape(x.shape)
    num_test = len(x) // 20
    parts = x[num_test:], y[num_test:], x[:num_test], y[:num_test]
    return RawDataset("plays", *parts, num_classes=len(text.ALPHABET), inputs="text")


def documentation(
    seed: int,
    *,
    target: Annotated[Literal["character", "kind"], "label: the next character, or its kind"] = "character",
    window: Window = 32,
    num_clients: Annotated[int, Bounds(ge=1), "topics whose windows are for training"] = 10,
    num_train: Number = 1_000,
    num_test: Number = 2_000,
) -> RawDataset:
    """Windows of topics of Python's documentation, drawn by `seed`; those of one topic are a client.

    Topics have equally many windows, and kinds are equally frequent if they are the labels. The test has other topics.
    """
    rng = np.random.default_rng(seed)
    known = set(text.ALPHABET)
    spelled = [" ".join("".join(c if c in known else " " for c in topic).split()) for topic in topics.values()]
    texts = [text.encode(topic) for topic in spelled if len(topic) >= MIN_CHARACTERS]
    order = rng.permutation(len(texts))
    kinds = np.asarray([_kind(character) for character in text.ALPHABET])

    def draw(clients: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Windows [number, window] of these topics, their labels and clients."""
        x, y, owners = [], [], []
        for client, size in enumerate(_parts(number, len(clients))):
            windows = np.lib.stride_tricks.sliding_window_view(texts[clients[client]], window + 1)
            labels = windows[:, -1] if target == "character" else kinds[windows[:, -1]]
            groups = [labels >= 0] if target == "character" else [labels == kind for kind in range(len(KINDS))]
            for group, size_of_group in zip(groups, _parts(size, len(groups)), strict=True):
                chosen = rng.choice(np.flatnonzero(group), size_of_group, replace=False)
                x.append(windows[chosen, :-1])
                y.append(labels[chosen])
                owners.append(np.full(size_of_group, client))
        return np.concatenate(x), np.concatenate(y).astype(np.int32), np.concatenate(owners)

    x, y, owners = draw(order[:num_clients], num_train)
    x_test, y_test, _ = draw(order[num_clients:], num_test)
    names = np.asarray(list(text.ALPHABET) if target == "character" else KINDS)
    return RawDataset(
        f"documentation-{target}", x, y, x_test, y_test, len(names), inputs="text", client_ids=owners, label_names=names
    )


def _parts(number: int, num_parts: int) -> list[int]:
    """Sizes that differ by at most one and sum to `number`."""
    return [number // num_parts + (part < number % num_parts) for part in range(num_parts)]


def _kind(character: str) -> int:
    """The position in `KINDS` of a character."""
    if character in "aeiou":
        return 0
    return 1 if character.islower() else 2 if character.isupper() else 3 if character == " " else 4


def main() -> None:
    """Trains the base model and saves its arrays."""
    tables = {
        "name": "adapters-base",
        "data": {"name": f"{__file__}:plays", "num_clients": 1},
        "model": {"name": "transformer"},
        "client": {"optimizer": "adam", "learning_rate": 0.002, "batch_size": 128, "steps": 500},
        "server": {"aggregator": "fedavg", "cohort_size": 1, "num_rounds": 10, "eval_every": 1},
        "record": {"models": True, "losses": False},
    }
    result = fedsim.run(fedsim.load(tables), out=BASE.with_suffix(""))
    np.savez(BASE, **result.model(0).arrays)
    print(f"{BASE}: predicts {100 * result.rounds['test_accuracy'][-1]:.1f} % of the characters of other roles")


if __name__ == "__main__":
    main()
