"""Times a workload in PyTorch and in fedsim on the same device, side by side, after checking that they agree."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import workloads

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
import compare

PEERS = ["torch_loop", "torch_vmap"]
NUM_ROUNDS = {"W1": 10, "W2": 10, "W3": 50}  # of a timed call


def time_peers(name: str, python: str, tiny: bool) -> dict[str, Any]:
    """Seconds a round of fedsim and of PyTorch's loop and `vmap`; `ratio` is PyTorch's median over fedsim's."""
    options = argparse.Namespace(
        peers=PEERS, passes=1 if tiny else 2, calls=1 if tiny else 3, rounds=2 if tiny else NUM_ROUNDS[name], width=None
    )
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        compare.export(workloads.load(name), Path(folder), options.rounds)
        lines = compare.compare(name, Path(folder), {"torch": Path(python)}, options, failures)
    keys = ("median_seconds_per_round", "minimum_seconds_per_round", "first_round_seconds", "check", "versions")
    systems = {line["system"]: {key: line[key] for key in keys} for line in lines}
    for line in systems.values():
        line["ratio"] = line["median_seconds_per_round"] / systems["fedsim"]["median_seconds_per_round"]
    return {"passed": not failures, "failures": failures, "systems": systems}
