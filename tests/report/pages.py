"""Synthetic sweeps for the HTML page of a report, and a function that unpacks it."""

import base64
import gzip
import math
import re
import zlib
from pathlib import Path

from fedsim.config.components import flatten
from fedsim.config.toml import parse
from fedsim.runs.folder import RunFolder
from tests.report.synthetic import Run, make_folder

SWEEP = """
name = "made"
server.num_rounds = 60
[[sweep]]
server.aggregator = ["arfl", "fedavg", "median"]
seed = [0, 1, 2]
[[sweep]]
server.aggregator = ["arfl", "fedavg", "median"]
attack.kind = ["ipm", "alie", "sign_flip"]
corruption.fraction = [0.2, 0.4]
seed = [0, 1, 2]
[[sweep]]
server.aggregator = "arfl"
arfl.lam = [0.1, 10.0]
corruption.kind = "shuffling"
corruption.fraction = [0.2, 0.4]
seed = [0, 1, 2]
"""


def diverges(run: Run) -> bool:
    """All runs of this setting diverge."""
    return (run["server.aggregator"], run["attack.kind"], run["corruption.fraction"]) == ("median", "sign_flip", 0.4)


def accuracy(run: Run, t: int) -> float:
    """A different, pseudorandom number for each run and round."""
    return math.nan if diverges(run) and t else zlib.crc32(repr((run, t)).encode()) / 2**32


def validation(run: Run, t: int) -> float:
    """Evaluations in a different order from the accuracy's."""
    return zlib.crc32(repr((t, run)).encode()) / 2**32


def make_sweep(path: Path, text: str = SWEEP) -> RunFolder:
    """A folder of the sweep in `text`, with its configuration; ARFL's clients have weights."""
    experiment = parse(text)
    alphas = lambda run: [0.05, 0.6, 0.35]
    runs = list(map(flatten, experiment.runs()))
    about = {"validation": validation, "config": experiment.dump()}
    return make_folder(path, runs, accuracy, diverges, alphas, **about)


def read_page(page: str, name: str = "data") -> str:
    """The unpacked text of the element `name` of the page."""
    text = re.search(rf'id="{name}">([^<]*)<', page)[1]
    return gzip.decompress(base64.b64decode(text, validate=True)).decode()
