"""`fedsim init`: a configuration to start from, for one's own data."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.datasets.raw import RawDataset

QUESTIONS = {  # by flag: what is asked, and what is meant by an empty line
    "data": ("Data: an .npz file, a folder in LEAF's format, or the name of a data set", "digits"),
    "clients": ("Clients: a number to divide the data among, or natural, the data's own", ""),
    "suspect": ("What may be wrong with some of them: none, shuffling, flipping, sign_flip, alie ...", "shuffling"),
}
NATURAL = "natural"
CLIENTS, COHORT = 20, 10

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
        description="Writes a configuration with comments. What no option says is asked.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", default=Path("experiment.toml"), help="default: experiment.toml"
    )
    parser.add_argument("--data", metavar="WHICH", help="an .npz file, a folder in LEAF's format, or a data set's name")
    parser.add_argument("--clients", metavar="N", help="clients to divide the data among, or natural")
    parser.add_argument("--suspect", metavar="KIND", help="corruption or attack of 30 %% of the clients, or none")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")


def call(options: argparse.Namespace) -> int:
    """Asks, and writes the file."""
    from fedsim.config import toml
    from fedsim.datasets.picture import describe_size

    if options.file.suffix != ".toml":
        raise ConfigError(f"{options.file}: a configuration's name ends in .toml")
    if options.file.exists() and not options.force:
        raise ConfigError(f"{options.file}: is there already; add --force to replace it, or name another")
    data = _answer(options, "data")
    section, raw = _read(data)
    number = len(set(raw.client_ids.tolist())) if raw is not None and raw.client_ids is not None else 0
    clients = _answer(options, "clients", NATURAL if number else str(CLIENTS))
    suspect = _answer(options, "suspect")
    text = _text(options.file.stem, section, data, clients, number or CLIENTS, suspect, raw)
    toml.parse(text, folder=options.file.parent).runs()  # raises where an answer is wrong
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(text, encoding="utf-8")
    if raw is not None:
        print(f"{data}: {describe_size(raw)}, {raw.num_classes} classes")
    print(f"{options.file}; `fedsim run {options.file} --dry-run` says what it takes, without --dry-run it runs")
    return 0


def _answer(options: argparse.Namespace, flag: str, otherwise: str = "") -> str:
    """What the flag says, or else the user."""
    given: str | None = getattr(options, flag)
    if given is not None:
        return given
    question, default = QUESTIONS[flag]
    default = otherwise or default
    if not sys.stdin.isatty():
        raise ConfigError(f"--{flag}: is not given, and there is no terminal to ask at; {question}")
    try:
        return input(f"{question} [{default}] ").strip() or default
    except EOFError:
        raise ConfigError(f"--{flag}: no answer; nothing is written") from None


def _read(data: str) -> "tuple[str, RawDataset | None]":
    """The name of the data set in the configuration, and its examples where they are a file's or a folder's."""
    from fedsim.config.registry import BUILT_IN, did_you_mean, nearest
    from fedsim.datasets.arrays import read_npz
    from fedsim.datasets.leaf import read_folder

    path = Path(data).expanduser()
    if path.is_dir():
        return "leaf", read_folder(path)
    if path.exists() or path.suffix:
        return "arrays", read_npz(path)
    names = [name for name in BUILT_IN["data.name"] if name not in ("arrays", "leaf", "tfds")]
    if data not in names:
        known = did_you_mean(nearest(data, names)) or f"; the data sets are {', '.join(names)}"
        raise ConfigError(f"--data: no file, folder or data set {data}{known}")
    return data, None


def _text(
    name: str, section: str, data: str, clients: str, natural: int, suspect: str, raw: "RawDataset | None"
) -> str:
    """The configuration; `natural` is the number of the data's own clients."""
    from fedsim.config.fields import toml
    from fedsim.config.registry import BUILT_IN

    if clients != NATURAL and not (clients.isdecimal() and int(clients) > 0):
        raise ConfigError(f"--clients: expected a number of 1 or more, or natural, got {clients}")
    attacks = [kind for kind in BUILT_IN["attack.kind"] if kind not in BUILT_IN["corruption.kind"]]
    key = "attack.kind" if suspect in attacks else "corruption.kind"
    cohort = min(COHORT, natural if clients == NATURAL else int(clients))
    who = ['partition = "natural"  # the data\'s own clients']
    if clients != NATURAL:
        who = [
            f"num_clients = {clients}",
            'partition = "dirichlet"  # clients differ in their labels; iid: they do not',
        ]
    path = [f"[{section}]", f"path = {toml(data)}", ""] if raw is not None else []
    model = ["[model]", 'name = "char_lstm"', ""] if raw is not None and raw.inputs == "text" else []
    lines = [
        "# Rules for clients that may be corrupted, on your data. `fedsim config` has every key with its meaning.",
        f"name = {toml(name)}",
        "",
        "[data]",
        f"name = {toml(section)}",
        *who,
        "validation_fraction = 0.1  # kept from clients, to choose settings by: `fedsim report RUN --choose KEY`",
        "",
        *path,
        *model,
        "[client]",
        "learning_rate = 0.1  # the first to vary: --sweep.client.learning-rate 0.01 0.03 0.1 0.3",
        "epochs = 1  # over a client's data, in a round",
        "batch_size = 32",
        "",
        "[server]",
        f"cohort_size = {cohort}  # clients of a round",
        "num_rounds = 50",
        "eval_every = 5",
        "",
        "[[sweep]]  # clean data, to see what each rule costs",
        'server.aggregator = ["fedavg", "median", "arfl"]  # of some twenty',
        "seed = [0, 1, 2]",
    ]
    if suspect != "none":
        lines += [
            "",
            "[[sweep]]  # and with some clients corrupted",
            'server.aggregator = ["fedavg", "median", "arfl"]',
            f"{key} = {toml(suspect)}",
            "corruption.fraction = 0.3  # of the clients",
            "seed = [0, 1, 2]",
        ]
    return "\n".join(lines) + "\n"
