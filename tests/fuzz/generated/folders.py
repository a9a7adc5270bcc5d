"""LEAF's folders, and pictures saved by Hugging Face's `save_to_disk`."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from fedsim.datasets import huggingface, leaf
from tests.fuzz.generated.cases import SIDE, SITES, WORDS, Case, Truth, data_case, draw_parts, pick
from tests.fuzz.generated.tables import CLIENT, LABEL, number_names, save_splits

User = dict[str, list]


def write_leaf(rng: np.random.Generator, folder: Path, users: dict[str, User]) -> None:
    """Two files, plain or gzipped, with several users in each."""
    folder.mkdir(parents=True)
    for i in range(2):
        data = dict(list(users.items())[i::2])
        content = {"users": list(data), "user_data": data, "num_samples": [len(u.get("y", ())) for u in data.values()]}
        if rng.random() < 0.2:
            del content["num_samples"]
        text = json.dumps(content, ensure_ascii=bool(rng.random() < 0.5)).encode()
        is_gzipped = rng.random() < 0.4
        path = folder / f"{'ba'[i]}.json{'.gz' * is_gzipped}"
        path.write_bytes(gzip.compress(text) if is_gzipped else text)
    (folder / "README.md").write_text("not data")


def leaf_folder(rng: np.random.Generator, folder: Path) -> Case:
    """Vectors, and images as vectors or nested lists; labels are numbers or digits."""
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
    if fault := pick(rng, LEAF_FAULTS, 0.4):
        LEAF_FAULTS[fault](splits[0][max(splits[0])])
    for split, users in zip(("train", "test"), splits, strict=True):
        write_leaf(rng, folder / split, users)
    if not fault and rng.random() < 0.15:
        fault, path = "truncated", next((folder / "train").glob("*.json*"))
        path.write_bytes(path.read_bytes()[:-20])
    form = f"{kind}, {label_form} labels{', nested' * is_nested}{', 0 to 255' * (not is_scaled)}"
    return data_case(form, fault, lambda: leaf.read_folder(folder), parts, True)


def put(key: str, value: Any, place: int = 0) -> Callable[[User], Any]:
    """A change of one value of a user."""
    return lambda user: user[key].__setitem__(place, value)


def replace(key: str, make: Callable[[int, Any], Any]) -> Callable[[User], Any]:
    """A change of all values of a user."""
    return lambda user: user.update({key: [make(i, value) for i, value in enumerate(user[key])]})


LEAF_FAULTS: dict[str, Callable[[User], Any]] = {
    "file names": replace("x", lambda i, x: f"{i:06d}.jpg"),
    "lists of words": replace("x", lambda i, x: ["a", "b"]),
    "ragged": lambda user: user["x"].__setitem__(0, user["x"][0][:-1]),
    "other length": replace("x", lambda i, x: x[:-1]),
    "null": lambda user: user["x"].__setitem__(0, [None] * len(user["x"][0])),
    "label null": put("y", None),
    "label text": put("y", "cat"),
    "label list": put("y", [0, 1]),
    "label fraction": put("y", 0.5),
    "label id": put("y", 10**8),
    "negative label": put("y", -1),
    "one label too few": lambda user: user["y"].pop(),
    "no labels": lambda user: user.pop("y"),
}
MODES: dict[str, Callable[[np.ndarray, int], Any]] = {  # of pixels uint8, and the number of the picture
    "L": lambda p, i: Image.fromarray(p),
    "LA": lambda p, i: Image.fromarray(p).convert("LA"),
    "I;16": lambda p, i: Image.fromarray(257 * p.astype(np.uint16)),
    "I": lambda p, i: Image.fromarray(p.astype(np.int32)),
    "F": lambda p, i: Image.fromarray(p.astype(np.float32)),
    "F in [0, 1]": lambda p, i: Image.fromarray(p.astype(np.float32) / 255),
    "L and RGB": lambda p, i: Image.fromarray(p).convert(("L", "RGB")[i % 2]),
    "L and I;16": lambda p, i: Image.fromarray(257 * p.astype(np.uint16) if i % 2 else p),
    "1": lambda p, i: Image.fromarray(p).convert("1"),
    **{m: lambda p, i, m=m: Image.fromarray(p).convert(m) for m in ("RGB", "RGBA", "P", "CMYK")},
}
LOSSY = {"P": "RGB", "CMYK": "RGB", "1": "L"}  # the truth is what Pillow shows


def pictures(rng: np.random.Generator, folder: Path) -> Case:
    """Pictures of all modes of Pillow that can be saved, also mixed; classes are numbers, texts or class names."""
    mode, has_clients, is_named = pick(rng, MODES), bool(rng.random() < 0.5), bool(rng.random() < 0.7)
    parts = draw_parts(rng, "rgb" if mode in ("RGB", "RGBA", "P", "CMYK") else "gray")
    y, owner = (np.concatenate([getattr(part, key) for part in parts]) for key in ("y", "owner"))
    frame = pd.DataFrame({LABEL: WORDS[y] if is_named else y} | ({CLIENT: SITES[owner]} if has_clients else {}))
    pixels = np.rint(255 * np.concatenate([part.x for part in parts])).astype(np.uint8)
    images = [MODES[mode](one.squeeze(), i) for i, one in enumerate(pixels)]
    x = pixels / 255
    if mode in LOSSY:
        x = np.stack([np.asarray(image.convert(LOSSY[mode])) for image in images]).reshape(x.shape) / 255
    x = np.repeat(x, 3, axis=-1) if mode in ("L and RGB", "LA") else x
    if fault := pick(rng, PICTURE_FAULTS, 0.35):
        images[int(rng.integers(len(images)))] = PICTURE_FAULTS[fault](images[0])
    sizes = [len(part.y) for part in parts]
    declared, broken = save_splits(frame, sizes, rng, folder, images)
    truth = (np.split(values, sizes[:1]) for values in (x, *number_names(frame, declared)))
    parts = [Truth(*part) for part in zip(*truth, strict=True)][: len(parts)]
    read = lambda: huggingface.huggingface(0, path=str(folder), label=LABEL, client=CLIENT if has_clients else "")
    return data_case(f"{mode}, class names {is_named}", fault or broken, read, parts, has_clients)


def _transparent(image: Any) -> Any:
    image = image.convert("L").convert("RGBA")
    image.putpixel((1, 1), (0, 0, 0, 0))
    return image


PICTURE_FAULTS: dict[str, Callable[[Any], Any]] = {
    "none": lambda image: None,
    "damaged": lambda image: {"bytes": b"\x89PNG\r\n\x1a\n damaged", "path": None},
    "empty": lambda image: {"bytes": b"", "path": None},
    "other size": lambda image: image.convert("L").resize((SIDE, SIDE - 1)),
    "transparent": _transparent,
    "32 bits": lambda image: Image.fromarray(1000 * np.arange(SIDE * SIDE, dtype=np.int32).reshape(SIDE, SIDE)),
}
