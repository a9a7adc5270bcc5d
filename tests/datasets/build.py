"""Data sets from labels or configurations, and files in LEAF's format, for tests."""

import gzip
import json
from pathlib import Path

import numpy as np

import fedsim
from fedsim.config import toml
from fedsim.engine.data import load_dataset


def make_raw(y, x=None, inputs="vector", num_classes=None, client_ids=None) -> fedsim.RawDataset:
    """A data set with these labels; by default the input of an example is its position."""
    y = np.asarray(y)
    x = np.arange(len(y), dtype=np.float32)[:, None] if x is None else x
    num_classes = int(y.max()) + 1 if num_classes is None else num_classes
    return fedsim.RawDataset("example", x, y, x[:2], y[:2], num_classes, inputs, client_ids)


def build_dataset(text: str) -> fedsim.FederatedDataset:
    """The data set of the single run in the TOML `text`."""
    (config,) = toml.parse(text).runs()
    return load_dataset(config)


def write_leaf(path: Path, user_data: dict, num_samples=None) -> None:
    """Writes a file in LEAF's format, gzipped if `path` ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    num_examples = num_samples or [len(data["y"]) for data in user_data.values()]
    text = json.dumps({"users": list(user_data), "num_samples": num_examples, "user_data": user_data}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
