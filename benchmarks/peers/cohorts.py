"""Milliseconds to load the examples of a cohort from files, by fedsim and by the loaders of FedJAX and pfl-research.

N clients have 20 random images of 28 x 28 pixels each; a cohort has 100 clients, drawn at random for each round. fedsim
draws the cohorts of 10 rounds, gathers their clients' examples from a memory-mapped file and puts them on the device,
as it does with `data.placement = "host"`. FedJAX reads its SQLite database, written by its own builder (random pixels
cannot be compressed, so decompressing them is a copy); pfl-research reads memory-mapped files, in the process
("pfl") or in two worker processes ("pfl_workers"). Peers get the ids of the clients, and end with NumPy arrays. Each
system compares its first cohorts with the file. In each pass fedsim and then every peer run in turn.

Prints one JSON line for each N and loader, and a Markdown table. Missing environments are created from `requirements/`.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare
import jax
import numpy as np
import platformdirs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import measure
import streaming

import fedsim
from fedsim.core.types import FederatedDataset
from fedsim.engine import memory, placement
from fedsim.engine.compiling import GroupCompiler
from fedsim.engine.layout import Layout

LOADERS = {"fedjax": "fedjax", "pfl": "pfl", "pfl_workers": "pfl"}  # with the environment of each
NUM_CHUNKS = 20  # of drawn cohorts, which the peers repeat


def main() -> None:
    """Parses the arguments, measures each number of clients, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=measure.positive, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--passes", type=measure.positive, default=3, help="how often every loader is started")
    parser.add_argument("--calls", type=measure.positive, default=5, help="timed chunks of 10 rounds in each pass")
    parser.add_argument("--out", type=Path, help="file to which the JSON lines are appended")
    environments = Path(platformdirs.user_cache_dir("fedsim")) / "peers"
    parser.add_argument("--envs", type=Path, default=environments, help=f"the peers' environments ({environments})")
    parser.add_argument("--folder", type=Path, help="where populations are written (default: the temporary folder)")
    options = parser.parse_args()
    pythons = {name: compare.environment(name, options.envs) for name in set(LOADERS.values())}
    rows = []
    for num_clients in options.clients:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            medians = measure_loaders(num_clients, Path(folder), pythons, options)
        ratios = [f"{medians[loader] / medians['fedsim']:.1f}" for loader in LOADERS]
        rows.append([f"{num_clients:,}", f"{1000 * medians['fedsim']:.2f} ms", *ratios])
    head = ["N", "fedsim, a cohort", *(f"{loader} / fedsim" for loader in LOADERS)]
    print("\n" + "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---:"] * len(head), *rows]))


def measure_loaders(
    num_clients: int, folder: Path, pythons: dict[str, Path], options: argparse.Namespace
) -> dict[str, float]:
    """The median seconds that each loader takes for a cohort; prints a line for each."""
    dataset = streaming.population(num_clients, folder / "x.npy")
    write_peers_files(dataset, folder)
    load_chunk = fedsim_loader(dataset)
    seconds: dict[str, list[float]] = {"fedsim": []} | {loader: [] for loader in LOADERS}
    versions: dict[str, dict[str, str]] = {"fedsim": {"fedsim": fedsim.__version__, "jax": jax.__version__}}
    for number in range(options.passes):
        load_chunk()  # which the thread has loaded while the others were running
        seconds["fedsim"] += [load_chunk() / streaming.CHUNK for _ in range(options.calls)]
        for loader, environment in LOADERS.items():
            compare.log(f"{num_clients:,} clients: pass {number + 1} of {options.passes}, {loader}")
            script = compare.HERE / "loaders.py"
            result = compare.run([pythons[environment], script, folder, "--loader", loader, "--calls", options.calls])
            seconds[loader] += result["seconds_per_round"]
            versions[loader] = result["versions"]
    medians = {loader: statistics.median(values) for loader, values in seconds.items()}
    for loader, values in seconds.items():
        line: dict[str, Any] = {
            "benchmark": "cohorts",
            "loader": loader,
            "clients": num_clients,
            "cohort_size": streaming.COHORT,
            "median_seconds_per_cohort": medians[loader],
            "minimum_seconds_per_cohort": min(values),
            "seconds_per_cohort": values,
            "device": compare.processor(),
            "num_cpus": len(measure.cpus()),
            "versions": versions[loader],
            "command": measure.command(),
        }
        measure.write_line(options.out, line)
    return medians


def write_peers_files(dataset: FederatedDataset, folder: Path) -> None:
    """Labels [N, examples] and random cohorts [NUM_CHUNKS, CHUNK, K] as .npy files beside the images."""
    np.save(folder / "y.npy", np.asarray(dataset.train.y).reshape(-1, streaming.EXAMPLES))
    rng = np.random.default_rng(1)
    draw = lambda: rng.choice(dataset.num_clients, streaming.COHORT, replace=False)
    cohorts = [[draw() for _ in range(streaming.CHUNK)] for _ in range(NUM_CHUNKS)]
    np.save(folder / "cohorts.npy", np.asarray(cohorts))


def fedsim_loader(dataset: FederatedDataset) -> Callable[[], float]:
    """A function that loads the cohorts of the next chunk of rounds and returns the seconds that this took."""
    tables = {
        "data": {"num_clients": dataset.num_clients, "placement": "host"},
        "mlp": {"hidden_sizes": [4]},
        "server": {"cohort_size": streaming.COHORT, "eval_every": streaming.CHUNK, "num_rounds": 10**6},
        "record": {"losses": False},
    }
    configs = fedsim.load(tables).runs()
    size = placement.buffer_examples(configs, dataset, 1, memory.available())
    inputs = GroupCompiler(configs, dataset, Layout(2, buffer_examples=size)).place()
    segments = inputs.segments(0, 10**6, streaming.CHUNK)

    def load_chunk() -> float:
        started, rounds_left = time.perf_counter(), streaming.CHUNK
        while rounds_left:
            segment = next(segments)
            jax.block_until_ready(segment.shared.train)
            rounds_left -= segment.num_rounds
        return time.perf_counter() - started

    segment = next(segments)
    clients = segment.client_ids[0]
    num_examples = len(clients) * streaming.EXAMPLES
    expected = np.asarray(dataset.train.x).reshape(dataset.num_clients, -1)[clients].ravel()
    np.testing.assert_array_equal(np.asarray(segment.shared.train.x)[:num_examples].ravel(), expected)
    load_chunk()
    return load_chunk


if __name__ == "__main__":
    main()
