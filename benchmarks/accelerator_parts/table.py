"""Part e: Table 2 of the paper on CIFAR-10 at full protocol, as many whole runs as there is time for.

First ARFL and FedAvg with half of the clients shuffled, then all five rules in all seven scenarios, seed by seed. Runs
of a rule share a program. A few rounds are timed before a group goes on, and if not all its runs fit into the time that
is left, only those are taken that do. A run that does not fit at all is begun nevertheless: its checkpoint, written at
each evaluation, is where the next start goes on.
"""

import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from accelerator_parts import arrays
from accelerator_parts.ledger import Clock, Ledger, Piece, Result, Skipped
from accelerator_parts.table_runs import RULES, Group, Run, saved
from accelerator_parts.timing import memory
from accelerator_parts.work import Work, fewer, images
from fedsim.models import Cifar10CNN

SCENARIOS = [("none", 0.0), *((kind, share) for kind in ("shuffling", "flipping", "noisy") for share in (0.5, 0.3))]
SEEDS = range(5)
NUM_ROUNDS, EVERY = 2000, 50
TIMED = 2  # rounds of a group, after its first
LAST = 5  # evaluations whose mean is told, too
COMPILING = 60.0  # seconds, about, until a group's first round is done
PUBLISHED = Path(__file__).resolve().parents[2] / "src" / "fedsim" / "paper" / "published.csv"


