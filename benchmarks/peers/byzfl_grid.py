"""Compares a grid of rules and attacks in ByzFL and in fedsim: equal results, and runs an hour.

Distributed SGD with momentum on 10 honest and f Byzantine clients, batches of 25, on the digits: MLP 64-32-10, and MLP
784-100-10 with the images upsampled to 28x28. Trimmed mean, median, Multi-Krum and geometric median, each alone and
after NNM, against ALIE, IPM, sign flips and ALIE at its best strength (`byzfl_cells.py` has the variants).

1. CHECK: three steps from the same model, on clients with one batch each, so that both libraries draw the same
   batches. If the parameters differ by more than `TOLERANCE` of their change, the command fails. ALIE at its best
   strength is not checked, because the libraries search it in different ways. Both geometric medians take 100 steps
   here.
2. fedsim runs the whole grid with all seeds twice: with an empty compilation cache, and again without compiling.
3. ByzFL runs each cell in one process with a thread for each core, and in a process for each core with one thread each;
   the faster way counts. Its batches differ from fedsim's. If a run would take longer than `--byzfl-seconds`, some
   steps are timed and the total is extrapolated; otherwise all seeds run and the final accuracies are compared.

ByzFL's seconds are those of steps and evaluations, without startup. Core-seconds are CPU time, for ByzFL with one
thread in each process; they depend less on other load of the machine. Prints a line of JSON for each cell, one for the
grid, and a Markdown table. ByzFL's environment is created from `requirements/` unless `--python` names one.
"""

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import byzfl_cells
import compare
import jax
import numpy as np
import platformdirs
from byzfl_cells import PRE_AGGREGATORS, Cell
from byzfl_fedsim import BATCH_SIZE, HIDDEN, MOMENTUM, Grid, GridResult, Work

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import measure

TOLERANCE = 1e-4  # of the length of three steps
CHECK_STEPS, MEDIAN_STEPS = 3, 100
MIN_TIMED_STEPS = 10  # of a ByzFL run that is cut short


