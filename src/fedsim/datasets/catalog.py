"""The data sets of this machine: preparing and listing them."""

import json
from pathlib import Path
from typing import NamedTuple

from fedsim.config.kinds import KINDS
from fedsim.datasets import cache, cifar10, cifar100, digits, emnist, mnist, prepared, shakespeare
from fedsim.datasets.download import Progress, fetch
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

PREPARED = ("cifar10", "cifar100", "mnist", "fashion_mnist", "emnist_balanced", "femnist", "shakespeare")
DOWNLOADS = {
    "cifar10": [cifar10.ARCHIVE],
    "cifar100": [cifar100.ARCHIVE],
    "mnist": mnist.list_downloads("mnist"),
    "fashion_mnist": mnist.list_downloads("fashion_mnist"),
    "shakespeare": [shakespeare.ARCHIVE],
} | {f"emnist_{split}": [emnist.ARCHIVE] for split in emnist.LABELS}
FEMNIST_HELP = (
    "femnist: must come from LEAF; clone https://github.com/TalwalkarLab/leaf, run `preprocess.sh -s niid --sf 1.0 "
    "-k 0 -t sample` in its data/femnist, then `fedsim data prepare femnist --from leaf/data/femnist/data`"
)


class DatasetInfo(NamedTuple):
    """A data set in the list; None: not known."""

    name: str
    location: str  # its folder, or why it cannot be used
    num_clients: int | None = None  # natural ones
    num_train: int | None = None
    num_test: int | None = None


def prepare(name: str, source: Path | None, force: bool, progress: Progress) -> RawDataset:
    """Prepares the data set `name` from `source`, or from its downloads, and returns it.

    Prepares nothing if it is prepared already, unless `force`. Raises `DataError` on failure, which keeps what was
    prepared before.
    """
    if name in KINDS["data.name"].built_in and name not in (*PREPARED, "emnist", "tfds"):
        raise DataError(f'{name}: there is nothing to prepare; use data.name = "{name}"')
    if source is not None and not source.exists():
        raise DataError(f"{source}: no such file or folder")
    name = prepared.resolve_name(name)
    folder = prepared.find_folder(name)
    if folder is not None and source is not None and not force:
        raise DataError(f"{name}: is prepared already in {folder}; add --force to prepare it from {source}")
    if folder is None or force:
        prepared.require_tfds()
        from fedsim.datasets import builders

        directory = prepared.directory()
        directory.mkdir(parents=True, exist_ok=True)
        if name in builders.BUILDERS:
            builders.prepare(name, directory, source=source or _download(name, progress), progress=progress)
        elif source is not None:
            raise DataError(
                f"--from: must be left out for {name}, which tensorflow-datasets downloads itself; it is for "
                f"{', '.join(builders.BUILDERS)}"
            )
        else:
            progress("preparing", 0, 0)
            folder = builders.prepare(name, directory)
            name = str(folder.parent.relative_to(directory))  # emnist is prepared as emnist/byclass
    progress("decoding", 0, 0)
    return prepared.load(name)


def _download(name: str, progress: Progress) -> Path:
    """The downloaded file, or the folder of several."""
    if name not in DOWNLOADS:
        raise DataError(FEMNIST_HELP)
    folder, files = cache.directory() / "downloads", DOWNLOADS[name]
    if len(files) > 1:  # other data sets may have files of the same names
        folder /= name
    paths = [fetch(file, folder, progress) for file in files]
    return folder if len(paths) > 1 else paths[0]


def list_datasets() -> list[DatasetInfo]:
    """fedsim's data sets, and others prepared by TFDS, with the sizes that their files state."""
    directory = prepared.directory()
    paths = [path for depth in ("*/*", "*/*/*") for path in directory.glob(f"{depth}/dataset_info.json")]
    names = sorted(str(path.parent.parent.relative_to(directory)) for path in paths)
    others = filter(prepared.NAME.fullmatch, names)  # others are being prepared, or of other programs
    raw = digits.digits(seed=0)
    bundled = DatasetInfo("digits", "comes with fedsim", None, len(raw.y), len(raw.y_test))
    return [bundled, *(_read_info(name) for name in dict.fromkeys((*PREPARED, *others)))]


def _read_info(name: str) -> DatasetInfo:
    folder = prepared.find_folder(name)
    if folder is None:
        return DatasetInfo(name, f"not prepared: `fedsim data prepare {name}`")
    try:
        info = json.loads((folder / "dataset_info.json").read_text())
        records = {split["name"]: sum(map(int, split["shardLengths"])) for split in info["splits"]}
        if not (folder / "metadata.json").exists():
            return DatasetInfo(name, str(folder), None, records.get("train"), records.get("test"))
        examples = json.loads((folder / "metadata.json").read_text()).get("num_examples", {})
        return DatasetInfo(name, str(folder), records.get("train"), examples.get("train"), examples.get("test"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return DatasetInfo(name, f"broken: {folder}; `fedsim data prepare {name} --force`")
