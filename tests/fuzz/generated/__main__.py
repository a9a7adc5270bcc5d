"""Runs the cases of seeds: `python -m tests.fuzz.generated FOLDER SEED...`; files stay in the folder."""

import sys
from pathlib import Path

from tests.fuzz.generated import draw

for seed in map(int, sys.argv[2:]):
    reader, case = draw(seed, Path(sys.argv[1]))
    print(f"{seed}: {reader}, {case.form}, fault {case.fault or 'none'}")
    print(case.run())
