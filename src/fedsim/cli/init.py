"""`fedsim init`: write a configuration for the user's data."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedsim.cli.data import describe_size
from fedsim.cli.init_text import NATURAL, write_text
from fedsim.errors import ConfigError, DataError, FedsimError, expand_user

if TYPE_CHECKING:
    from fedsim.datasets.raw import RawDataset

Value = TypeVar("Value")

DATA = (
    "a .csv, .tsv, .parquet or .npz file, a folder of images, of .npy files, of Hugging Face or LEAF, or a data set's "
    "name"
)
QUESTIONS = {  # by option: the question, and the default answer
    "data-path": (f"Data: {DATA}", "digits"),
    "label": ("Label: the column of the labels", ""),
    "client": ("Client: the column that names each row's client, or none", "none"),
    "clients": ("Clients: the number of clients to divide the data among, or natural for those of the data", ""),
    "suspect": ("Corruption or attack to simulate: none, shuffling, flipping, sign_flip, alie ...", "shuffling"),
}
NUM_CLIENTS = 20
MAX_SIZE = 64  # of images that differ in size, in pixels
SAVED = ("dataset_dict.json", "dataset_info.json")  # in folders of Hugging Face
NEED_SETTINGS = ("arrays", "images", "leaf", "tfds", "table", "huggingface")  # no data sets by their name alone

EPILOG = """\
examples:
  fedsim init                                                     asks a few questions, writes experiment.toml
  fedsim init hospitals.toml --data-path mine.npz --clients natural --suspect shuffling
  fedsim init patients.toml --data-path patients.csv --label diagnosis --client hospital --suspect shuffling
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "init",
        help="write a configuration for your own data, after a few questions",
        description="Writes a commented configuration. Asks for what the options do not give.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", default=Path("experiment.toml"), help="default: experiment.toml"
    )
    parser.add_argument("--data-path", metavar="PATH", help=DATA)
    parser.add_argument("--label", metavar="COLUMN", help="column of the labels, of a table")
    parser.add_argument("--client", metavar="COLUMN", help="column that names each row's client; default: none")
    parser.add_argument("--clients", metavar="N", help="number of clients, or natural for those of the data")
    parser.add_argument("--suspect", metavar="KIND", help="corruption or attack of 30 %% of the clients, or none")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def call(options: argparse.Namespace) -> None:
    """Asks the questions, checks that the answers can be run, and writes the file."""
    from fedsim.config import toml

    if options.file.suffix != ".toml":
        raise ConfigError(f"FILE: must end in .toml, got {options.file}")
    if options.file.exists() and not options.force:
        raise ConfigError(f"{options.file}: exists already; add --force to replace it, or choose another name")
    options.client = "" if options.client == "none" else options.client
    if options.client and options.clients not in (None, NATURAL):
        raise ConfigError(f"--clients {options.clients}: must be left out with --client {options.client}")
    name, folder = toml.default_name(options.file), options.file.parent
    data, (section, settings, raw) = _ask(options, "data-path", lambda data: _read(data, options))
    number = _num_clients(raw)
    if options.client:
        options.clients = NATURAL

    def write(clients: str, suspect: str) -> str:
        return write_text(name, section, settings, clients, number or NUM_CLIENTS, suspect, raw)

    def check_clients(clients: str) -> str:
        return _check(write(clients, "none"), folder, section, f"--clients {clients}: does not fit {data}")

    clients, _ = _ask(options, "clients", check_clients, NATURAL if number else str(NUM_CLIENTS))
    _, text = _ask(options, "suspect", lambda suspect: _check(write(clients, suspect), folder, section))
    folder.mkdir(parents=True, exist_ok=True)
    options.file.write_text(text, encoding="utf-8")
    if raw is not None:
        print(f"{data}: {describe_size(raw)}, {f'{raw.num_classes} classes' if raw.num_classes else 'regression'}")
    print(
        f"wrote {options.file}; `fedsim run {options.file} --dry-run` shows time and memory, without --dry-run it runs"
    )


def _num_clients(raw: "RawDataset | None") -> int:
    """The number of natural clients that have enough examples for the default test split; 0 if there are none."""
    import numpy as np

    from fedsim.datasets.sampling import split_test

    if raw is None or raw.client_ids is None:
        return 0
    split = raw if len(raw.y_test) else split_test(raw, None, np.random.default_rng(0))
    assert split.client_ids is not None
    return len(np.unique(split.client_ids))


def _ask(options: argparse.Namespace, flag: str, check: Callable[[str], Value], default: str = "") -> tuple[str, Value]:
    """The value of the option, or else the user's answer, and what `check` makes of it.

    Asks again where `check` raises a `FedsimError` for an answer.
    """
    value: str | None = getattr(options, flag.replace("-", "_"))
    if value is not None:
        return value, check(value)
    question, usual = QUESTIONS[flag]
    default = default or usual
    if not sys.stdin.isatty():
        raise ConfigError(f"--{flag}: must be given, since there is no terminal to ask at; {question}")
    while True:
        signal.siginterrupt(signal.SIGINT, True)  # polars makes reading go on after Ctrl-C
        try:
            value = input(f"{question} [{default}] ").strip() or default
            return value, check(value)
        except EOFError:
            raise ConfigError(f"--{flag}: must be answered; no file was written") from None
        except FedsimError as error:
            print(f"fedsim: error: {error}", file=sys.stderr)


