"""Synthetic sweeps for the HTML page of a report, and its unpacked data."""

import base64
import gzip
import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

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


def is_gone(run: Run) -> bool:
    """Of one cell all runs diverge."""
    return (run["server.aggregator"], run["attack.kind"], run["corruption.fraction"]) == ("median", "sign_flip", 0.4)


def accuracy(run: Run, t: int) -> float:
    """Another number for every run and round, in no order."""
    return math.nan if is_gone(run) and t else zlib.crc32(repr((sorted(run.items()), t)).encode()) / 2**32


def validation(run: Run, t: int) -> float:
    """Another order of evaluations than the accuracy's."""
    return zlib.crc32(repr((t, sorted(run.items()))).encode()) / 2**32


def make_sweep(path: Path, text: str = SWEEP) -> RunFolder:
    """A folder of the sweep in `text`, with its config.toml; ARFL's clients have weights."""
    experiment = parse(text)
    alphas = lambda run: [0.05, 0.6, 0.35]
    folder = make_folder(path, list(map(flatten, experiment.runs())), accuracy, is_gone, alphas, validation=validation)
    folder.write_text("config.toml", experiment.dump())
    manifest = folder.path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"config": experiment.dump()}))
    return folder


def packed(page: str, name: str) -> bytes:
    """The bytes that lie in the page as `name`."""
    text = re.search(rf'id="{name}">([^<]*)<', page)[1]
    return gzip.decompress(base64.b64decode(text, validate=True))


def unpacked(data: bytes) -> Any:
    """What `packing.pack` packed, before it was compressed."""
    length = int.from_bytes(data[:4], "little")

    def with_arrays(value: dict[str, Any]) -> Any:
        if "array" not in value:
            return value
        kind = np.dtype(value["array"]).newbyteorder("<")
        return np.frombuffer(data, kind, value["length"], 4 + length + value["at"])

    return json.loads(data[4 : 4 + length], object_hook=with_arrays)
