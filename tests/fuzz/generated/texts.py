"""Windows of characters in all forms."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.datasets import arrays, huggingface, leaf
from tests.fuzz.generated.leaf_folders import replace_values, write
from tests.fuzz.generated.saved_datasets import features, save
from tests.fuzz.generated.truth import Case, Truth


def _windows(texts: dict[str, str], window: int) -> tuple[list[str], list[str], list[str]]:
    """Inputs, labels and owners of all windows, in the order of the owners' names."""
    rows = [
        (text[i : i + window], text[i + window], name)
        for name, text in sorted(texts.items())
        for i in range(len(text) - window)
    ]
    x, y, owners = zip(*rows, strict=True)
    return list(x), list(y), list(owners)


def texts(rng: np.random.Generator, folder: Path) -> Case:
    """Windows of characters: LEAF's, those that Hugging Face rows are cut into, or numbers in memory."""
    form, window = str(rng.choice(["leaf", "hf", "memory"])), int(rng.integers(3, 8))
    characters = list("abc de.F" if form != "hf" else "abc déß漢")
    draw = lambda: "".join(rng.choice(characters, int(rng.integers(12, 30))))
    made = [{name: draw() for name in ("al", "Bo", "cy")} for _ in range(2)]
    if form == "hf" and rng.random() < 0.3:
        made[0]["short"] = "ab"  # left out, with a note
    alphabet = sorted(set("".join("".join(part.values()) for part in made)))
    from fedsim.datasets.text import ALPHABET

    place = list(ALPHABET) if form == "leaf" else alphabet
    parts, rows = [], [_windows(part, window) for part in made]
    for x, y, owners in rows:
        numbers = np.asarray([[place.index(character) for character in text] for text in x], float)
        owner = np.unique(owners, return_inverse=True)[1]
        parts.append(Truth(numbers, np.asarray([place.index(character) for character in y]), owner))
    faults = (
        ["label number", "file names", "other length", "word as label", "unknown character"]
        if form == "leaf"
        else ["none"]
    )
    fault = str(rng.choice(faults)) if rng.random() < 0.4 and form != "memory" else ""
    if form == "leaf":
        for split, (x, y, owners) in zip(("train", "test"), rows, strict=True):
            (folder / split).mkdir(parents=True)
            users = {
                name: {
                    key: [v for v, owner in zip(values, owners, strict=True) if owner == name]
                    for key, values in (("x", x), ("y", y))
                }
                for name in dict.fromkeys(owners)
            }
            if fault and split == "train":
                TEXT_FAULTS[fault](users["cy"])
            write(rng, folder / split / "a.json", users)
        return Case("leaf texts", fault, lambda: leaf.read_folder(folder), *parts, True)
    if form == "memory":
        dtype = str(rng.choice(["uint8", "int8", "int32", "int64", ">i2"]))
        train, test = parts
        read = lambda: arrays.from_arrays(
            train.x.astype(dtype),
            train.y,
            train.owner,
            test.x.astype(dtype),
            test.y,
            inputs="text",
            num_classes=len(place),
        )
        return Case(f"memory texts {dtype}", "", read, train, test, True)
    import datasets

    splits = {}
    for split, part in zip(("train", "test"), made, strict=True):
        values = {"who": list(part), "line": list(part.values())}
        if fault:
            values["line"][0] = None
        kinds = {"who": datasets.Value("string"), "line": datasets.Value(str(rng.choice(["string", "large_string"])))}
        splits[split] = values, features(**kinds)
    save(folder, splits)
    read_hf = lambda: huggingface.huggingface(0, path=str(folder), text="line", client="who", window=window)
    return Case(f"hf texts, window {window}", fault, read_hf, *parts, True)


TEXT_FAULTS: dict[str, Callable[[dict], Any]] = {
    "label number": lambda user: user["y"].__setitem__(-1, 3),
    "file names": lambda user: replace_values(user, "x", [f"{i:03d}.png" for i in range(len(user["y"]))]),
    "other length": lambda user: user["x"].__setitem__(-1, user["x"][-1] + "a"),
    "word as label": lambda user: user["y"].__setitem__(0, "ab"),
    "unknown character": lambda user: user["x"].__setitem__(0, "é" * len(user["x"][0])),
}