def _check(text: str, folder: Path, section: str, what: str = "") -> str:
    """The configuration `text`, if it can be run. Raises `FedsimError`; of data, its message starts with `what`.

    The data are not looked at if they are not prepared yet.
    """
    from fedsim.config import toml
    from fedsim.datasets import catalog, prepared

    experiment = toml.parse(text, folder=folder)
    experiment.runs()
    if section in (*catalog.DOWNLOADS, *catalog.PREPARED, "emnist") and prepared.find_folder(section) is None:
        if not what:
            print(f"fedsim: note: {section} is not prepared; run `fedsim data prepare {section}`", file=sys.stderr)
        return text

    from fedsim.engine import devices, make_plan

    devices.use_one_per_core()
    try:
        make_plan(experiment)
    except DataError as error:
        raise DataError(f"{what}: {error}" if what else str(error)) from None
    return text


def _read(data: str, options: argparse.Namespace) -> "tuple[str, dict[str, Any], RawDataset | None]":
    """The data set's name and settings in a configuration, and its examples if they are from a file or folder.

    Raises `FedsimError` if there is no such data set, or it is wrong.
    """
    from fedsim.config.kinds import KINDS
    from fedsim.config.registry import did_you_mean, nearest
    from fedsim.datasets import arrays, huggingface, images
    from fedsim.datasets.canonical import canonicalize
    from fedsim.datasets.leaf import read_folder
    from fedsim.datasets.table_files import SUFFIXES, is_table

    path = expand_user(data)
    if path.suffix and not path.exists():
        raise DataError(f"{data}: no such file or folder")
    is_arrays = any(path.glob("*.npy"))  # rather than in LEAF's format
    is_saved = any((path / name).exists() for name in SAVED)
    pictures = [] if is_saved or is_arrays else list(images.find(path))
    is_images = any(file.parent != path for file in pictures)
    if is_table(path) and not is_images:
        label, table = _ask(options, "label", lambda label: _read_table(data, label, options.client or ""))
        if options.client is None and options.clients is None and sys.stdin.isatty():
            column, table = _ask(options, "client", lambda c: table if c == "none" else _read_table(data, label, c))
            options.client = None if column == "none" else column
        return "table", *table
    if is_saved:
        client = {"client": options.client} if options.client else {}
        read = lambda label: huggingface.huggingface(0, path=data, label=label, client=options.client or "")
        label, raw = _ask(options, "label", read)
        return "huggingface", {"path": data, "label": label} | client, canonicalize(raw, needs_test=False)
    for flag in ("label", "client"):
        if getattr(options, flag):
            raise ConfigError(
                f"--{flag}: must be left out unless --data-path is a table ({', '.join(SUFFIXES)} or Hugging Face)"
            )
    if pictures:
        return "images", *_read_images(data, pictures)
    if (path / "train").is_dir() and not is_arrays:
        return "leaf", {"path": data}, canonicalize(read_folder(path), needs_test=False)
    if path.exists():
        if not (is_arrays or path.suffix in (".npz", ".npy")):
            raise DataError(f"{data}: must be {DATA}")
        return "arrays", {"path": data}, canonicalize(arrays.read(path), needs_test=False)
    names = [name for name in KINDS["data.name"].built_in if name not in NEED_SETTINGS]
    if data not in names:
        remedy = did_you_mean(nearest(data, names)) or f"; the data sets are {', '.join(names)}"
        raise ConfigError(f"--data-path: must be an existing file or folder or a data set, got {data}{remedy}")
    return data, {}, None


def _read_images(data: str, files: "list[Path]") -> "tuple[dict[str, Any], RawDataset]":
    """The settings and images of the folder with these `files`; images of several sizes get one."""
    from fedsim.datasets import images
    from fedsim.datasets.canonical import canonicalize

    path = expand_user(data)
    levels = list(images.default_levels(path, files))
    settings: dict[str, Any] = {"path": data, "levels": levels}
    if len(sizes := sorted(images.sizes(files))) > 1:
        settings["size"] = min(MAX_SIZE, *map(min, sizes))
        ends = " to ".join(f"{width} x {height}" for width, height in (sizes[0], sizes[-1]))
        print(f"images are {ends} pixels: all become {settings['size']} x {settings['size']} (images.size)")
    print(f"folders: {'/'.join(levels)} (images.levels)")
    return settings, canonicalize(images.images(0, **settings), needs_test=False)


def _read_table(data: str, label: str, client: str) -> "tuple[dict[str, Any], RawDataset]":
    """The settings and examples of the table; prints what each column becomes, and leaves out what cannot be used."""
    import polars as pl

    from fedsim.datasets import columns, table_files
    from fedsim.datasets.canonical import canonicalize

    path = expand_user(data)
    rows, index = table_files.read(path, label, client)
    if rows.is_empty():
        raise DataError(f"{data}: must have rows, got none")
    named = columns.named(label, client)
    problems = columns.unusable_columns(rows, named, index)
    for column, kind in rows.schema.items():
        if column not in named:
            use = "one feature for each value (one-hot)" if kind == pl.String else "a number"
            use = f"left out, since it {problems[column]}" if column in problems else use
            print(f"{column or repr(column)}: {use}")
    raw = canonicalize(columns.encode(path.absolute().name, rows, label, client, list(problems)), needs_test=False)
    for note in raw.notes:
        print(f"fedsim: note: {note}", file=sys.stderr)
    settings = {"path": data, "label": label, "client": client, "drop": list(problems)}
    return {key: value for key, value in settings.items() if value}, raw
