"""Generated inputs of all readers: what is read equals the truth that they were made of, or is refused in one line.

`python -m tests.fuzz.test_generated_inputs FOLDER SEED` runs one case, whose files stay in the folder.
"""

import collections
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.generated import leaf, memory, pictures, tables
from tests.fuzz.generated.cases import HAS_DATASETS

READERS = {
    **{name: partial(tables.tables, container=name) for name in ("csv", "parquet", "pandas")},
    "leaf": leaf.numbers,
    "texts": leaf.texts,
    "from_arrays": memory.memory,
    "npz": partial(memory.memory, is_file=True),
}
if HAS_DATASETS:  # the extra huggingface
    READERS |= {"huggingface": partial(tables.tables, container="huggingface"), "pictures": pictures.pictures}


def run(seed: int, folder: Path) -> tuple[str, str]:
    """The reader of the case of this seed, and "equal" or "refused"; its files are in `folder`."""
    reader = list(READERS)[seed % len(READERS)]
    case = READERS[reader](np.random.default_rng([seed, 49]), folder / f"{seed}")
    try:
        return reader, case.run()
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        raise AssertionError(f"seed {seed}: {reader}: {case.form}, fault {case.fault or 'none'}: {problem}") from error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(2000), marks=pytest.mark.fuzz)])
def test_generated_inputs_are_read_as_they_were_made_or_refused(seeds, tmp_path):
    wrong, outcomes = [], collections.Counter()
    for seed in seeds:
        try:
            outcomes[run(seed, tmp_path)] += 1
        except AssertionError as error:
            wrong.append(str(error))
    how = "python -m tests.fuzz.test_generated_inputs FOLDER SEED runs one again"
    assert not wrong, "\n".join([f"{len(wrong)} of {len(seeds)} are wrong; {how}", *wrong])
    assert {reader for reader, outcome in outcomes if outcome == "equal"} == set(READERS)
    print(*sorted(outcomes.items()), sep="\n")


if __name__ == "__main__":
    print(*run(int(sys.argv[2]), Path(sys.argv[1])))
