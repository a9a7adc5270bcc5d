"""Texts of the adapters' study: a model is trained on some plays of Shakespeare and adapted to others by clients.

`python configs/adapters/shakespeare.py` trains the model and writes runs/adapters-base.npz.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

import fedsim
from fedsim import Bounds, RawDataset
from fedsim.datasets import prepared
from fedsim.datasets.text import ALPHABET

BASE = Path("runs/adapters-base.npz")
OF_CLIENTS = "THE_"  # with which the titles of their plays start
KINDS = ("vowel", "consonant", "capital", "space", "other")
MIN_CHARACTERS = 5_000  # of a client's role

Window = Annotated[int, Bounds(ge=1), "characters of an input"]
Number = Annotated[int, Bounds(ge=1), "windows"]


def base_plays(seed: int, *, window: Window = 32) -> RawDataset:
    """All windows x [M, window] of the plays that no client has, one after another, and the next characters y."""
    del seed
    text = np.concatenate([text for name, text in _roles() if not name.startswith(OF_CLIENTS)])
    x = text[: (len(text) - 1) // window * window].reshape(-1, window)
    y = text[1 : x.size + 1].reshape(x.shape).astype(np.int32)
    num_test = len(x) // 20
    parts = x[num_test:], y[num_test:], x[:num_test], y[:num_test]
    return RawDataset("base-plays", *parts, num_classes=len(ALPHABET), inputs="text")


def other_plays(
    seed: int,
    *,
    target: Annotated[Literal["character", "kind"], "label: the next character, or which kind it is"] = "character",
    window: Window = 32,
    num_clients: Annotated[int, Bounds(ge=1), "roles whose windows are for training"] = 10,
    num_train: Number = 1_000,
    num_test: Number = 2_000,
) -> RawDataset:
    """Windows of roles of the other plays, drawn by `seed`; those of one role are a client. Kinds are equally frequent.

    Test windows are of roles that are no clients.
    """
    rng = np.random.default_rng(seed)
    texts = [text for name, text in _roles() if name.startswith(OF_CLIENTS) and len(text) >= MIN_CHARACTERS]
    order = rng.permutation(len(texts))
    names = np.asarray(KINDS if target == "kind" else list(ALPHABET))

    def draw(roles: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Windows [number, window] of these roles, equally many of each, their labels and roles."""
        x, y, owners = [], [], []
        for role, positions in enumerate(np.array_split(np.arange(number), len(roles))):
            text = texts[roles[role]]
            windows = np.lib.stride_tricks.sliding_window_view(text, window + 1)
            labels = _kinds(windows[:, -1]) if target == "kind" else windows[:, -1]
            classes = range(len(KINDS)) if target == "kind" else [None]
            for label, part in zip(classes, np.array_split(positions, len(classes)), strict=True):
                among = np.arange(len(labels)) if label is None else np.flatnonzero(labels == label)
                chosen = rng.choice(among, len(part), replace=False)
                x.append(windows[chosen, :-1])
                y.append(labels[chosen])
                owners.append(np.full(len(part), role))
        return np.concatenate(x), np.concatenate(y).astype(np.int32), np.concatenate(owners)

    x, y, owners = draw(order[:num_clients], num_train)
    x_test, y_test, _ = draw(order[num_clients:], num_test)
    return RawDataset(
        f"other-plays-{target}", x, y, x_test, y_test, len(names), inputs="text", client_ids=owners, label_names=names
    )


def _kinds(characters: np.ndarray) -> np.ndarray:
    """The position in `KINDS` of each character."""
    kind = lambda c: 0 if c in "aeiou" else 1 if c.islower() else 2 if c.isupper() else 3 if c == " " else 4
    return np.asarray([kind(c) for c in ALPHABET])[characters]


def _roles() -> Iterator[tuple[str, np.ndarray]]:
    """Each role's name, which starts with the title of its play, and its text as characters [T]."""
    raw = prepared.load("shakespeare")
    assert raw.client_ids is not None
    assert raw.client_names is not None
    ends = np.searchsorted(raw.client_ids, np.arange(len(raw.client_names) + 1))
    for name, first, last in zip(raw.client_names.tolist(), ends, ends[1:], strict=False):
        yield name, np.concatenate([raw.x[first], raw.y[first:last]]).astype(np.int8)


def main() -> None:
    """Trains the base model and saves its arrays."""
    tables = {
        "name": "adapters-base",
        "data": {"name": f"{__file__}:base_plays", "num_clients": 1},
        "model": {"name": "transformer"},
        "client": {"optimizer": "adam", "learning_rate": 0.002, "batch_size": 128, "steps": 500},
        "server": {"aggregator": "fedavg", "cohort_size": 1, "num_rounds": 10, "eval_every": 1},
        "record": {"models": True, "losses": False},
    }
    result = fedsim.run(fedsim.load(tables), out=BASE.with_suffix(""))
    np.savez(BASE, **result.model(0).arrays)
    print(f"{BASE}: next characters of other roles {100 * result.rounds['test_accuracy'][-1]:.1f} %")


if __name__ == "__main__":
    main()
