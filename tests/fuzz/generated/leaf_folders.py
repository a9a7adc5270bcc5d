"""Folders in LEAF's format."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.datasets import leaf
from tests.fuzz.generated.truth import SITES, Case, draw_parts, draw_truth


def leaf_folder(rng: np.random.Generator, folder: Path) -> Case:
    """Files of users, plain or gzipped, several users in each."""
    kind = rng.choice(["gray", "vector"])
    train, test = draw_parts(rng, kind)
    test = test or draw_truth(rng, 16, kind, 2, 2)
    label_form = rng.choice(["int", "float", "digits", "digits of some"])
    nested = kind == "gray" and rng.random() < 0.3
    scaled = kind != "gray" or rng.random() < 0.7
    parts: dict[str, dict[str, dict[str, list]]] = {}
    for split, part in (("train", train), ("test", test)):
        users: dict[str, dict[str, list]] = {}
        for owner in np.unique(part.owner):
            mine = part.owner == owner
            x = part.x[mine] if nested else part.x[mine].reshape(mine.sum(), -1)
            x = x if scaled else np.rint(255 * x).astype(int)
            convert = {"int": int, "float": float, "digits": str}.get(label_form, str if owner % 2 else int)
            users[f"user {SITES[owner]}"] = {"x": x.tolist(), "y": [convert(int(label)) for label in part.y[mine]]}
        parts[split] = users
    fault = rng.choice(list(LEAF_FAULTS)) if rng.random() < 0.4 else ""
    if fault:
        LEAF_FAULTS[fault](parts["train"], parts["train"][sorted(parts["train"])[-1]])
    for split, users in parts.items():
        (folder / split).mkdir(parents=True)
        for i in range(2):
            write(rng, folder / split / f"{'ba'[i]}.json", dict(list(users.items())[i::2]))
    (folder / "train" / "README.md").write_text("not data")
    if not fault and rng.random() < 0.15:
        fault, path = "truncated", sorted((folder / "train").glob("*.json*"))[0]
        path.write_bytes(path.read_bytes()[:-20])
    if kind == "vector":
        for part in (train, test):
            part.x = part.x.astype(np.float32).astype(np.float64)
    form = f"leaf {kind}, {label_form} labels" + ", nested" * nested + ", 0 to 255" * (not scaled)
    return Case(form, fault, lambda: leaf.read_folder(folder), train, test, True)


def write(rng: np.random.Generator, path: Path, users: dict) -> None:
    content: dict[str, Any] = {
        "users": list(users),
        "user_data": users,
        "num_samples": [len(u.get("y", ())) for u in users.values()],
    }
    if rng.random() < 0.2:
        del content["num_samples"]
    text = json.dumps(content, ensure_ascii=bool(rng.random() < 0.5)).encode()
    if rng.random() < 0.4:
        path, text = path.with_suffix(".json.gz"), gzip.compress(text)
    path.write_bytes(text)


def replace_values(user: dict, key: str, value: Any) -> None:
    user[key] = value


LEAF_FAULTS: dict[str, Callable[[dict, dict], Any]] = {
    "file names": lambda users, user: replace_values(user, "x", [f"{i:06d}.jpg" for i in range(len(user["y"]))]),
    "lists of words": lambda users, user: replace_values(user, "x", [["a", "b"] for _ in user["y"]]),
    "ragged": lambda users, user: user["x"].__setitem__(0, user["x"][0][:-1]),
    "other length": lambda users, user: replace_values(user, "x", [x[:-1] for x in user["x"]]),
    "null": lambda users, user: user["x"].__setitem__(0, [None] * len(user["x"][0])),
    "label null": lambda users, user: user["y"].__setitem__(0, None),
    "label text": lambda users, user: user["y"].__setitem__(0, "cat"),
    "label list": lambda users, user: user["y"].__setitem__(0, [0, 1]),
    "label fraction": lambda users, user: user["y"].__setitem__(0, 0.5),
    "label id": lambda users, user: user["y"].__setitem__(0, 10**8),
    "negative label": lambda users, user: user["y"].__setitem__(0, -1),
    "one label too few": lambda users, user: user["y"].pop(),
    "no labels": lambda users, user: user.pop("y"),
}
