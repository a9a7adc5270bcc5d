"""`fedsim init`: write a configuration for the user's data."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.datasets.raw import RawDataset

QUESTIONS = {  # by option: the question, and the default answer
    "data": (
        "Data: a .csv, .parquet or .npz file, a folder of .npy files or in LEAF's format, or the name of a data set",
        "digits",
    ),
    "label": ("Label: the column of the labels", ""),
    "clients": ("Clients: the number of clients to divide the data among, or natural for those of the data", ""),
    "suspect": ("Corruption or attack to simulate: none, shuffling, flipping, sign_flip, alie ...", "shuffling"),
}
NATURAL = "natural"
NUM_CLIENTS, COHORT_SIZE = 20, 10
NEED_SETTINGS = ("arrays", "leaf", "tfds", "table", "huggingface")  # data sets that are no data set by their name alone

EPILOG = """\
examples:
  fedsim init                                                     asks a few questions, writes experiment.toml
  fedsim init hospitals.toml --data mine.npz --clients natural --suspect shuffling
  fedsim init patients.toml --data patients.csv --label diagnosis --client hospital --suspect shuffling
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "init",
        help="write a configuration for your own data, after a few questions",
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
        "--data",
        metavar="DATA",
        help="a .csv, .parquet or .npz file, a folder of .npy files or in LEAF's format, or a data set's name",
    )
    parser.add_argument("--label", metavar="COLUMN", help="column of the labels, of a .csv or .parquet file")
    parser.add_argument("--client", metavar="COLUMN", help="column that names each row's client; default: none")
    parser.add_argument("--clients", metavar="N", help="number of clients, or natural for those of the data")
    parser.add_argument("--suspect", metavar="KIND", help="corruption or attack of 30 %% of the clients, or none")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def call(options: argparse.Namespace) -> int:
    """Asks the questions and writes the file."""
    from fedsim.config import toml
    from fedsim.datasets.preview import describe_size

    if options.file.suffix != ".toml":
        raise ConfigError(f"FILE: must end in .toml, got {options.file}")
    if options.file.exists() and not options.force:
        raise ConfigError(f"{options.file}: exists already; add --force to replace it, or choose another name")
    data = _answer(options, "data")
    section, settings, raw = _read(data, options)
    number = len(set(raw.client_ids.tolist())) if raw is not None and raw.client_ids is not None else 0
    if options.client and options.clients is None:
        options.clients = NATURAL
    clients = _answer(options, "clients", NATURAL if number else str(NUM_CLIENTS))
    suspect = _answer(options, "suspect")
    text = _text(options.file.stem, section, settings, clients, number or NUM_CLIENTS, suspect, raw)
    toml.parse(text, folder=options.file.parent).runs()  # raises if an answer is wrong
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(text, encoding="utf-8")
    if raw is not None:
        labels = f"{raw.num_classes} classes" if raw.num_classes else "labels that are numbers (regression)"
        print(f"{data}: {describe_size(raw)}, {labels}")
    print(f"{options.file}; `fedsim run {options.file} --dry-run` shows time and memory, without --dry-run it runs")
    return 0


def _answer(options: argparse.Namespace, flag: str, default: str = "") -> str:
    """The value of the option, or else the user's answer."""
    value: str | None = getattr(options, flag)
    if value is not None:
        return value
    question, usual = QUESTIONS[flag]
    default = default or usual
    if not sys.stdin.isatty():
        raise ConfigError(f"--{flag}: must be given, since there is no terminal to ask at; {question}")
    try:
        return input(f"{question} [{default}] ").strip() or default
    except EOFError:
        raise ConfigError(f"--{flag}: must be answered; no file was written") from None


def _read(data: str, options: argparse.Namespace) -> "tuple[str, dict[str, Any], RawDataset | None]":
    """The data set's name and settings in a configuration, and its examples if they are from a file or folder."""
    from fedsim.config.kinds import KINDS
    from fedsim.config.registry import did_you_mean, nearest
    from fedsim.datasets import arrays
    from fedsim.datasets.leaf import read_folder
    from fedsim.datasets.table import SUFFIXES

    path = Path(data).expanduser()
    if path.suffix in SUFFIXES:
        return "table", *_read_table(data, _answer(options, "label"), options.client or "")
    for flag in ("label", "client"):
        if getattr(options, flag) is not None:
            raise ConfigError(f"--{flag}: must be left out unless --data is a {' or '.join(SUFFIXES)} file")
    if path.is_dir() and not arrays.is_folder_of_arrays(path):
        return "leaf", {"path": data}, read_folder(path)
    if path.exists() or path.suffix:
        return "arrays", {"path": data}, arrays.read(path)
    names = [name for name in KINDS["data.name"].built_in if name not in NEED_SETTINGS]
    if data not in names:
        remedy = did_you_mean(nearest(data, names)) or f"; the data sets are {', '.join(names)}"
        raise ConfigError(f"--data: must be an existing file or folder or a data set, got {data}{remedy}")
    return data, {}, None


def _read_table(data: str, label: str, client: str) -> "tuple[dict[str, Any], RawDataset]":
    """The settings and examples of the table; prints what each column becomes, and leaves out what cannot be used."""
    from fedsim.datasets import columns, table

    path = Path(data).expanduser()
    rows = table.read(path)
    problems = columns.unusable_columns(rows, {label, client})
    raw = columns.encode(path.name, rows, label, client, list(problems))
    for column in rows.column_names:
        if column not in (label, client):
            is_text = columns.is_text(rows.column(column))
            use = "one feature for each value (one-hot)" if is_text else "a number"
            print(f"{column}: {f'left out, since it {problems[column]}' if column in problems else use}")
    settings = {"path": data, "label": label, "client": client, "drop": list(problems)}
    return {key: value for key, value in settings.items() if value}, raw


def _text(
    name: str,
    section: str,
    settings: dict[str, Any],
    clients: str,
    natural: int,
    suspect: str,
    raw: "RawDataset | None",
) -> str:
    """The configuration; `natural` is the number of the data's natural clients."""
    from fedsim.config.kinds import KINDS
    from fedsim.config.values import format_toml

    if clients != NATURAL and not (clients.isdecimal() and int(clients) > 0):
        raise ConfigError(f"--clients: must be an integer >= 1 or natural, got {clients}")
    attacks = [kind for kind in KINDS["attack.kind"].built_in if kind not in KINDS["corruption.kind"].built_in]
    key = "attack.kind" if suspect in attacks else "corruption.kind"
    cohort_size = min(COHORT_SIZE, natural if clients == NATURAL else int(clients))
    partition = ['partition = "natural"  # the clients of the data']
    if clients != NATURAL:
        partition = [f"num_clients = {clients}", 'partition = "iid"']
        if raw is None or raw.num_classes:
            partition[1] = 'partition = "dirichlet"  # non-IID: clients differ in their labels; or iid'
    if raw is not None and len(raw.y_test) == 0:
        partition.append("test_fraction = 0.2  # of the examples, drawn at random")
    values = [f"{key} = {format_toml(value)}" for key, value in settings.items()]
    section_lines = [f"[{section}]", *values, ""] if values else []
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
        *section_lines,
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
