"""The files that fedsim shares with its peers, and the command line of a peer; needs only NumPy.

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
    """A workload as arrays."""

    folder: Path
    settings: dict[str, Any]  # workload, model, module, batch_size, learning_rate, num_classes, leaves
    x: np.ndarray  # [M, *feature] uint8 pixels, integer characters or float32 features
    y: np.ndarray  # [M] int32
    offsets: np.ndarray  # [N] the first example of each client
    num_examples: np.ndarray  # [N]
    cohorts: np.ndarray  # [R, K] the clients of round r
    params: dict[str, np.ndarray]  # the initial parameters by path, such as "Conv_0/kernel", as flax lays them out

    def examples(self, client: int) -> slice:
        """The positions of a client's examples, in the order of training."""
        return slice(int(self.offsets[client]), int(self.offsets[client] + self.num_examples[client]))

    def cohort(self, round_: int) -> list[int]:
        """The clients of round `round_` that have examples; the exported cohorts repeat."""
        return [int(c) for c in self.cohorts[round_ % len(self.cohorts)] if self.num_examples[c] > 0]


def load(folder: Path, fedsim_order: bool = False) -> Work:
    """Loads the workload in `folder`; with `fedsim_order`, the examples of round 0's clients are in fedsim's order."""
    settings = json.loads((folder / "settings.json").read_text())
    with np.load(folder / "data.npz") as file:
        arrays = dict(file)
    flat, order = arrays.pop("params"), arrays.pop("order")
    work = Work(folder, settings, **arrays, params=unflatten(flat, settings["leaves"]))
    if fedsim_order:
        for client in work.cohort(0):
            examples = work.examples(client)
            index, order = np.split(order, [work.num_examples[client]])
            work.x[examples], work.y[examples] = work.x[examples][index], work.y[examples][index]
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
    """The file of `system`'s parameters [P] after round 0."""
    return folder / f"after-{system}.npy"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The arguments of all systems."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a workload written by compare.py")
    parser.add_argument("--check", action="store_true", help="run round 0 in fedsim's order and save the parameters")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of a timed call, from the first round")
    parser.add_argument("--calls", type=int, default=1, help="timed calls")
    return parser


def run_peer(
    system: str, prepare: Callable[[Work], Train], versions: dict[str, str], options: argparse.Namespace
) -> None:
    """Checks or times a peer, and prints the result as one JSON line.

    `prepare` takes the workload and returns a function that trains the given number of rounds from the initial
    parameters and returns the final ones. Its preparation counts as warm-up.
    """
    work = load(options.folder, fedsim_order=options.check)
    started = time.perf_counter()
    train = prepare(work)
    params = train(1)
    first = time.perf_counter() - started
    if options.check:
        np.save(params_file(work.folder, system), flatten(params, work.settings["leaves"]))
    seconds = [] if options.check else time_calls(lambda: train(options.rounds), options.rounds, options.calls)
    print_line(system, first, seconds, versions)


def time_calls(call: Callable[[], Any], rounds: int, calls: int) -> list[float]:
    """Seconds a round of each of `calls` calls of `rounds` rounds."""
    seconds = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        seconds.append((time.perf_counter() - started) / rounds)
    return seconds


def print_line(system: str, first: float, seconds: list[float], versions: dict[str, str]) -> None:
    """Prints the line of JSON that `compare.py` reads."""
    line = {
        "system": system,
        "first_round_seconds": first,
        "seconds_per_round": seconds,
        "versions": {**versions, "python": platform.python_version()},
        "cpu_count": os.cpu_count(),
    }
    print(json.dumps(line), flush=True)
