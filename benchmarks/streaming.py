"""Rounds with the clients' examples in a memory-mapped file on the host, compared with all of them on the devices.

N clients have 20 random images of 28 x 28 pixels each, 100 of them train in a round: one epoch, batches of 20, an MLP
784-4-10 (3,190 parameters). A chunk has 10 rounds. Both run the programs of `fedsim run`, chunk by chunk and
interleaved, and end with the same model, bit for bit, or the benchmark fails.

Prints one JSON line for each N and method: median milliseconds of a round, with data on the devices and on the host,
their ratio, and the bytes of the data, of a buffer and of the states of all clients. The resident form is left out
where data and states are larger than half of the free memory.
"""

import argparse
import tempfile
import time
from pathlib import Path

import jax
import measure
import numpy as np

import fedsim
from fedsim.config.schema import Config
from fedsim.core.types import ClientData, FederatedDataset
from fedsim.engine import memory, placement
from fedsim.engine.compiling import GroupCompiler
from fedsim.engine.device_inputs import DeviceInputs
from fedsim.engine.estimate import client_state_bytes
from fedsim.engine.layout import Layout
from fedsim.engine.programs import Executables

EXAMPLES, SIDE, CLASSES, COHORT, CHUNK = 20, 28, 10, 100, 10
METHODS = {
    "fedavg": {"server": {"aggregator": "fedavg"}, "record": {"losses": False}},
    "arfl": {"server": {"aggregator": "arfl"}},
    "scaffold": {"client": {"algorithm": "scaffold"}, "record": {"losses": False}},
}


def main() -> None:
    """Parses the arguments and measures each number of clients with each method."""
    parser = measure.parser(__doc__, repeats=5)
    parser.add_argument("--clients", type=measure.positive, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="default: all")
    parser.add_argument("--folder", type=Path, help="where the images are written (default: the temporary folder)")
    options = parser.parse_args()
    for num_clients in sorted(options.clients):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            dataset = population(num_clients, Path(folder) / "x.npy")
            for method in options.methods:
                measure_method(method, dataset, options)


def population(num_clients: int, path: Path) -> FederatedDataset:
    """`num_clients` clients whose images are in the file `path`."""
    rng, num_examples = np.random.default_rng(0), num_clients * EXAMPLES
    x = np.lib.format.open_memmap(path, "w+", np.uint8, (num_examples, SIDE, SIDE, 1))
    for start in range(0, num_examples, 100_000):
        part = x[start : start + 100_000]
        part[:] = rng.integers(0, 256, part.shape, np.uint8)
    x.flush()
    y = rng.integers(0, CLASSES, num_examples, np.int32)
    offsets, sizes = np.arange(num_clients, dtype=np.int32) * EXAMPLES, np.full(num_clients, EXAMPLES, np.int32)
    train = ClientData(np.load(path, mmap_mode="r"), y, offsets, sizes, np.zeros(num_clients, bool))  # type: ignore[arg-type]
    return FederatedDataset("images", train, np.asarray(x[:100]), y[:100], CLASSES, "image")


class Rounds:
    """Chunks of a run, one after another."""

    def __init__(self, config: Config, dataset: FederatedDataset, buffers: tuple[int, int]) -> None:
        devices = jax.device_count()
        layout = Layout(2, client_devices=devices, buffer_examples=buffers[0], buffer_clients=buffers[1])
        self._compiler = GroupCompiler([config], dataset, layout)
        self._executables: Executables = self._compiler.compile()[0]
        self._inputs: DeviceInputs = self._compiler.place()
        self.states = self._inputs.initial_states(self._executables)[0]
        self._segments = self._inputs.segments(0, config.server.num_rounds, CHUNK)

    def __call__(self) -> float:
        """Seconds of the next chunk."""
        started, rounds_left = time.perf_counter(), CHUNK
        while rounds_left:
            segment = next(self._segments)
            self.states, _ = self._inputs.run(self._executables, 0, self.states, segment)
            rounds_left -= segment.num_rounds
        jax.block_until_ready(self.states)
        return time.perf_counter() - started


def measure_method(method: str, dataset: FederatedDataset, options: argparse.Namespace) -> None:
    """Times chunks of both forms, interleaved, compares their models and prints a line."""
    tables = {
        "data": {"num_clients": dataset.num_clients},
        "mlp": {"hidden_sizes": [4]},
        "client": {"batch_size": EXAMPLES, "learning_rate": 0.05},
        "server": {"cohort_size": COHORT, "eval_every": CHUNK, "num_rounds": CHUNK * (options.repeats + 3)},
    }
    changes = {f"{section}__{key}": value for section, keys in METHODS[method].items() for key, value in keys.items()}
    configs = fedsim.load(tables, **changes).runs()
    available, train_bytes = memory.available(), dataset.train.x.nbytes + dataset.train.y.nbytes
    state_bytes = dataset.num_clients * client_state_bytes(configs[0], dataset)
    sizes = (placement.buffer_examples, placement.buffer_clients)
    buffers: tuple[int, int] = tuple(size(configs, dataset, 1, available) for size in sizes)  # type: ignore[assignment]
    kinds = {"host": buffers}
    if train_bytes + state_bytes < available / 2:
        kinds["device"] = (0, 0)
    rounds = {kind: Rounds(configs[0], dataset, buffers) for kind, buffers in kinds.items()}
    for chunk in rounds.values():
        chunk()
    timings = dict(zip(rounds, measure.time_interleaved(list(rounds.values()), options.repeats), strict=True))
    if "device" in rounds:
        models = [jax.device_get(chunk.states.variables) for chunk in rounds.values()]
        jax.tree.map(np.testing.assert_array_equal, *models)
    example_bytes = train_bytes // len(dataset.train.y)
    measure.line(
        options.out,
        benchmark="streaming",
        method=method,
        clients=dataset.num_clients,
        **{f"{kind}_round_seconds": timing.median / CHUNK for kind, timing in timings.items()},
        ratio=timings["host"].median / timings["device"].median if "device" in timings else None,
        data_bytes=train_bytes,
        buffer_bytes=buffers[0] * example_bytes,
        state_bytes=state_bytes,
    )


if __name__ == "__main__":
    main()
