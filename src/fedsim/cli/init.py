"""`fedsim init`: write a configuration for the user's data."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedsim.errors import ConfigError, DataError, FedsimError

if TYPE_CHECKING:
    from fedsim.datasets.raw import RawDataset

Value = TypeVar("Value")

QUESTIONS = {  # by option: the question, and the default answer
    "data": ("Data: an .npz file, a folder of .npy files or in LEAF's format, or the name of a data set", "digits"),
    "clients": ("Clients: the number of clients to divide the data among, or natural for those of the data", ""),
    "suspect": ("Corruption or attack to simulate: none, shuffling, flipping, sign_flip, alie ...", "shuffling"),
}
NATURAL = "natural"
NUM_CLIENTS, COHORT_SIZE = 20, 10

EPILOG = """\
examples:
  fedsim init                                                     asks three questions, writes experiment.toml
  fedsim init hospitals.toml --data mine.npz --clients natural --suspect shuffling
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "init",
        help="write a configuration for your own data, after three questions",
        description="Writes a commented configuration. Asks for what the options do not give.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        nargs="?",
        default=Path("experiment.toml"),
        help="default: experiment.toml",
    )
    parser.add_argument(
        "--data", metavar="DATA", help="an .npz file, a folder of .npy files or in LEAF's format, or a data set's name"
    )
    parser.add_argument("--clients", metavar="N", help="number of clients, or natural for those of the data")
    parser.add_argument("--suspect", metavar="KIND", help="corruption or attack of 30 %% of the clients, or none")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def call(options: argparse.Namespace) -> int:
    """Asks the questions, checks that the answers can be run, and writes the file."""
    from fedsim.datasets.preview import describe_size

    if options.file.suffix != ".toml":
        raise ConfigError(f"FILE: must end in .toml, got {options.file}")
    if options.file.exists() and not options.force:
        raise ConfigError(f"{options.file}: exists already; add --force to replace it, or choose another name")
    name, folder = options.file.stem, options.file.parent
    data, (section, raw) = _ask(options, "data", _read)
    number = len(set(raw.client_ids.tolist())) if raw is not None and raw.client_ids is not None else 0

    def write(clients: str, suspect: str) -> str:
        return _text(name, section, data, clients, number or NUM_CLIENTS, suspect, raw)

    def check_clients(clients: str) -> str:
        return _check(write(clients, "none"), folder, section, f"--clients {clients}: does not fit {data}")

    clients, _ = _ask(options, "clients", check_clients, NATURAL if number else str(NUM_CLIENTS))
    _, text = _ask(options, "suspect", lambda suspect: _check(write(clients, suspect), folder, section))
    folder.mkdir(parents=True, exist_ok=True)
    options.file.write_text(text, encoding="utf-8")
    if raw is not None:
        print(f"{data}: {describe_size(raw)}, {f'{raw.num_classes} classes' if raw.num_classes else 'regression'}")
    print(f"{options.file}; `fedsim run {options.file} --dry-run` shows time and memory, without --dry-run it runs")
    return 0


def _ask(options: argparse.Namespace, flag: str, check: Callable[[str], Value], default: str = "") -> tuple[str, Value]:
    """The value of the option, or else the user's answer, and what `check` makes of it.

    Asks again where `check` raises a `FedsimError` for an answer.
    """
    value: str | None = getattr(options, flag)
    if value is not None:
        return value, check(value)
    question, usual = QUESTIONS[flag]
    default = default or usual
    if not sys.stdin.isatty():
        raise ConfigError(f"--{flag}: must be given, since there is no terminal to ask at; {question}")
    while True:
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


def _read(data: str) -> "tuple[str, RawDataset | None]":
    """The data set's name in a configuration, and its examples if they are from a file or folder.

    Raises `FedsimError` if there is no such data set, or it is wrong.
    """
    from fedsim.config.kinds import KINDS
    from fedsim.config.registry import did_you_mean, nearest
    from fedsim.datasets import arrays
    from fedsim.datasets.canonical import canonicalize
    from fedsim.datasets.leaf import read_folder

    path = Path(data).expanduser()
    if path.is_dir() and not arrays.is_folder_of_arrays(path):
        return "leaf", canonicalize(read_folder(path), needs_test=False)
    if path.exists() or path.suffix:
        return "arrays", canonicalize(arrays.read(path), needs_test=False)
    names = [name for name in KINDS["data.name"].built_in if name not in ("arrays", "leaf", "tfds")]
    if data not in names:
        remedy = did_you_mean(nearest(data, names)) or f"; the data sets are {', '.join(names)}"
        raise ConfigError(f"--data: must be an existing file or folder or a data set, got {data}{remedy}")
    return data, None


def _text(
    name: str, section: str, data: str, clients: str, natural: int, suspect: str, raw: "RawDataset | None"
) -> str:
    """The configuration; `natural` is the number of the data's natural clients."""
    from fedsim.config.kinds import KINDS
    from fedsim.config.values import format_toml
    from fedsim.datasets.partition import is_single_label

    if clients != NATURAL and not (clients.isdecimal() and int(clients) > 0):
        raise ConfigError(f"--clients: must be an integer >= 1 or natural, got {clients}")
    attacks = [kind for kind in KINDS["attack.kind"].built_in if kind not in KINDS["corruption.kind"].built_in]
    key = "attack.kind" if suspect in attacks else "corruption.kind"
    cohort_size = min(COHORT_SIZE, natural if clients == NATURAL else int(clients))
    partition = ['partition = "natural"  # the clients of the data']
    if clients != NATURAL:
        by_labels = raw is None or is_single_label(raw)
        kind = '"dirichlet"  # non-IID: clients differ in their labels; or iid' if by_labels else '"iid"  # or quantity'
        partition = [f"num_clients = {clients}", f"partition = {kind}"]
    path = [f"[{section}]", f"path = {format_toml(data)}", ""] if raw is not None else []
    model = ["[model]", 'name = "char_lstm"', ""] if raw is not None and raw.inputs == "text" else []
    lines = [
        "# Robust aggregation on your data. `fedsim config` prints every key with its meaning.",
        f"name = {format_toml(name)}",
        "",
        "[data]",
        f"name = {format_toml(section)}",
        *partition,
        "validation_fraction = 0.1  # held out for choosing settings: `fedsim report RUN --choose KEY`",
        "",
        *path,
        *model,
        "[client]",
        "learning_rate = 0.1  # tune this first: --sweep.client.learning-rate 0.01 0.03 0.1 0.3",
        "epochs = 1  # local epochs per round",
        "batch_size = 32",
        "",
        "[server]",
        f"cohort_size = {cohort_size}  # clients per round",
        "num_rounds = 50",
        "eval_every = 5",
        "",
        "[[sweep]]  # clean data, to see the cost of each rule",
        'server.aggregator = ["fedavg", "median", "arfl"]  # there are about twenty',
        "seed = [0, 1, 2]",
    ]
    if suspect != "none":
        lines += [
            "",
            "[[sweep]]  # some clients corrupted",
            'server.aggregator = ["fedavg", "median", "arfl"]',
            f"{key} = {format_toml(suspect)}",
            "corruption.fraction = 0.3  # of the clients",
            "seed = [0, 1, 2]",
        ]
    return "\n".join(lines) + "\n"
