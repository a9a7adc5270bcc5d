"""fedsim's side of `byzfl_grid.py`: data files, and the whole grid as one experiment."""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import byzfl_cells
import numpy as np
from byzfl_cells import Cell
from sklearn.datasets import load_digits

import fedsim
from fedsim.runs.folder import RunFolder

BATCH_SIZE, MOMENTUM, NUM_HONEST = 25, 0.9, 10
HIDDEN = {"digits": 32, "upsampled": 100}  # units; 2,410 and 79,510 parameters
NUM_TRAIN = 1430  # of 1,797 images, so that all clients have equal numbers


class Work(NamedTuple):
    """The settings of a grid, for both libraries."""

    model: str
    folder: Path
    seeds: list[int]
    steps: int
    eval_every: int
    f: int
    max_examples: int | None = None
    """The most examples of a client."""

    def write(self) -> None:
        """Writes `data.npz` for ByzFL, `fedsim.npz` with the Byzantine clients, and initial parameters of each seed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = divide(self.model, self.max_examples)
        np.savez(self.folder / "data.npz", **data)
        # Clients without examples do not participate: each Byzantine client has one, which is not used.
        byzantine = {"x": data["x"][:1], "y": data["y"][:1], "client_ids": np.zeros(1, int)}
        for number in range(self.f):
            byzantine["client_ids"] = np.full(1, NUM_HONEST + number)
            data |= {name: np.concatenate([data[name], values]) for name, values in byzantine.items()}
        np.savez(self.folder / "fedsim.npz", **data)
        nothing = self._replace(steps=0, eval_every=1)
        for seed, params in zip(
            self.seeds, Grid(nothing, [Cell("median", (), "alie", self.f)]).run().params, strict=True
        ):
            np.save(self.folder / f"initial-{seed}.npy", params)


def divide(model: str, max_examples: int | None) -> dict[str, np.ndarray]:
    """The digits divided among the honest clients, at most `max_examples` each, and a test set.

    "upsampled" images are 28x28: each pixel of the 8x8 as 4x4, two rows and columns cut off all around.
    """
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    if model == "upsampled":
        images = images.repeat(4, axis=1).repeat(4, axis=2)[:, 2:-2, 2:-2]
    order = np.random.default_rng(0).permutation(len(images))
    x, y = images.reshape(len(images), -1)[order], digits.target[order].astype(np.int32)
    train = NUM_TRAIN if max_examples is None else max_examples * NUM_HONEST
    ids = np.arange(train) % NUM_HONEST
    return {"x": x[:train], "y": y[:train], "client_ids": ids, "x_test": x[NUM_TRAIN:], "y_test": y[NUM_TRAIN:]}


class GridResult(NamedTuple):
    """The results of a grid; runs are in the order of cells, then of seeds."""

    seconds: float
    """Wall time."""
    core_seconds: float
    """CPU time."""
    seconds_running: list[float]
    """Seconds a run in compiled code, for each cell."""
    accuracies: np.ndarray
    """Test accuracies [runs, evaluations]."""
    params: list[np.ndarray]
    """Final parameters of each run, in PyTorch's order."""
    num_groups: int
    """Groups of runs, which share compiled programs."""


class Grid(NamedTuple):
    """All cells, for all seeds."""

    work: Work
    cells: list[Cell]
    median_steps: int = byzfl_cells.NUM_STEPS

    def experiment(self) -> dict[str, Any]:
        """The configuration."""
        work = self.work
        tables = [byzfl_cells.fedsim_config(cell, self.median_steps) | {"seed": work.seeds} for cell in self.cells]
        return {
            "name": work.model,
            "data": {"name": "arrays", "partition": "natural"},
            "arrays": {"path": str(work.folder / "fedsim.npz")},
            "model": {"name": "mlp"},
            "mlp": {"hidden_sizes": [HIDDEN[work.model]]},
            "corruption": {"clients": list(range(NUM_HONEST, NUM_HONEST + work.f))},
            "client": {
                "algorithm": "worker_momentum",
                "learning_rate": byzfl_cells.LEARNING_RATE,
                "steps": 1,
                "batch_size": BATCH_SIZE,
            },
            "worker_momentum": {"beta": MOMENTUM},
            "server": {
                "cohort_size": NUM_HONEST + work.f,
                "num_byzantine": work.f,
                "num_rounds": work.steps,
                "eval_every": work.eval_every,
            },
            "record": {"losses": False, "clients": "none", "models": True},
            "sweep": tables,
        }

    def run(self) -> GridResult:
        """Runs the grid in a new folder."""
        out = self.work.folder / f"runs-{time.monotonic_ns()}"
        started, cpu = time.perf_counter(), time.process_time()
        rounds = fedsim.run(self.experiment(), out=out, progress=False).rounds.to_pandas()
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu

        manifest = RunFolder(out).read_manifest()
        expected = [(cell.rule, seed) for cell in self.cells for seed in self.work.seeds]
        assert [(run["server.aggregator"], run["seed"]) for run in manifest["runs"]] == expected
        running = np.zeros(len(expected))
        for number, group in enumerate(manifest["plan"]):
            seconds_running = json.loads((out / "groups" / f"{number:05}.json").read_text())["seconds_running"]
            running[group["runs"]] = seconds_running / len(group["runs"])
        return GridResult(
            seconds,
            cpu,
            running.reshape(len(self.cells), -1).mean(axis=1).tolist(),
            np.stack([rows["test_accuracy"] for _, rows in rounds.sort_values(["run", "round"]).groupby("run")]),
            [read_params(out / "models" / f"{run:05}.npz") for run in range(len(expected))],
            len(manifest["plan"]),
        )


def read_params(file: Path) -> np.ndarray:
    """A model's parameters in the order of PyTorch, with transposed kernels."""
    with np.load(file) as model:
        parts = [model[f"Dense_{layer}/{part}"].T.ravel() for layer in (0, 1) for part in ("kernel", "bias")]
    return np.concatenate(parts)
