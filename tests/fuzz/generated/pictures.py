"""Pictures of all modes of Pillow that Hugging Face's `save_to_disk` can save."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from fedsim.datasets import huggingface
from tests.fuzz.generated.cases import SIDE, SITES, WORDS, Case, Truth, draw_parts, pick
from tests.fuzz.generated.tables import CLIENT, LABEL, number_names, save_splits

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
    **{m: lambda p, i, m=m: Image.fromarray(p).convert(m) for m in ("RGB", "RGBA", "P", "PA", "CMYK")},
}
LOSSY = {"P": "RGB", "PA": "RGB", "CMYK": "RGB", "1": "L"}  # the truth is what Pillow shows


def pictures(rng: np.random.Generator, folder: Path) -> Case:
    """Pictures of all modes of Pillow that can be saved, also mixed; classes are numbers, texts or class names."""
    mode, has_clients, is_named = pick(rng, MODES), bool(rng.random() < 0.5), bool(rng.random() < 0.7)
    parts = draw_parts(rng, "rgb" if mode in ("RGB", "RGBA", "P", "PA", "CMYK") else "gray")
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
    return Case(f"{mode}, class names {is_named}", fault or broken, read, parts, has_clients)


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
