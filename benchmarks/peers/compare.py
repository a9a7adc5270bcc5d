"""Compares fedsim with its peers on the same workloads, side by side.

For each workload:

1. CHECK: every system runs round 0 from the same parameters, with the same clients and batches. A peer whose update
   differs from fedsim's by more than a thousandth of its length is not timed, and the command exits with 1.
2. TIME: in each pass fedsim and then every peer run in new processes. A process warms up (workers, compiling, the first
   round: `first_round_seconds`, without imports and loading data), then times calls of several rounds, each from the
   initial parameters and the first round. fedsim samples its cohorts and shuffles each client's examples as always.
   Peers get the same cohorts and take examples in the stored order, which is in their favor.

Prints one JSON line for each workload and system, and a Markdown table of the peers' seconds a round divided by
fedsim's. Missing environments are created from `requirements/`.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import exchange
import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import measure
import workloads

import fedsim
from fedsim.core.client import num_batches
from fedsim.core.keys import RoundKeys
from fedsim.core.local import random_order
from fedsim.engine import devices

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-3  # of the length of round 0's update
NUM_ROUNDS = {"W1": 1, "W2": 2, "W3": 150, "W4": 2, "W5": 1}  # of a timed call
SYSTEM_ROUNDS = {("W3", "fedsim"): 1000, ("W3", "flwr"): 5}  # W3's rounds are all of one size


class Peer(NamedTuple):
    """Another simulator."""

    environment: str
    script: str
    workloads: tuple[str, ...]


ALL = ("W1", "W2", "W3", "W4", "W5")
PEERS = {
    "torch_loop": Peer("torch", "torch_loop.py", ALL),
    "torch_vmap": Peer("torch", "torch_vmap.py", ("W1", "W2", "W3")),
    "fedjax": Peer("fedjax", "fedjax_round.py", ALL),
    "pfl": Peer("pfl", "pfl_round.py", ALL),
    "flwr": Peer("flwr", "flwr_round.py", ALL),
}


class RunError(Exception):
    """A system's process failed."""