class ByzFL:
    """A process that runs ByzFL."""

    def __init__(self, python: Path, folder: Path, threads: int) -> None:
        command = [python, Path(__file__).with_name("byzfl_side.py"), folder, "--threads", threads]
        self.process = subprocess.Popen([str(word) for word in command], stdin=-1, stdout=-1, text=True)
        self.versions = self._answer()

    def run(self, cell: Cell, seed: int, steps: int, eval_every: int, **changed: Any) -> dict[str, Any]:
        """Seconds and accuracies of a run; `changed` may have `median_steps` and `save`."""
        request = byzfl_cells.byzfl_config(cell, changed.pop("median_steps", byzfl_cells.NUM_STEPS))
        request |= {"learning_rate": byzfl_cells.LEARNING_RATE, "momentum": MOMENTUM, "batch_size": BATCH_SIZE}
        request |= {"seed": seed, "steps": steps, "eval_every": eval_every, "save": None} | changed
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    """Parses the arguments and measures each model's grid; 1 if a step differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=HIDDEN, default=list(HIDDEN))
    parser.add_argument("--rules", nargs="+", choices=byzfl_cells.RULES, default=list(byzfl_cells.RULES))
    parser.add_argument("--pre-aggregators", nargs="+", choices=PRE_AGGREGATORS, default=list(PRE_AGGREGATORS))
    parser.add_argument("--attacks", nargs="+", choices=byzfl_cells.ATTACKS, default=list(byzfl_cells.ATTACKS))
    parser.add_argument("--byzantine", type=measure.positive, default=2, help="f (default 2)")
    parser.add_argument("--seeds", type=measure.positive, default=5, help="runs of each cell (default 5)")
    parser.add_argument("--steps", type=measure.positive, default=800, help="steps of a run (default 800)")
    parser.add_argument(
        "--eval-every", type=measure.positive, default=100, help="steps between evaluations (default 100)"
    )
    parser.add_argument("--byzfl-seconds", type=float, default=10.0, help="longer runs are extrapolated (default 10)")
    parser.add_argument("--no-byzfl", action="store_true", help="run fedsim only")
    parser.add_argument("--python", type=Path, help="the Python that has ByzFL")
    parser.add_argument("--out", type=Path, help="file to which the printed lines are appended")
    options = parser.parse_args()
    if options.python is None and not options.no_byzfl:
        options.python = compare.environment("byzfl", Path(platformdirs.user_cache_dir("fedsim")) / "peers")
    cells = byzfl_cells.make_cells(options.pre_aggregators, options.rules, options.attacks, options.byzantine)
    num_different, rows = 0, []
    for model in options.models:
        with TemporaryDirectory() as folder:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            seeds = list(range(options.seeds))
            work = Work(model, Path(folder) / "all", seeds, options.steps, options.eval_every, options.byzantine)
            jax.config.update("jax_compilation_cache_dir", f"{folder}/programs-of-check")
            work.write()
            differences = {} if options.no_byzfl else check(work, cells, options.python)
            num_different += sum(difference > TOLERANCE for difference in differences.values())
            jax.config.update("jax_compilation_cache_dir", f"{folder}/programs")
            cold, warm = Grid(work, cells).run(), Grid(work, cells).run()
            rows.append(report(work, cells, cold, warm, differences, options))
    print("\n" + table(rows))
    return int(num_different > 0)


def check(work: Work, cells: list[Cell], python: Path) -> dict[Cell, float]:
    """The distance of ByzFL's parameters from fedsim's after three steps, relative to their change."""
    small = work._replace(folder=work.folder.with_name("check"), seeds=[0], steps=CHECK_STEPS, max_examples=BATCH_SIZE)
    small.write()
    checked = [cell for cell in cells if cell.attack != "optimal_alie"]
    if not checked:
        return {}
    expected = Grid(small, checked, MEDIAN_STEPS).run().params
    side, file, initial = ByzFL(python, small.folder, 1), small.folder / "byzfl.npy", small.folder / "initial-0.npy"
    differences = {}
    for cell, params in zip(checked, expected, strict=True):
        side.run(cell, 0, CHECK_STEPS, CHECK_STEPS, save=str(file), median_steps=MEDIAN_STEPS)
        differences[cell] = float(np.linalg.norm(params - np.load(file)) / np.linalg.norm(params - np.load(initial)))
    side.end()
    return differences


def report(
    work: Work,
    cells: list[Cell],
    cold: GridResult,
    warm: GridResult,
    differences: dict[Cell, float],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Runs ByzFL; prints a line for each cell and one for the grid, which is returned."""
    accuracies = warm.accuracies[:, -1].reshape(len(cells), -1)
    runs = accuracies.size
    grid = {"benchmark": "byzfl_grid", "model": work.model, "num_byzantine": work.f, "steps": work.steps}
    summary = grid | {
        "runs": runs,
        "groups": cold.num_groups,
        "fedsim_seconds_with_compiling": cold.seconds,
        "fedsim_seconds": warm.seconds,
        "fedsim_core_seconds": warm.core_seconds,
        "fedsim_runs_an_hour_with_compiling": 3600 * runs / cold.seconds,
        "fedsim_runs_an_hour": 3600 * runs / warm.seconds,
    }
    cores = len(measure.cpus()) or 1
    sides = [] if options.no_byzfl else [ByzFL(options.python, work.folder, n) for n in (cores, *[1] * cores)]
    lines, total, core_seconds = [], 0.0, 0.0
    for cell, finals, seconds in zip(cells, accuracies, warm.seconds_running, strict=True):
        line = {
            "rule": cell.name,
            "attack": cell.attack,
            "fedsim_seconds_a_run": seconds,
            "check": differences.get(cell),
        }
        line |= {"fedsim_accuracy": spread(finals.tolist())}
        if sides:
            line |= time_byzfl(work, cell, sides, options.byzfl_seconds)
            line["ratio"] = line["byzfl_seconds_a_run"] / seconds
            total += line["byzfl_seconds_a_run"] * len(finals)
            core_seconds += line["byzfl_core_seconds_a_run"] * len(finals)
        lines.append(line)
        measure.line(options.out, **grid, **line)
    if sides:
        rate = 3600 * runs / total
        ratios = {f"ratio{kind}": summary[f"fedsim_runs_an_hour{kind}"] / rate for kind in ("", "_with_compiling")}
        ratios["ratio_of_core_seconds"] = core_seconds / warm.core_seconds
        summary |= {"byzfl_seconds": total, "byzfl_core_seconds": core_seconds, "byzfl_runs_an_hour": rate}
        summary |= {"byzfl_versions": sides[0].versions, **ratios}
    for side in sides:
        side.end()
    measure.line(options.out, **summary)
    return summary | {"lines": lines}


