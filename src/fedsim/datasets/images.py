"""The user's folder of images: the folders that an image is in tell its class, and maybe its client and split."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import mode
from typing import Annotated, Literal, TypeAlias

import numpy as np

from fedsim.core.settings import Bounds
from fedsim.datasets.client_ids import name_remarks
from fedsim.datasets.pictures import decode, stack
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.errors import ConfigError, DataError, expand_user

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm", ".pnm")
TRAIN, TEST, OTHER = ("train", "training"), ("test", "testing"), ("val", "valid", "validation", "dev")
ORIENTATION = 0x0112  # of EXIF
BATCH_SIZE = 256  # files that are decoded ahead

Level = Literal["split", "client", "class"]
Decoded: TypeAlias = Generator[tuple[str, Callable[[], np.ndarray]], None, None]


def images(
    seed: int,
    *,
    path: Annotated[str, "a folder of images, in folders by class or by client and class"] = "",
    levels: Annotated[
        tuple[Level, ...],
        "what the folders that an image is in name, from the outermost; default: class, client and class if there are "
        "two, and before them split if the outermost are train, test, val and such",
    ] = (),
    size: Annotated[int | None, Bounds(ge=1), "height and width of all images, in pixels; default: their own"] = None,
) -> RawDataset:
    """The images of the folder, with classes and clients in the order of their names.

    They are split if a level is. Raises `ConfigError` or `DataError` if the folder has none, or they cannot be read.
    """
    if not path:
        raise ConfigError('images.path: must name a folder of images, got ""')
    folder = expand_user(path)
    files, name, notes = list(find(folder)), folder.resolve().name, []
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    if not files:
        raise DataError(f"{folder}: must be a folder of images ({', '.join(SUFFIXES)}), got none")
    levels = levels or default_levels(folder, files)
    if "class" not in levels or len(set(levels)) < len(levels):
        raise ConfigError(f"images.levels: must have class, and each level once, got {', '.join(levels)}")
    places = [file.relative_to(folder).parts[:-1] for file in files]
    for file, place in zip(files, places, strict=True):
        if len(place) != len(levels):
            raise DataError(
                f"{file}: must be in {len(levels)} folders ({'/'.join(levels)}) below {folder}, got {len(place)}; "
                "move it, or set images.levels"
            )
    names = dict(zip(levels, np.asarray(places).T, strict=True))
    is_train, is_test = np.ones(len(files), bool), np.zeros(len(files), bool)
    if "split" in names:
        is_train, is_test, unused = _splits(folder, names["split"])
        notes += [f"{name}: the split {split} is not used" for split in unused]
    order = np.concatenate([np.flatnonzero(is_train), np.flatnonzero(is_test)])
    with closing(_decoded([files[i] for i in order], folder, size)) as decoded:
        x = stack(name, decoded)
    classes, y = np.unique(names["class"][order], return_inverse=True)
    clients, ids = np.unique(names["client"][order], return_inverse=True) if "client" in names else (None, None)
    for what, of_kind in (("classes", classes), ("clients", clients)):
        notes += [f"{name}: {what} have {found}" for found in name_remarks(of_kind)]
    y, ids = y.astype(np.int32), None if ids is None else ids.astype(np.int32)
    both = RawDataset(name, x, y, x, y, len(classes), "image", ids, ids, clients, classes, tuple(notes))
    num_train = int(is_train.sum())
    return select_examples(both, slice(num_train), slice(num_train, None))


def find(folder: Path) -> Iterator[Path]:
    """The images in the folder and those below it, in order, without hidden ones."""
    is_shown = lambda name: not name.startswith((".", "__MACOSX"))
    for place, below, names in walk(folder):
        below[:] = sorted(filter(is_shown, below))
        for name in sorted(filter(is_shown, names)):
            if (file := Path(place, name)).suffix.lower() in SUFFIXES and file.is_file():
                yield file


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, also into linked folders, but not into links to a folder above, which would have no end."""
    for place, below, names in os.walk(folder, followlinks=True):
        above = {path.resolve() for path in (Path(place), *Path(place).parents)}
        below[:] = [name for name in below if Path(place, name).resolve() not in above]
        yield place, below, names


def default_levels(folder: Path, files: Sequence[Path]) -> tuple[Level, ...]:
    """What the folders name, by their number and by names of splits. Raises `DataError` if that is not clear."""
    paths = [file.relative_to(folder) for file in files]
    depth = mode(len(path.parts) - 1 for path in paths)
    outermost = {path.parts[0].lower() for path in paths}
    split: tuple[Level, ...] = ("split",) if outermost <= {*TRAIN, *TEST, *OTHER} else ()
    levels: dict[int, tuple[Level, ...]] = {1: ("class",), 2: ("client", "class")}
    if depth - len(split) not in levels:
        example = next(path for path in paths if len(path.parts) - 1 == depth)
        raise DataError(
            f"{folder}: images must be in folders by class, or by client and class, got {example}; set images.levels"
        )
    return (*split, *levels[depth - len(split)])


def sizes(files: Sequence[Path]) -> set[tuple[int, int]]:
    """The widths and heights of the images `files`, without decoding them. Raises `DataError` if a file is no image."""
    from PIL import Image

    found = set()
    for file in files:
        try:
            with Image.open(file) as picture:
                is_turned = picture.getexif().get(ORIENTATION, 1) >= 5
                found.add(picture.size[::-1] if is_turned else picture.size)
        except Exception as error:  # of many types
            raise DataError(f"{file}: not an image: {error}") from None
    return found


def _splits(folder: Path, names: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Which images are for training and for the test, and the names of splits that are not used.

    Without a split for the test, one for validation takes its place.
    """
    lower = np.char.lower(names)
    has_test = np.isin(lower, TEST).any()
    is_train, is_test = np.isin(lower, TRAIN), np.isin(lower, TEST if has_test else OTHER)
    if not is_train.any():
        raise DataError(f"{folder}: must have a folder train, got {', '.join(np.unique(names))}")
    return is_train, is_test, np.unique(names[~is_train & ~is_test]).tolist()


def _decoded(files: Sequence[Path], folder: Path, size: int | None) -> Decoded:
    """Each file, as `stack` takes it; the next ones are decoded meanwhile."""
    pool = ThreadPoolExecutor()
    try:
        for start in range(0, len(files), BATCH_SIZE):
            batch = files[start : start + BATCH_SIZE]
            for file, future in [(file, pool.submit(_read_file, file, size)) for file in batch]:
                yield str(file.relative_to(folder)), future.result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_file(file: Path, size: int | None) -> np.ndarray:
    from PIL import Image, ImageOps

    with Image.open(file) as picture:
        ImageOps.exif_transpose(picture, in_place=True)
        return decode(picture, size)