def main() -> int:
    """Parses the arguments, compares on each workload, prints the table; 1 if a peer failed or disagreed."""
    import platformdirs  # here, because `accelerator.py` imports this module without it

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=ALL, default=list(ALL), metavar="W")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument(
        "--passes", type=measure.at_least(1), default=3, help="how often every system is started and timed"
    )
    parser.add_argument("--calls", type=measure.at_least(1), default=3, help="timed calls in each pass")
    parser.add_argument("--rounds", type=measure.at_least(1), help="rounds of a timed call (default: by workload)")
    parser.add_argument(
        "--width", type=measure.at_least(1), help="fedsim's clients in lockstep (default: fedsim's choice)"
    )
    parser.add_argument("--out", type=Path, help="file to which the JSON lines are appended")
    environments = Path(platformdirs.user_cache_dir("fedsim")) / "peers"
    parser.add_argument("--envs", type=Path, default=environments, help=f"the peers' environments ({environments})")
    options = parser.parse_args()

    loaded = workloads.load_all(options.workloads)  # first, so that nothing is measured in vain
    pythons = {name: environment(name, options.envs) for name in {PEERS[peer].environment for peer in options.peers}}
    failures: list[str] = []
    lines: list[dict[str, Any]] = []
    for name, workload in loaded.items():
        with tempfile.TemporaryDirectory() as folder:
            export(workload, Path(folder), options.rounds or NUM_ROUNDS[name])
            for line in compare(name, Path(folder), pythons, options, failures):
                lines.append(line)
                print(json.dumps(line), flush=True)
                if options.out:
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
    print(f"\n{table(lines)}")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def environment(name: str, folder: Path) -> Path:
    """The Python of the environment `name` in `folder`, created if it is missing or has other requirements."""
    requirements, home = HERE / "requirements" / f"{name}.txt", folder / name
    python, installed = home / "bin" / "python", home / "requirements.txt"
    if not installed.is_file() or installed.read_text() != requirements.read_text():
        log(f"creating the environment {home}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
        subprocess.run(install, check=True, stdout=sys.stderr)
        installed.write_text(requirements.read_text())
    return python


def export(workload: workloads.Workload, folder: Path, rounds: int) -> None:
    """Writes data, initial parameters, the cohorts of `rounds` rounds, and the order of examples in round 0."""
    train = workload.dataset.train
    simulation = workload.simulation()
    state = jax.jit(simulation.init)(jax.random.key(0), jax.tree.map(jnp.asarray, train), fedsim.HParams())
    cohorts = list(
        np.asarray(simulation.cohorts(jax.random.key(0), jax.tree.map(jnp.asarray, train), jnp.arange(rounds)))
    )
    training_key = RoundKeys.of(state.key, jnp.int32(0)).training
    batch_size = min(workload.batch_size, workload.dataset.max_num_examples)
    length = num_batches(workload.dataset.max_num_examples, batch_size) * batch_size
    order = []
    for client in cohorts[0]:
        key = jax.random.fold_in(jax.random.fold_in(training_key, client), 0)  # the client's, in its epoch 0
        count = train.num_examples[client]
        order.append(np.asarray(random_order(jax.random.split(key)[0], count, length))[:count])

    leaves, _ = jax.tree_util.tree_flatten_with_path(state.variables.params)
    settings = {
        "workload": workload.name,
        "model": type(workload.module).__name__,
        "module": {k: v for k, v in asdict(workload.module).items() if isinstance(v, int | float | tuple)},
        "batch_size": batch_size,
        "learning_rate": workload.learning_rate,
        "num_classes": workload.module.num_classes,
        "leaves": [(peer_name([key.key for key in path]), leaf.shape) for path, leaf in leaves],
    }
    (folder / "settings.json").write_text(json.dumps(settings, indent=2))
    np.savez(
        folder / "data.npz",
        x=train.x,
        y=train.y,
        offsets=train.offsets,
        num_examples=train.num_examples,
        cohorts=np.stack(cohorts),
        params=np.concatenate([np.ravel(leaf) for _, leaf in leaves]),
        order=np.concatenate(order),
    )


def peer_name(path: list[str]) -> str:
    """The parameter's name for the peers; convolutions are named "Conv_0" for any class."""
    return "/".join([re.sub(r"^Conv[A-Za-z]*_", "Conv_", path[0]), *path[1:]])


def compare(
    name: str, folder: Path, pythons: dict[str, Path], options: argparse.Namespace, failures: list[str]
) -> list[dict[str, Any]]:
    """Checks and times fedsim and the peers on the workload in `folder`; a line for each. Appends to `failures`."""
    width = [] if options.width is None else ["--width", str(options.width)]
    commands = {"fedsim": [sys.executable, HERE / "fedsim_round.py", folder, *width]}
    for peer in options.peers:
        if name in PEERS[peer].workloads:
            commands[peer] = [pythons[PEERS[peer].environment], HERE / PEERS[peer].script, folder]
    work = exchange.load(folder)

    log(f"{name}: fedsim runs round 0")
    run(commands["fedsim"] + ["--check"])
    checks: dict[str, float | None] = {"fedsim": None}
    for peer in list(commands)[1:]:
        log(f"{name}: {peer} runs round 0")
        try:
            run(commands[peer] + ["--check"])
            checks[peer] = distance(work, peer)
        except RunError as error:
            failures.append(f"{name}: {peer} failed and is not timed: {error}")
            continue
        if not checks[peer] < TOLERANCE:
            failures.append(f"{name}: {peer} differs from fedsim by {checks[peer]:.2e} and is not timed")

    results: dict[str, list[dict[str, Any]]] = {
        system: [] for system, check in checks.items() if check is None or check < TOLERANCE
    }
    for number in range(options.passes):
        for system, result in results.items():
            log(f"{name}: pass {number + 1} of {options.passes}, {system}")
            timed = ["--rounds", str(num_rounds(name, system, options)), "--calls", str(options.calls)]
            try:
                result.append(run(commands[system] + timed))
            except RunError as error:
                failures.append(f"{name}: {system} failed in pass {number + 1}: {error}")
    return [
        line(work, system, num_rounds(name, system, options), result, checks[system])
        for system, result in results.items()
        if result
    ]


def num_rounds(name: str, system: str, options: argparse.Namespace) -> int:
    """The rounds of a timed call."""
    return options.rounds or SYSTEM_ROUNDS.get((name, system), NUM_ROUNDS[name])


def line(
    work: exchange.Work, system: str, rounds: int, results: list[dict[str, Any]], check: float | None
) -> dict[str, Any]:
    """The JSON line of one system on one workload, from its results in all passes."""
    seconds = [s for result in results for s in result["seconds_per_round"]]
    samples = np.mean([work.num_examples[work.cohort(r)].sum() for r in range(rounds)])
    median = statistics.median(seconds)
    return {
        "workload": work.settings["workload"],
        "system": system,
        "check": check,
        "first_round_seconds": [round(result["first_round_seconds"], 3) for result in results],
        "median_seconds_per_round": round(median, 6),
        "minimum_seconds_per_round": round(min(seconds), 6),
        "samples_per_second": round(float(samples) / median),
        "rounds": rounds,
        "seconds_per_round": [round(s, 6) for s in seconds],
        "device": devices.describe()["kind"],
        "cpu_count": os.cpu_count(),
        "versions": results[0]["versions"],
        "command": measure.command(),
    }


def distance(work: exchange.Work, peer: str) -> float:
    """The distance of the peer's parameters from fedsim's after round 0, relative to the length of fedsim's update."""
    before = exchange.flatten(work.params, work.settings["leaves"]).astype(np.float64)
    fedsim = np.load(exchange.params_file(work.folder, "fedsim"))
    after = np.load(exchange.params_file(work.folder, peer))
    return float(np.linalg.norm(after - fedsim) / np.linalg.norm(fedsim - before))


def run(command: list[Any]) -> dict[str, Any]:
    """Runs `command` and returns its last line of JSON. Raises `RunError` with the end of its stderr if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RunError(done.stderr[-3000:])
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def table(lines: list[dict[str, Any]]) -> str:
    """A Markdown table of each peer's median seconds a round divided by fedsim's."""
    median = {(line["workload"], line["system"]): line["median_seconds_per_round"] for line in lines}
    names = list(dict.fromkeys(name for name, _ in median))
    peers = [peer for peer in PEERS if any(system == peer for _, system in median)]
    head = ["a round, seconds / fedsim's", "fedsim", *peers]
    rows = [[":---"] + ["---:"] * (len(peers) + 1)]
    for name in names:
        fedsim = median[name, "fedsim"]
        ratios = [f"{median[name, peer] / fedsim:.2f}" if (name, peer) in median else "" for peer in peers]
        rows.append([name, f"{fedsim:.3g} s", *ratios])
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, *rows])


def log(message: str) -> None:
    """Prints progress on stderr."""
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