def time_byzfl(work: Work, cell: Cell, sides: list[ByzFL], max_seconds: float) -> dict[str, Any]:
    """ByzFL's seconds of a run in either way, and its accuracies if the runs are complete."""
    evaluations = -(-work.steps // work.eval_every) + 1
    run_seconds = lambda run: run["seconds_a_step"] * work.steps + run["seconds_an_evaluation"] * evaluations
    multithreaded, *single_threaded = sides
    by_threads = run_seconds(multithreaded.run(cell, 0, MIN_TIMED_STEPS, MIN_TIMED_STEPS))
    is_complete = by_threads <= max_seconds
    steps = work.steps if is_complete else max(MIN_TIMED_STEPS, int(max_seconds / 10 / by_threads * work.steps))
    by_threads = run_seconds(multithreaded.run(cell, 0, min(steps, work.steps), work.eval_every))
    accuracies, seconds, core_seconds = [], [], []
    with ThreadPoolExecutor(len(single_threaded)) as pool:
        seeds = work.seeds if is_complete else work.seeds[:1] * len(single_threaded)
        for start in range(0, len(seeds), len(single_threaded)):
            batch = [(side, cell, seed) for side, seed in zip(single_threaded, seeds[start:], strict=False)]
            runs = list(pool.map(lambda args: args[0].run(*args[1:], steps, work.eval_every), batch))
            accuracies += [run["accuracies"][-1] for run in runs]
            core_seconds += [run_seconds(run) * run["core_share"] for run in runs]
            if len(runs) == len(single_threaded):
                seconds += [run_seconds(run) / len(single_threaded) for run in runs]
    by_processes = statistics.median(seconds) if seconds else None
    return {
        "byzfl_seconds_a_run": min(by_threads, by_processes or by_threads),
        "byzfl_seconds_by_threads": by_threads,
        "byzfl_seconds_by_processes": by_processes,
        "byzfl_core_seconds_a_run": statistics.median(core_seconds),
        "byzfl_steps": steps,
        "byzfl_accuracy": spread(accuracies) if is_complete else None,
    }


def spread(values: list[float]) -> dict[str, float]:
    """Mean and standard deviation over seeds."""
    return {"mean": round(float(np.mean(values)), 4), "std": round(float(np.std(values, ddof=len(values) > 1)), 4)}


def table(grids: list[dict[str, Any]]) -> str:
    """A Markdown table of fedsim's seconds a run, and ByzFL's as a multiple."""
    rows = []
    for grid in grids:
        attacks = list(dict.fromkeys(line["attack"] for line in grid["lines"]))
        rows += [[grid["model"], *attacks], [":---"] + ["---:"] * len(attacks)]
        for rule in dict.fromkeys(line["rule"] for line in grid["lines"]):
            lines = [line for line in grid["lines"] if line["rule"] == rule]
            ratio = lambda line: f" x {line['ratio']:.0f}" if "ratio" in line else ""
            rows.append([rule, *[f"{line['fedsim_seconds_a_run']:.3g} s{ratio(line)}" for line in lines]])
        rows.append([])
    return "\n".join("| " + " | ".join(row) + " |" if row else "" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
