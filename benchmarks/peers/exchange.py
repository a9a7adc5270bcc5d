"""What fedsim hands to its peers, and how a peer is run: NumPy and the standard library only.

A folder holds one workload: `data.npz` and `settings.json`, written by `compare.py`. A peer's script loads it with
`run_peer`, which checks one round or times many, and prints one JSON line.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Train = Callable[[int], dict[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Work:
    """One workload, as arrays."""

    folder: Path
    settings: dict[str, Any]  # workload, model, module, batch_size, learning_rate, num_classes, leaves
    x: np.ndarray  # [M, *feature] uint8 pixels, integer characters or float32 features
    y: np.ndarray  # [M] int32
    offsets: np.ndarray  # [N] the first example of each client
    counts: np.ndarray  # [N]
    cohorts: np.ndarray  # [R, K] the clients of round r
    params: dict[str, np.ndarray]  # the initial parameters by path, such as "Conv_0/kernel", as flax lays them out

    def examples(self, client: int) -> slice:
        """Where the examples of a client lie, in the order in which it trains on them."""
        return slice(int(self.offsets[client]), int(self.offsets[client] + self.counts[client]))

    def cohort(self, round_: int) -> list[int]:
        """The clients of round `round_`, all with examples; past the last exported cohort, from the first again."""
        return [int(c) for c in self.cohorts[round_ % len(self.cohorts)] if self.counts[c] > 0]


def load(folder: Path, in_fedsims_order: bool = False) -> Work:
    """The workload in `folder`; with `in_fedsims_order`, the clients of round 0 have their examples in the order in
    which fedsim trains on them in that round.
    """
    settings = json.loads((folder / "settings.json").read_text())
    with np.load(folder / "data.npz") as file:
        arrays = dict(file)
    flat, order = arrays.pop("params"), arrays.pop("order")
    work = Work(folder, settings, **arrays, params=unflatten(flat, settings["leaves"]))
    if in_fedsims_order:
        for client in work.cohort(0):
            examples = work.examples(client)
            mine, order = order[: work.counts[client]], order[work.counts[client] :]
            work.x[examples], work.y[examples] = work.x[examples][mine], work.y[examples][mine]
    return work


def unflatten(flat: np.ndarray, leaves: list[tuple[str, list[int]]]) -> dict[str, np.ndarray]:
    """The parameters `flat` [P] by path; `leaves` names them in order, each with its shape."""
    ends = np.cumsum([np.prod(shape, dtype=int) for _, shape in leaves])
    pieces = np.split(flat, ends[:-1])
    return {path: piece.reshape(shape) for (path, shape), piece in zip(leaves, pieces, strict=True)}


def flatten(params: dict[str, np.ndarray], leaves: list[tuple[str, list[int]]]) -> np.ndarray:
    """The inverse of `unflatten`: [P] float32."""
    for path, shape in leaves:
        if params[path].shape != tuple(shape):
            raise ValueError(f"{path} has shape {params[path].shape}, not {tuple(shape)}")
    return np.concatenate([np.ravel(params[path]).astype(np.float32) for path, _ in leaves])


def params_file(folder: Path, system: str) -> Path:
    """Where `system` leaves its parameters [P] after round 0."""
    return folder / f"after-{system}.npy"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The arguments that all systems take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a workload, as written by compare.py")
    parser.add_argument("--check", action="store_true", help="run round 0 in fedsim's order; leave the parameters")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of a timed call, from the first round on")
    parser.add_argument("--calls", type=int, default=1, help="timed calls")
    return parser


def run_peer(
    system: str, prepare: Callable[[Work], Train], versions: dict[str, str], options: argparse.Namespace
) -> None:
    """Checks or times a peer, and prints the result as one JSON line.

    `prepare` takes the workload and returns a function that trains the given number of rounds from the initial
    parameters, and returns the parameters after them. What it does before its first round counts as warm-up.
    """
    work = load(options.folder, in_fedsims_order=options.check)
    started = time.perf_counter()
    train = prepare(work)
    params = train(1)
    first = time.perf_counter() - started
    if options.check:
        np.save(params_file(work.folder, system), flatten(params, work.settings["leaves"]))
    seconds = [] if options.check else timed(lambda: train(options.rounds), options.rounds, options.calls)
    print_line(system, first, seconds, versions)


def timed(call: Callable[[], Any], rounds: int, calls: int) -> list[float]:
    """Seconds a round of each of `calls` calls, each of which runs `rounds` rounds."""
    seconds = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        seconds.append((time.perf_counter() - started) / rounds)
    return seconds


def print_line(system: str, first: float, seconds: list[float], versions: dict[str, str]) -> None:
    """Prints the JSON line that `compare.py` reads."""
    line = {
        "system": system,
        "first_round_seconds": first,
        "seconds_per_round": seconds,
        "versions": {**versions, "python": platform.python_version()},
        "cpu_count": os.cpu_count(),
    }
    print(json.dumps(line), flush=True)
