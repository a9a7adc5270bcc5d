"""Random small data sets, each the same for its seed; see `truth`."""

from pathlib import Path

import numpy as np

from tests.fuzz.generated.in_memory import memory, npz
from tests.fuzz.generated.leaf_folders import leaf_folder
from tests.fuzz.generated.saved_datasets import hf_pictures, hf_table
from tests.fuzz.generated.texts import texts
from tests.fuzz.generated.truth import Case

MAKERS = memory, npz, leaf_folder, hf_table, hf_pictures, texts


def make(seed: int, folder: Path) -> Case:
    """The case of this seed; its files are in `folder`."""
    return MAKERS[seed % len(MAKERS)](np.random.default_rng([seed, 49]), folder / f"{seed}")