class Table:
    """The runs of the table: what is done, and what comes next."""

    def __init__(self, ledger: Ledger, clock: Clock, folders: Sequence[Path], tiny: bool) -> None:
        self.ledger, self.clock, self.folders, self.tiny = ledger, clock, folders, tiny
        self.states = ledger.path.with_name(f"{ledger.path.stem}-{'tiny-' if tiny else ''}states")
        self.num_rounds, self.every = (8, 4) if tiny else (NUM_ROUNDS, EVERY)
        self.seconds_a_run_round: float | None = None  # of a run among others, as last measured
        self.tried: set[Run] = set()
        self.work: Work | None = None

    def pieces(self) -> Iterator[Piece]:
        """Groups of runs, one after another; each is chosen when those before it have ended."""
        for path, runs, done in saved(self.states):
            if not all(self.ledger.done(run.name) for run in runs):
                self.tried |= set(runs)
                yield Piece(f"{_names(runs)}, from round {done}", 0, partial(self._train, runs, path))
        for planned in plan(self.tiny):
            runs = self._open(planned)
            while runs:
                if self.clock.left("e") < COMPILING and not self.tiny:
                    rest = {run for group in plan(self.tiny) for run in self._open(group)}
                    yield Piece(f"e/the other {len(rest)} runs", 0, _no_time)
                    return
                chosen = runs[: self._fitting(len(runs))]
                self.tried |= set(chosen)
                yield Piece(_names(chosen), 0, partial(self._train, chosen))
                runs = self._open(runs)

    def _open(self, runs: list[Run]) -> list[Run]:
        return [run for run in runs if run not in self.tried and not self.ledger.done(run.name)]

    def _fitting(self, most: int) -> int:
        """How many of `most` runs fit into the time that is left; one at least."""
        if self.seconds_a_run_round is None:
            return most if self.tiny else 1
        seconds = self.seconds_a_run_round * self.num_rounds
        return max(1, min(most, int((self.clock.left("e") - COMPILING) / seconds)))

    def _train(self, runs: list[Run], checkpoint: Path | None = None) -> list[Result]:
        """Trains runs to their end, and writes their curves as they come; raises `Skipped` where the time is over."""
        group = Group(self._load(), runs, self.every)
        if checkpoint is None:
            group.start()
        else:
            group.restore(checkpoint)
        started, first = time.monotonic(), group.num_rounds
        seconds = self._step(group, 1)  # the first is slower
        seconds = self._step(group, TIMED) or seconds
        self.seconds_a_run_round = seconds / len(runs)
        rest = self.num_rounds - group.num_rounds
        left, needed = self.clock.left("e"), seconds * rest
        print(
            f"  {len(runs)} runs, {group.width} in lockstep, {1000 * seconds:.4g} ms a round; {rest} rounds take "
            f"{needed:.0f} s of the {left:.0f} s left: {'they fit' if needed < left else 'they do not fit'}",
            flush=True,
        )
        fewer_runs = int(len(runs) * (left - COMPILING) / needed) if needed > left and checkpoint is None else 0
        if fewer_runs > 0:
            self.tried -= set(runs[fewer_runs:])
            del group  # and its memory
            return self._train(runs[:fewer_runs])
        while group.num_rounds < self.num_rounds:
            fitting = int(self.clock.left("e") / (1.2 * seconds))
            if fitting < 1:
                group.save(self.states)
                raise Skipped(f"at round {group.num_rounds} of {self.num_rounds}; the next start goes on")
            seconds = self._step(group, fitting)
        a_round = (time.monotonic() - started) / max(1, group.num_rounds - first)
        for run in runs:
            self.ledger.write(run.name, [self._final(run, group, a_round)])
        group.path(self.states).unlink(missing_ok=True)
        return []

    def _step(self, group: Group, most: int) -> float:
        """The group's next rounds, until it is evaluated; `most` at most. Seconds of a round; 0 if it is at its end."""
        rounds = min(most, self.every - group.num_rounds % self.every, self.num_rounds - group.num_rounds)
        if rounds < 1:
            return 0.0
        began = time.monotonic()
        group.advance(rounds)
        seconds = (time.monotonic() - began) / rounds
        if group.num_rounds % self.every == 0:
            for run, numbers in zip(group.runs, group.report(), strict=True):
                name = f"{run.name} @{group.num_rounds}"
                if not self.ledger.done(name):
                    self.ledger.write(name, [Result(asdict(run) | {"round": group.num_rounds}, numbers)])
            group.save(self.states)
        return seconds

    def _load(self) -> Work:
        if self.work is None:
            try:
                dataset = arrays.load("cifar10", self.folders)
                dataset = fewer(dataset, 10, 20, 40) if self.tiny else dataset
            except arrays.MissingData:
                if not self.tiny:
                    raise
                dataset = images(10, 20)
            sizes = (3, 5, 0.01, 1) if self.tiny else (20, 64, 0.01, 5)
            self.work = Work("table2-cifar10", dataset, Cifar10CNN(10), *sizes, "shift_flip")
        return self.work

    def _final(self, run: Run, group: Group, seconds: float) -> Result:
        rounds = range(self.every, self.num_rounds + 1, self.every)
        curve = [line for number in rounds for line in self.ledger.find(f"{run.name} @{number}")]
        accuracies = [line["numbers"]["test_accuracy"] for line in curve]
        numbers = {
            "test_accuracy": accuracies[-1],
            "last5_test_accuracy": sum(accuracies[-LAST:]) / len(accuracies[-LAST:]),
            "published_test_accuracy": published(run),
            "rounds": group.num_rounds,
            "seconds_a_round_of_the_group": seconds,
            "runs_in_the_group": len(group.runs),
            "runs_in_lockstep": group.width,
            "compile_seconds": group.program.compile_seconds,
        }
        return Result(asdict(run), numbers | memory(group.program))


def plan(tiny: bool = False) -> list[list[Run]]:
    """The runs in order of worth; those in a list share a program."""
    first = [[Run(rule, "shuffling", 0.5, 0)] for rule in ("arfl", "fedavg")]
    if tiny:
        return [*first, [Run("arfl", "none", 0.0, 0), Run("arfl", "noisy", 0.5, 1), Run("arfl", "flipping", 0.3, 0)]]
    return first + [[Run(rule, *scenario, seed) for scenario in SCENARIOS] for seed in SEEDS for rule in RULES]


def published(run: Run) -> float | None:
    """The paper's mean of the run's cell."""
    kind = "clean" if run.kind == "none" else run.kind
    rule = "mkrum" if run.rule == "multi_krum" else run.rule
    lines = [line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")]
    for row in csv.DictReader(lines):
        cell = row["dataset"], row["aggregator"], row["corruption"], float(row["fraction"])
        if cell == ("cifar10", rule, kind, run.fraction):
            return float(row["accuracy_mean"]) / 100
    return None


def _names(runs: list[Run]) -> str:
    return runs[0].name + (f" and {len(runs) - 1} more" if len(runs) > 1 else "")


def _no_time() -> list[Result]:
    raise Skipped("no time is left")
