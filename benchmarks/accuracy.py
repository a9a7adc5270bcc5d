"""What a run folder shows, as one JSON: every cell's accuracy by seed, and the weight of corrupted clients over rounds.

python benchmarks/accuracy.py configs/small/cifar10.toml RUN > benchmarks/results/cifar10-small.json
"""

import argparse
import json
from pathlib import Path

import numpy as np

from fedsim.report.cells import PERCENTILES, Cell, read
from fedsim.store import RunFolder


def main() -> None:
    """Parses the arguments and prints the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="the configuration that was run")
    parser.add_argument("run", type=Path, help="its run folder")
    options = parser.parse_args()
    results = read(RunFolder(options.run))
    header = [
        line.removeprefix("#").strip() for line in options.config.read_text().splitlines() if line.startswith("#")
    ]
    manifest = results.manifest
    about = {
        "command": f"fedsim run {options.config.as_posix()}",
        "about": " ".join(" ".join(header).split()),
        "device": manifest["device"],
        "versions": manifest["versions"],
        "seconds_compiling": round(manifest["seconds_compiling"], 1),
        "seconds_running": round(manifest["seconds_running"], 1),
    }
    cells = ",\n".join(json.dumps(describe(cell)) for cell in results.cells)
    print(f'{json.dumps(about, indent=1)[:-2]},\n "cells": [\n{cells}\n]\n}}')


def describe(cell: Cell) -> dict:
    """One cell; lists over seeds, or over evaluated rounds."""
    described = {
        "aggregator": cell.aggregator,
        "corruption": cell.corruption,
        "fraction": cell.fraction,
        "lam": cell.lam,
        "seeds": cell.seeds,
        "final_accuracy": numbers(cell.accuracy[:, -1]),
        "rounds": cell.rounds.tolist(),
        "accuracy_mean": numbers(cell.accuracy.mean(axis=0)),
        "corrupted_weight_mean": numbers(cell.corrupted_weight[:, 1:].mean(axis=0)),
    }
    if not np.isnan(cell.percentiles).any():
        described |= {name: numbers(p[:, -1]) for name, p in zip(PERCENTILES, cell.percentiles, strict=True)}
    return described


def numbers(values: np.ndarray) -> list[float | None]:
    """Rounded to four digits; None where nothing was given."""
    return [None if np.isnan(value) else round(float(value), 4) for value in values]


if __name__ == "__main__":
    main()
