"""Windows of characters: LEAF's, those that Hugging Face rows are cut into, or numbers in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.datasets import arrays, huggingface, leaf
from fedsim.datasets.text import ALPHABET
from tests.fuzz.generated.cases import Case, Truth, data_case, pick
from tests.fuzz.generated.folders import put, replace, write_leaf
from tests.fuzz.generated.tables import save_splits


def texts(rng: np.random.Generator, folder: Path) -> Case:
    """Two parts, each with a text of three clients, and all its windows with the next character."""
    form, window = pick(rng, ["LEAF", "Hugging Face", "memory"]), int(rng.integers(3, 8))
    characters = list("abc de.F" if form != "Hugging Face" else "abc déß漢")
    made = [
        {name: "".join(rng.choice(characters, int(rng.integers(12, 30)))) for name in ("al", "Bo", "cy")}
        for _ in range(2)
    ]
    if form == "Hugging Face" and rng.random() < 0.3:
        made[0]["short"] = "ab"  # left out, with a note
    place = list(ALPHABET) if form == "LEAF" else sorted({c for part in made for text in part.values() for c in text})
    users = [
        {
            name: {"x": [t[i : i + window] for i in range(len(t) - window)], "y": list(t[window:])}
            for name, t in m.items()
        }
        for m in made
    ]
    parts = [_truth(part, place) for part in users]
    if form == "LEAF":
        if fault := pick(rng, TEXT_FAULTS, 0.4):
            TEXT_FAULTS[fault](users[0]["cy"])
        for split, part in zip(("train", "test"), users, strict=True):
            write_leaf(rng, folder / split, part)
        return data_case(form, fault, lambda: leaf.read_folder(folder), parts, True)
    if form == "memory":
        dtype, num_classes = pick(rng, ["uint8", "int8", "int32", "int64", ">i2"]), len(place)
        (x, y, ids), (x_test, y_test, test_ids) = ((p.x.astype(dtype), p.y, p.owner) for p in parts)
        options = {"test_client_ids": test_ids, "inputs": "text", "num_classes": num_classes}
        read = lambda: arrays.from_arrays(x, y, ids, x_test, y_test, **options)
        return data_case(f"{form}, {dtype}", "", read, parts, True)
    fault = pick(rng, ["no text"], 0.3)
    rows = pd.DataFrame([row for part in made for row in part.items()], columns=["who", "line"])
    rows.loc[0, "line"] = None if fault else rows.line[0]
    save_splits(rows, [len(made[0]), 3], np.random.default_rng(4), folder)  # one whose splits are alike
    read = lambda: huggingface.huggingface(0, path=str(folder), text="line", client="who", window=window)
    return data_case(f"{form}, window {window}", fault, read, parts, True)


def _truth(users: dict[str, Any], place: list[str]) -> Truth:
    rows = [(*row, i) for i, user in enumerate(users.values()) for row in zip(user["x"], user["y"], strict=True)]
    x, y, owner = zip(*rows, strict=True)
    return Truth(
        np.asarray([[place.index(c) for c in text] for text in x], float),
        np.asarray([place.index(c) for c in y]),
        np.asarray(owner),
    )


TEXT_FAULTS: dict[str, Callable[[dict], Any]] = {
    "label number": put("y", 3, -1),
    "file names": replace("x", lambda i, text: f"{i:03d}.png"),
    "other length": lambda user: user["x"].__setitem__(-1, user["x"][-1] + "a"),
    "word as label": put("y", "ab"),
    "unknown character": lambda user: user["x"].__setitem__(0, "é" * len(user["x"][0])),
}
