"""Shared by all tests: the persistent compile cache, strict rank promotion, a tiny federation, run folders compared."""

import gc
import importlib.util
import os
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "jax"))
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # also where compilers for accelerators are installed
# Most of the time goes into compiling tiny programs, which LLVM need not optimize, XLA need not split for several
# threads, nor send through MLIR: a flag that later versions do not know, which ends the process.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS", "0")  # of each operation: 1/15 of tracing

import flax.linen as nn
import hypothesis
import jax
import numpy as np
import pytest
from polars.testing import assert_frame_equal

import fedsim
from fedsim.core.types import Examples
from fedsim.engine import compiling
from fedsim.engine.compiling import clear_programs
from fedsim.engine.group_inputs import Inputs
from fedsim.runs.callbacks import Callback
from fedsim.runs.folder import RunFolder

jax.config.update("jax_numpy_rank_promotion", "raise")
gc.set_threshold(100_000, 20, 100)  # tracing makes many objects and little garbage; the collector took 1/8 of the time
# The first example may compile or import. Examples are the same in every run.
hypothesis.settings.register_profile("fedsim", deadline=None, derandomize=True)
hypothesis.settings.load_profile("fedsim")

COUNTS = (1, 3, 4, 5, 8, 9, 12, 17)  # ragged: smaller than, equal to and larger than a batch of 4


def pytest_unconfigure() -> None:
    """Spares the collections at the end of a process, of all that was traced: seconds."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line about the kinds of tests that were left out."""
    left_out = [kind for kind in ("slow", "docs", "data", "fuzz") if f"not {kind}" in config.option.markexpr]
    if left_out:
        terminalreporter.write_line(
            f"Left out: tests of kind {', '.join(left_out)}; -m '{' or '.join(left_out)}' runs them"
        )


class Linear(nn.Module):
    """Softmax regression: small enough for a NumPy oracle."""

    num_classes: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.num_classes)(x)


def load_script(path: Path) -> ModuleType:
    """A script as a module, without running its `main`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_dataset(num_examples=COUNTS, num_features=5, num_test=40, seed=0) -> fedsim.FederatedDataset:
    """Three separable classes, client i with counts[i] examples."""
    rng = np.random.default_rng(seed)
    num_train = sum(num_examples)
    y = rng.integers(0, 3, num_train + num_test)
    x = rng.normal(size=(len(y), num_features)) + 2 * np.eye(3, num_features)[y]
    client_ids = np.repeat(np.arange(len(num_examples)), num_examples)
    return fedsim.from_arrays(x[:num_train], y[:num_train], client_ids, x[num_train:], y[num_train:])


def arfl(hparams: fedsim.HParams) -> fedsim.Aggregator:
    """ARFL with lambda from the swept settings, 1 where there are none."""
    return fedsim.aggregators.arfl(lam=hparams.settings.get("arfl.lam", 1.0))


def build_simulation(
    task,
    aggregator,
    *,
    cohort_size,
    dropout_rate=0.0,
    client_width=0,
    client_axis=None,
    loss_at="broadcast",
    record_losses=True,
    root=None,
    schedule=None,
    **options,
) -> fedsim.Simulation:
    """A simulation from flat options; those named like a field of `Method` are functions of `HParams`."""
    factories = {name: options.pop(name) for name in fedsim.Method._fields if name in options}
    factories = {"aggregator": aggregator, "client_optimizer": fedsim.client_sgd} | factories

    def method(hparams, round):
        hparams = hparams if schedule is None else schedule(hparams, round)
        return fedsim.Method(**{name: factory(hparams) for name, factory in factories.items()})

    cohort = fedsim.CohortOptions(cohort_size, dropout_rate, client_width, client_axis)
    losses = fedsim.LossOptions(loss_at, record_losses)
    return fedsim.Simulation(task, method, cohort, fedsim.TrainingOptions(**options), losses, root)


def make_simulation(dataset, aggregator=None, **options) -> fedsim.Simulation:
    """Five clients a round; the server's root data are the first test examples."""
    root = Examples(dataset.x_test[:10], dataset.y_test[:10])
    training = {"batch_size": 4, "epochs": 2, "max_num_examples": dataset.max_num_examples}
    task = fedsim.classification(Linear(), dataset.train.x[0])
    return build_simulation(task, aggregator or arfl, **({"cohort_size": 5, "root": root} | training | options))


