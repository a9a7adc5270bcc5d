"""LEAF's folders, and windows of characters in all forms."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.datasets import arrays, huggingface, leaf
from fedsim.datasets.text import ALPHABET
from tests.fuzz.generated.cases import HAS_DATASETS, SITES, Case, Truth, draw_parts, pick
from tests.fuzz.generated.tables import save_splits

User = dict[str, list]
Faults = dict[str, Callable[[User], Any]]


def put(key: str, change: Callable[[Any], Any], place: int = 0) -> Callable[[User], Any]:
    """A change of one value of a user."""
    return lambda user: user[key].__setitem__(place, change(user[key][place]))


def replace(key: str, change: Callable[[int, Any], Any]) -> Callable[[User], Any]:
    """A change of all values of a user."""
    return lambda user: user.update({key: [change(i, value) for i, value in enumerate(user[key])]})


NUMBER_FAULTS: Faults = {
    "file names": replace("x", lambda i, x: f"{i:06d}.jpg"),
    "lists of words": replace("x", lambda i, x: ["a", "b"]),
    "other length": replace("x", lambda i, x: x[:-1]),
    "ragged": put("x", lambda x: x[:-1]),
    "null": put("x", lambda x: [None] * len(x)),
    **{f"label {v}": put("y", lambda y, v=v: v) for v in (None, "cat", [0, 1], 0.5, 10**8, -1)},
    "one label too few": lambda user: user["y"].pop(),
    "no labels": lambda user: user.pop("y"),
}
TEXT_FAULTS: Faults = {
    "file names": replace("x", lambda i, text: f"{i:03d}.png"),
    "label number": put("y", lambda y: 3, -1),
    "other length": put("x", lambda text: text + "a", -1),
    "word as label": put("y", lambda y: "ab"),
    "unknown character": put("x", lambda text: "é" * len(text)),
}


def _write(rng: np.random.Generator, folder: Path, splits: list[dict[str, User]], faults: Faults) -> str:
    """Two files for each split, plain or gzipped, with several users in each; returns the fault."""
    if fault := pick(rng, faults, 0.4):
        faults[fault](splits[0][max(splits[0])])
    for split, users in zip(("train", "test"), splits, strict=True):
        (folder / split).mkdir(parents=True)
        (folder / split / "README.md").write_text("not data")
        for i, name in enumerate("ba"):
            data, is_gzipped = dict(list(users.items())[i::2]), rng.random() < 0.4
            sizes = {"num_samples": [len(u.get("y", ())) for u in data.values()]} if rng.random() < 0.8 else {}
            content = {"users": list(data), "user_data": data, **sizes}
            text = json.dumps(content, ensure_ascii=bool(rng.random() < 0.5)).encode()
            text = gzip.compress(text) if is_gzipped else text
            if is_broken := not fault and split == "train" and rng.random() < 0.08:
                fault = "truncated"
            (folder / split / f"{name}.json{'.gz' * is_gzipped}").write_bytes(text[: -20 if is_broken else None])
    return fault


def numbers(rng: np.random.Generator, folder: Path) -> Case:
    """LEAF's vectors, and images as vectors or nested lists; labels are numbers or digits."""
    kind, label_form = pick(rng, ["gray", "vector"]), pick(rng, ["int", "float", "digits", "digits of some"])
    parts, splits = draw_parts(rng, kind, 1.0), []
    is_nested, is_scaled = kind == "gray" and rng.random() < 0.3, kind != "gray" or rng.random() < 0.7
    for part in parts:
        users = {}
        for owner in np.unique(part.owner):
            x = part.x[part.owner == owner]
            x = (x if is_scaled else np.rint(255 * x).astype(int)).reshape(x.shape if is_nested else (len(x), -1))
            convert = {"int": int, "float": float, "digits": str}.get(label_form, str if owner % 2 else int)
            labels = [convert(int(label)) for label in part.y[part.owner == owner]]
            users[f"user {SITES[owner]}"] = {"x": x.tolist(), "y": labels}
        splits.append(users)
    fault = _write(rng, folder, splits, NUMBER_FAULTS)
    form = f"{kind}, {label_form} labels{', nested' * is_nested}{', 0 to 255' * (not is_scaled)}"
    return Case(form, fault, lambda: leaf.read_folder(folder), parts, True)


def texts(rng: np.random.Generator, folder: Path) -> Case:
    """All windows of texts of three clients and the next characters, as LEAF's, Hugging Face's, or numbers."""
    form, window = pick(rng, ["LEAF", "memory", *["Hugging Face"] * HAS_DATASETS]), int(rng.integers(3, 8))
    characters = list("abc déß漢" if form == "Hugging Face" else "abc de.F")
    draw = lambda: "".join(rng.choice(characters, int(rng.integers(12, 30))))
    made = [{name: draw() for name in ("Bo", "al", "cy")} for _ in range(2)]
    if form == "Hugging Face" and rng.random() < 0.3:
        made[0]["short"] = "ab"  # left out, with a note
    place = list(ALPHABET) if form == "LEAF" else sorted({c for part in made for text in part.values() for c in text})
    splits, parts = [], []
    for part in made:
        windows = lambda text: [text[i : i + window] for i in range(len(text) - window)]
        splits.append({name: {"x": windows(text), "y": list(text[window:])} for name, text in part.items()})
        rows = [(x, y, i) for i, u in enumerate(splits[-1].values()) for x, y in zip(u["x"], u["y"], strict=True)]
        x, y, owner = zip(*rows, strict=True)
        number = lambda texts: np.asarray([[place.index(character) for character in text] for text in texts])
        parts.append(Truth(number(x), number(y)[:, 0], np.asarray(owner)))
    if form == "LEAF":
        fault = _write(rng, folder, splits, TEXT_FAULTS)
        return Case(form, fault, lambda: leaf.read_folder(folder), parts, True)
    if form == "memory":
        dtype = pick(rng, ["uint8", "int8", "int32", "int64", ">i2"])
        (x, y, ids), (x_test, y_test, test_ids) = ((p.x.astype(dtype), p.y, p.owner) for p in parts)
        options = {"test_client_ids": test_ids, "inputs": "text", "num_classes": len(place)}
        read = lambda: arrays.from_arrays(x, y, ids, x_test, y_test, **options)
        return Case(f"{form}, {dtype}", "", read, parts, True)
    rows = pd.DataFrame([row for part in made for row in part.items()], columns=["who", "line"])
    if fault := pick(rng, ["no text"], 0.3):
        rows.loc[0, "line"] = None
    save_splits(rows, [len(made[0]), 3], rng, folder)
    read = lambda: huggingface.huggingface(0, path=str(folder), text="line", client="who", window=window)
    return Case(f"{form}, window {window}", fault, read, parts, True)
