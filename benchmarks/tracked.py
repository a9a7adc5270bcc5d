"""Times that are tracked from commit to commit, in about a minute: `bash benchmarks/track` compares them.

They are processor seconds of all threads and child processes, which other work on the machine changes less.
"""

import resource
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import measure
import numpy as np
import pytest
import rules
from workloads import Workload, images

import fedsim
from fedsim.engine import devices, make_plan
from fedsim.engine.compiling import clear_programs, trace
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.models import CharLSTM, Cifar10CNN

QUICKSTART = Path(__file__).parents[1] / "configs" / "quickstart.toml"
SWEEP = {  # 2,000 runs of a round, in lockstep
    "data": {"num_clients": 10},
    "server": {"aggregator": "fedavg", "cohort_size": 2, "num_rounds": 1},
    "mlp": {"hidden_sizes": [2]},
    "corruption": {"kind": "shuffling", "fraction": fedsim.sweep([0.1, 0.2, 0.3, 0.4])},
    "record": {"clients": "none"},
    "seed": fedsim.sweep(range(500)),
}
devices.use_one_per_core()  # before JAX starts


def processor_seconds() -> float:
    """What this process and those that it has started and waited for have used so far."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def characters(num_clients: int, examples: int) -> fedsim.FederatedDataset:
    """`num_clients` x `examples` random texts of 80 characters."""
    x = np.random.default_rng(0).integers(80, size=(num_clients * examples, 80), dtype=np.int32)
    return fedsim.from_arrays(x, x[:, 0], np.arange(len(x)) // examples, x[:100], x[:100, 0])


pytestmark = pytest.mark.benchmark(timer=processor_seconds)
ROUNDS = {
    "w1_small": lambda: Workload("W1", images(20, 100), Cifar10CNN(10), 5, 64, 0.01),
    "lstm": lambda: Workload("LSTM", characters(4, 10), CharLSTM(80, dropout_rate=0.0), 2, 10, 0.1),
}


def test_import(benchmark):
    """`import fedsim` with JAX, in a process of its own."""
    command = [sys.executable, "-c", "import fedsim; fedsim.load"]
    benchmark.pedantic(lambda: subprocess.run(command, check=True), rounds=5, warmup_rounds=1)


def test_compile_quickstart(benchmark):
    """Tracing and compiling the quickstart's programs."""
    jax.config.update("jax_enable_compilation_cache", False)
    plan = make_plan(fedsim.load(QUICKSTART))

    def forget():
        clear_programs()
        jax.clear_caches()

    benchmark.pedantic(lambda: trace(make_inputs(plan.groups[0], plan.families[0])).compile(), setup=forget, rounds=2)


@pytest.mark.parametrize("name", ROUNDS)
def test_round(benchmark, name):
    """A round of a small W1, and of the Shakespeare LSTM."""
    workload = ROUNDS[name]()
    data = jax.tree.map(jnp.asarray, workload.dataset.train)
    simulation = workload.simulation(width=1, micro_batch=8)
    _, run = measure.compile_rounds(simulation, data, workload.learning_rate, max_rounds=1)
    benchmark.pedantic(run, args=(1,), rounds=12, warmup_rounds=2)


def test_trimmed_mean(benchmark):
    """The trimmed mean of 20 updates of a million parameters."""
    report = rules.make_report(rules.random_updates(20, 1_000_000))
    rule = jax.jit(lambda report: rules.apply_rule("trimmed_mean", 1_000_000, 4, report))
    benchmark.pedantic(lambda: jax.block_until_ready(rule(report)), rounds=20, warmup_rounds=2)


def test_report(benchmark, tmp_path):
    """`fedsim report` of 2,000 runs."""
    folder = fedsim.run(SWEEP, out=tmp_path / "run", progress=False).path
    command = [sys.executable, "-m", "fedsim", "report", folder]
    benchmark.pedantic(lambda: subprocess.run(command, check=True, capture_output=True), rounds=3)
