"""Files and configurations that tests of data sets are made of."""

import gzip
import json
from pathlib import Path

import fedsim
from fedsim.config import toml
from fedsim.engine import build


def dataset_of(text: str) -> fedsim.FederatedDataset:
    """The data set of the one run that the TOML `text` configures."""
    (config,) = toml.parse(text).runs()
    return build.dataset(config)


def write_leaf(path: Path, user_data: dict, num_samples=None) -> None:
    """A file in LEAF's format, gzipped if `path` says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = num_samples or [len(data["y"]) for data in user_data.values()]
    text = json.dumps({"users": list(user_data), "num_samples": counts, "user_data": user_data}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
