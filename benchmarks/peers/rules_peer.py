"""Runs rules of ByzFL and ByzPy on random updates, on commands of `benchmarks/rules.py`.

Reads a JSON list a line: `["data", K, d]` generates updates, `["use", library, rule, f, file]` calls a rule once and
saves its result, `["time", library, n]` calls it n times more. Answers each with a line of JSON: `seconds` of a call,
or `error`. The first line has the versions of the installed libraries. Both take PyTorch's tensors.
"""

import argparse
import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

GIB = 1 << 30


def random_updates(num_clients: int, size: int) -> np.ndarray:
    """Updates [K, d] float32 of different lengths, so that no two clients are equally far from the others."""
    rows = np.random.default_rng(0).standard_normal((num_clients, size), dtype=np.float32)
    lengths = np.linspace(0.5, 1.5, num_clients, dtype=np.float32)
    rows *= np.random.default_rng(1).permutation(lengths)[:, None]
    rows += np.float32(0.1)
    return rows


def radius(size: int) -> float:
    """The radius of clipping, longer than some updates and shorter than others."""
    return float(np.sqrt(size))


def byzfl(rule: str, f: int, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """ByzFL's rule by fedsim's name."""
    library: Any = importlib.import_module("byzfl")
    return {
        "fedavg": lambda: library.Average(),
        "median": lambda: library.Median(),
        "trimmed_mean": lambda: library.TrMean(f),
        "meamed": lambda: library.Meamed(f),
        "krum": lambda: library.Krum(f),
        "multi_krum": lambda: library.MultiKrum(f),
        "rfa": lambda: library.GeometricMedian(nu=1e-5, T=4),
        "centered_clipping": lambda: library.CenteredClipping(L=1, tau=radius(shape[1])),
        "caf": lambda: library.CAF(f),
        "mda": lambda: library.MDA(f),
        "smea": lambda: library.SMEA(f),
        "nnm": lambda: library.NNM(f),
        "bucketing": lambda: library.Bucketing(2),
        "clipping": lambda: library.Clipping(radius(shape[1])),
        "arc": lambda: library.ARC(f),
    }[rule]()


def byzpy(rule: str, f: int, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """ByzPy's rule by fedsim's name, without its pool of workers."""
    library: Any = importlib.import_module("byzpy.pre_aggregators")
    modules: Any = {
        name: importlib.import_module(f"byzpy.aggregators.{name}_wise") for name in ("coordinate", "geometric", "norm")
    }
    instance = {
        "trimmed_mean": lambda: modules["coordinate"].CoordinateWiseTrimmedMean(f),
        "krum": lambda: modules["geometric"].Krum(f),
        "multi_krum": lambda: modules["geometric"].MultiKrum(f, shape[0] - f),
        "centered_clipping": lambda: modules["norm"].CenteredClipping(c_tau=radius(shape[1]), M=1, init="zero"),
        "caf": lambda: modules["norm"].CAF(f),
        "mda": lambda: modules["geometric"].MinimumDiameterAveraging(f),
        "smea": lambda: modules["geometric"].SMEA(f),
        "nnm": lambda: library.NearestNeighborMixing(f),
        "bucketing": lambda: library.Bucketing(2),
        "clipping": lambda: library.Clipping(radius(shape[1])),
        "arc": lambda: library.ARC(f),
    }[rule]()
    return getattr(instance, "aggregate", None) or instance.pre_aggregate


class Session:
    """The current updates, and a rule of each library."""

    def __init__(self) -> None:
        self.rows = np.zeros((1, 1), np.float32)
        self.rules: dict[str, Callable[[Any], Any]] = {}

    def data(self, num_clients: int, size: int) -> float:
        """Generates the updates."""
        self.rows = random_updates(num_clients, size)
        return 0.0

    def use(self, library: str, rule: str, f: int, file: str) -> float:
        """Seconds of the first call of a rule; saves its result in `file`."""
        self.rules[library] = (byzpy if library == "byzpy" else byzfl)(rule, f, self.rows.shape)
        seconds, result = self._call(library)
        rows = result if isinstance(result, list) else [result]
        np.save(file, np.squeeze(np.stack([np.asarray(row, np.float32) for row in rows])))
        return seconds

    def time(self, library: str, number: int) -> float:
        """Mean seconds of `number` calls."""
        return sum(self._call(library)[0] for _ in range(number)) / number

    def _call(self, library: str) -> tuple[float, Any]:
        updates = importlib.import_module("torch").from_numpy(self.rows.copy())  # some rules change their argument
        if library == "byzpy":
            updates = list(updates)
        started = time.perf_counter()
        result = self.rules[library](updates)
        return time.perf_counter() - started, result


def main() -> None:
    """Answers commands until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    parser.add_argument("--memory", type=int, default=8, help="GiB that calls may allocate")
    options = parser.parse_args()
    answer = sys.stdout
    sys.stdout = sys.stderr
    versions = {}
    for package in ("torch", "byzfl", "byzpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
        importlib.import_module(package)  # so that calls do not include it
    if "torch" in versions:
        importlib.import_module("torch").set_num_threads(options.threads)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + options.memory * GIB, resource.RLIM_INFINITY))

    print(json.dumps(versions), file=answer, flush=True)
    session = Session()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            reply = {"seconds": getattr(session, command)(*arguments)}
        except (MemoryError, RuntimeError) as error:
            reply = {"error": str(error).splitlines()[0] if str(error) else "out of memory"}
        print(json.dumps(reply), file=answer, flush=True)


if __name__ == "__main__":
    main()