class Stop(Callback):
    """A callback that interrupts at the `calls`th evaluation after the initial one; keeps what has been computed."""

    def __init__(self, calls=0):
        self.calls, self.computed, self.resumed = calls, [], []

    def on_start(self, start):
        if start.after > 0:
            self.resumed.append(start.after)

    def after_evaluation(self, evaluation):
        if evaluation.num_new:
            self.computed.append((evaluation.round, evaluation.num_new))
            if len(self.computed) == self.calls:
                raise KeyboardInterrupt

    @property
    def num_rounds(self) -> int:
        """Rounds that have been computed, sum over runs."""
        return sum(num_rounds for _, num_rounds in self.computed)


class Seen(Callback):
    """A callback that keeps the arguments of all calls."""

    def __init__(self):
        self.starts, self.evaluations, self.calls = [], [], []

    def on_start(self, start):
        self.starts.append(start)
        self.calls.append("start")

    def after_evaluation(self, evaluation):
        self.evaluations.append(evaluation)
        self.calls.append(evaluation.round)

    def on_end(self):
        self.calls.append("end")


def watch_tracing(patch: pytest.MonkeyPatch) -> list[Inputs]:
    """The inputs of the programs that are traced from now on, with none that are kept."""
    clear_programs()
    traced, trace = [], compiling._trace
    patch.setattr(compiling, "_trace", lambda inputs: traced.append(inputs) or trace(inputs))
    return traced


def check_equal(got: RunFolder, expected: RunFolder):
    """Both folders have the same runs, which are complete, with the same rows bit for bit, in whatever order."""
    got_runs, expected_runs = (sorted(folder.runs(), key=lambda run: run.id) for folder in (got, expected))
    assert [run.id for run in got_runs] == [run.id for run in expected_runs]
    assert all(run.is_complete for run in got_runs)
    for kind in ("rounds", "clients", "info"):
        assert_frame_equal(got.read(kind, got_runs), expected.read(kind, expected_runs), check_exact=True)


def finish_jobs(jobs: Iterable[str], path: Path) -> None:
    """Waits for `jobs` of the run folder `path` that are processes of this machine; raises what one raised."""
    import submitit

    results = [path / "slurm" / f"{job}_0_result.pkl" for job in jobs]
    deadline = time.monotonic() + 300
    while not all(result.exists() for result in results) and time.monotonic() < deadline:
        time.sleep(0.2)
    for job in jobs:
        submitit.LocalJob(path / "slurm", job).result()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """libtpu reads XLA's flags when it is loaded, long after XLA has, and does not know them all.

    They are put back for the processes that later tests start: other flags, other last digits.
    """
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("targets"):
            jax.devices()
            patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
        return (yield)


@pytest.fixture(scope="session")
def dataset() -> fedsim.FederatedDataset:
    return make_dataset()


@pytest.fixture(scope="session")
def data(dataset) -> fedsim.ClientData:
    return jax.tree.map(jax.numpy.asarray, dataset.train)


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes a second; other tests do it."""
    monkeypatch.setattr("fedsim.report.figures", lambda results: {})


@pytest.fixture(autouse=True)
def data_dirs(monkeypatch, tmp_path) -> tuple[Path, Path]:
    """Folders for prepared and decoded data sets in the working directory: tests see and touch nothing of the user."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("FEDSIM_") and name != "FEDSIM_DATA_DIR":
            monkeypatch.delenv(name)
    prepared, cache = tmp_path / "tfds", tmp_path / "cache"
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    monkeypatch.setenv("FEDSIM_CACHE_DIR", str(cache))
    return prepared, cache
