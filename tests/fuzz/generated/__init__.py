"""Random small inputs of every kind that fedsim reads, each the same for its seed; see `cases`."""

from functools import partial
from pathlib import Path

import numpy as np

from tests.fuzz.generated.calls import calls
from tests.fuzz.generated.cases import Case
from tests.fuzz.generated.folders import leaf_folder, pictures
from tests.fuzz.generated.memory import memory
from tests.fuzz.generated.tables import tables
from tests.fuzz.generated.texts import texts

READERS = {
    "CSV": partial(tables, container="csv"),
    "Parquet": partial(tables, container="parquet"),
    "pandas": partial(tables, container="pandas"),
    "Hugging Face tables": partial(tables, container="huggingface"),
    "Hugging Face pictures": pictures,
    "LEAF": leaf_folder,
    "texts": texts,
    "from_arrays": memory,
    "npz": partial(memory, is_file=True),
    "apply": calls,
}


def draw(seed: int, folder: Path) -> tuple[str, Case]:
    """The reader and the case of this seed; its files are in `folder`."""
    reader = list(READERS)[seed % len(READERS)]
    return reader, READERS[reader](np.random.default_rng([seed, 49]), folder / f"{seed}")
