"""Folders saved by Hugging Face's `save_to_disk`: tables and pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.datasets import huggingface
from fedsim.datasets.raw import RawDataset
from tests.fuzz.generated.truth import NAMES, SIDE, SITES, Case, Truth, draw_parts


def features(**kinds: Any) -> Any:
    import datasets

    return datasets.Features(kinds)


def save(folder: Path, splits: dict[str, tuple[dict, Any]]) -> None:
    import datasets

    datasets.disable_progress_bars()
    saved = {split: datasets.Dataset.from_dict(rows, features=kinds) for split, (rows, kinds) in splits.items()}
    (saved["train"] if len(saved) == 1 else datasets.DatasetDict(saved)).save_to_disk(folder)


def _hf_labels(rng: np.random.Generator, classes: list[str], y: np.ndarray, kind: str) -> tuple[list, Any, list[str]]:
    """Labels in a form, its type, and the names in the order of the split."""
    import datasets

    if kind == "names":
        order = rng.permutation(len(classes))
        names = [classes[i] for i in order]
        return [int(np.flatnonzero(order == label)[0]) for label in y], datasets.ClassLabel(names=names), names
    if kind == "int":
        return y.tolist(), datasets.Value(rng.choice(["int64", "int32", "uint8"])), []
    return [classes[label] for label in y], datasets.Value(rng.choice(["string", "large_string"])), []


def _hf_targets(rng: np.random.Generator, parts: list[Truth], has_clients: bool) -> tuple[str, list[tuple[dict, dict]]]:
    """The columns label and site of each split, and their types; renumbers the true classes as they are told."""
    import datasets

    classes = sorted(str(name) for name in rng.choice(NAMES, int(max(p.y.max() for p in parts)) + 1, replace=False))
    kinds = ["int"] * len(parts) if rng.random() < 0.3 else [str(rng.choice(["names", "text"])) for _ in parts]
    sites, columns, declared = str(rng.choice(["text", "int", "huge", "names"])), [], None
    for part, kind in zip(parts, kinds, strict=True):
        labels, label_type, names = _hf_labels(rng, classes, part.y, kind)
        declared = names if declared is None else declared
        values, types = {"label": labels}, {"label": label_type}
        if has_clients:
            names_of_sites = datasets.ClassLabel(names=SITES.tolist())
            values["site"], types["site"] = {
                "text": (SITES[part.owner].tolist(), datasets.Value("string")),
                "int": (part.owner.tolist(), datasets.Value("int16")),
                "huge": ((part.owner + 2**53).tolist(), datasets.Value("int64")),
                "names": (part.owner.tolist(), names_of_sites),
            }[sites]
        columns.append((values, types))
    if kinds[0] == "names":  # numbers are those of the split train
        place = np.asarray([declared.index(name) for name in classes])
        for part in parts:
            part.y = place[part.y]
    return f"labels {', '.join(kinds)}" + f", sites {sites}" * has_clients, columns


def _read_hf(folder: Path, has_clients: bool) -> RawDataset:
    return huggingface.huggingface(0, path=str(folder), label="label", client="site" if has_clients else "")


def hf_table(rng: np.random.Generator, folder: Path) -> Case:
    """Columns of numbers, texts, class names and truth values; class names in another order in each split."""
    import datasets

    train, test = draw_parts(rng, "vector")
    parts, has_clients = [train] + ([test] if test else []), bool(rng.random() < 0.6)
    form, columns = _hf_targets(rng, parts, has_clients)
    extra = str(rng.choice(["none", "text", "names", "bool", "decimal", "int"]))
    words = [rng.integers(0, 3, len(part.y)) for part in parts]
    for word in words:
        word[:3] = 0, 1, 2
    for (values, types), part, word in zip(columns, parts, words, strict=True):
        for i in range(2):
            values[f"n{i}"], types[f"n{i}"] = part.x[:, i].tolist(), datasets.Value("float64")
        if extra == "text":
            values["extra"], types["extra"] = SITES[word].tolist(), datasets.Value("string")
        elif extra == "names":
            order = rng.permutation(3)
            values["extra"] = [int(np.flatnonzero(order == i)[0]) for i in word]
            types["extra"] = datasets.ClassLabel(names=SITES[order].tolist())
        elif extra == "bool":
            values["extra"], types["extra"] = (word > 0).tolist(), datasets.Value("bool")
        elif extra == "int":
            values["extra"], types["extra"] = word.tolist(), datasets.Value("int8")
        elif extra == "decimal":
            from decimal import Decimal

            values["extra"], types["extra"] = [Decimal(int(i)) / 2 for i in word], datasets.Value("decimal128(6, 2)")
    numbers, word = np.concatenate([part.x[:, :2] for part in parts]), np.concatenate(words)
    standardize = lambda a: (a - a.mean(0)) / a.std(0)
    onehot = (SITES[word][:, None] == np.sort(SITES[:3])).astype(float)
    more = {"text": onehot, "names": onehot, "bool": (word > 0)[:, None], "none": word[:, None][:, :0]}
    x = np.concatenate([standardize(numbers), more.get(extra, standardize(word[:, None].astype(float)))], axis=1)
    for part, values in zip(parts, np.split(x, [len(train.y)]), strict=False):
        part.x = values
    fault = rng.choice(list(HF_FAULTS)) if rng.random() < 0.4 else ""
    if fault and HF_FAULTS[fault](*columns[-1], len(parts)) is False:
        fault = ""
    splits = dict(zip(("train", "test"), columns, strict=False))
    save(folder, {name: (values, features(**types)) for name, (values, types) in splits.items()})
    return Case(
        f"hf table {form}, extra {extra}", fault, lambda: _read_hf(folder, has_clients), train, test, has_clients
    )


def _missing(column: str) -> Callable[..., Any]:
    return lambda values, types, num: values[column].__setitem__(1, None) if column in values else False


def _add(column: str, value: Any, make_type: Callable[[], Any]) -> Callable[..., Any]:
    def change(values: dict, types: dict, num: int) -> None:
        values[column], types[column] = [value] * len(values["label"]), make_type()

    return change


def _value(kind: str) -> Callable[[], Any]:
    import datasets

    return lambda: datasets.Value(kind)


def _no_label(values: dict, types: dict, num: int) -> Any:
    import datasets

    if not isinstance(types["label"], datasets.ClassLabel):
        return False
    values["label"] = [-1] * len(values["label"])
    return None


def _sequence() -> Any:
    import datasets

    return datasets.Sequence(datasets.Value("float32"))


HF_FAULTS: dict[str, Callable[..., Any]] = {
    "missing label": _missing("label"),
    "missing site": _missing("site"),
    "missing number": _missing("n0"),
    "missing extra": _missing("extra"),
    "no labels (-1)": _no_label,
    "list": _add("list", [1.0, 2.0], _sequence),
    "date": _add("date", 0, lambda: _value("timestamp[s]")()),
    "bytes": _add("bytes", b"a", lambda: _value("binary")()),
    "column of one split": lambda values, types, num: (
        _add("more", 1, _value("int64"))(values, types, num) if num > 1 else False
    ),
}


def hf_pictures(rng: np.random.Generator, folder: Path) -> Case:
    """Pictures of all modes of Pillow that can be saved, also mixed."""
    from PIL import Image

    import datasets

    mode = str(
        rng.choice(
            ["L", "RGB", "RGBA", "LA", "I;16", "I", "F", "F in [0, 1]", "L and RGB", "L and I;16", "P", "1", "CMYK"]
        )
    )
    train, test = draw_parts(rng, "rgb" if mode in ("RGB", "RGBA", "P", "CMYK") else "gray")
    parts, has_clients = [train] + ([test] if test else []), bool(rng.random() < 0.5)
    form, columns = _hf_targets(rng, parts, has_clients)

    def picture(pixels: np.ndarray, i: int) -> Any:
        image = Image.fromarray(pixels.squeeze())
        if mode == "I;16" or (mode == "L and I;16" and i % 2):
            return Image.fromarray(257 * pixels.squeeze().astype(np.uint16))
        if mode in ("I", "F", "F in [0, 1]"):
            values = pixels.squeeze().astype({"I": np.int32}.get(mode, np.float32))
            return Image.fromarray(values / 255 if mode == "F in [0, 1]" else values)
        wanted = {"L and RGB": ("L", "RGB")[i % 2], "L and I;16": "L"}.get(mode, mode)
        return image if wanted == image.mode else image.convert(wanted)

    for (values, types), part in zip(columns, parts, strict=True):
        pixels = np.rint(255 * part.x).astype(np.uint8)
        values["image"], types["image"] = [picture(one, i) for i, one in enumerate(pixels)], datasets.Image()
        if mode in ("P", "1", "CMYK"):  # these lose something: the truth is what Pillow shows
            shown = [np.asarray(image.convert("L" if mode == "1" else "RGB")) for image in values["image"]]
            part.x = np.stack(shown).reshape(part.x.shape) / 255
        if mode in ("L and RGB", "LA"):
            part.x = np.repeat(part.x, 3, axis=-1)
    fault = rng.choice(list(PICTURE_FAULTS)) if rng.random() < 0.4 else ""
    if fault:
        images = columns[-1][0]["image"]
        images[int(rng.integers(len(images)))] = PICTURE_FAULTS[fault](images[0])
    splits = dict(zip(("train", "test"), columns, strict=False))
    save(folder, {name: (values, features(**types)) for name, (values, types) in splits.items()})
    return Case(f"hf pictures {mode}, {form}", fault, lambda: _read_hf(folder, has_clients), train, test, has_clients)


def _transparent(image: Any) -> Any:
    image = image.convert("L").convert("RGBA")
    image.putpixel((1, 1), (0, 0, 0, 0))
    return image


def _wide(image: Any) -> Any:
    from PIL import Image

    return Image.fromarray(1000 * np.arange(SIDE * SIDE, dtype=np.int32).reshape(SIDE, SIDE))


PICTURE_FAULTS: dict[str, Callable[[Any], Any]] = {
    "none": lambda image: None,
    "damaged": lambda image: {"bytes": b"\x89PNG\r\n\x1a\n damaged", "path": None},
    "empty": lambda image: {"bytes": b"", "path": None},
    "other size": lambda image: image.convert("L").resize((SIDE, SIDE - 1)),
    "transparent": _transparent,
    "32 bits": _wide,
}
