"""Part a: the accelerator against the CPU of the same process, on the quickstart's runs.

Both start from the same state, take the same keys and compute the same program, so that only rounding differs. It grows
with the rounds, as any small difference does; so one round is compared, from the same state of several rounds, with all
products at full float32 (`jax.default_matmul_precision("highest")`).

The bound of their difference, relative to the length of the global update, is that of `rounding.py`. On the longest way
through a round lie T steps of local SGD, each with the n terms of its products, one after another, and T sums of a step
and the parameters, which are |w| / |update| times larger than the update:

    bound = 4 u (sqrt(T n) + sqrt(T) |w| / |update|)

A rule that chooses clients (Multi-Krum, CFL) may choose others where two are as good; that would show in the weights.
After all rounds the test accuracy may differ by the binomial noise of that many test examples, three sigma. What JAX's
default precision does (TF32 on a GPU, bfloat16 passes on a TPU) is reported beside it, not judged.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedsim
from accelerator_parts.ledger import Result
from accelerator_parts.rounding import SAFETY, UNIT, summed_terms
from accelerator_parts.work import Rule, Work, on
from fedsim.core.types import Array, ClientData, HParams, PyTree, RoundRecord, ServerState, Variables

RULES: dict[str, Rule] = {
    "fedavg": lambda hparams: fedsim.aggregators.fedavg(),
    "arfl": lambda hparams: fedsim.aggregators.arfl(lam=hparams.settings["arfl.lam"]),
    "multi_krum": lambda hparams: fedsim.aggregators.multi_krum(),
    "rfa": lambda hparams: fedsim.aggregators.rfa(),
    "cfl": lambda hparams: fedsim.aggregators.cfl(),
}
SCENARIOS = ["clean", "shuffling 30 %"]
SHUFFLED = (0.0, 0.3)  # share of the clients, by scenario
LAMBDAS = (1e4, 1.0)


class Inputs(NamedTuple):
    """What differs between the runs, [S]."""

    hparams: HParams
    y: Array
    corrupted: Array


class Round(NamedTuple):
    """What is compared of a round, on the host."""

    params: np.ndarray  # [S, P] float64
    record: RoundRecord  # [S, K]
    accuracy: np.ndarray  # [S]


@dataclass(frozen=True)
class Side:
    """The same programs on one device at one precision; `round` is compiled."""

    device: jax.Device
    round: Callable[..., tuple[ServerState, RoundRecord, Array]]
    arguments: tuple[PyTree, ...]  # data, inputs, test set

    def follow(self, states: ServerState, num_rounds: int, keep: Sequence[int] = ()) -> tuple[list[Round], dict]:
        """The rounds after `states`, and the states before the rounds in `keep`."""
        states, rounds, kept = on(self.device, states), [], {}
        for number in range(num_rounds):
            if number in keep:
                kept[number] = states
            states, record, accuracy = self.round(states, *self.arguments)
            rounds.append(Round(flat(states.variables), jax.device_get(record), np.asarray(accuracy)))
        return rounds, kept


def flat(variables: Variables) -> np.ndarray:
    """The parameters [S, P] of runs."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(variables.params)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def compare(work: Work, rule: str, num_rounds: int) -> list[Result]:
    """What the accelerator and the CPU differ by, in each scenario of the rule."""
    cpu, accelerator = jax.devices("cpu")[0], jax.devices()[0]
    simulation = work.simulation(rule=RULES[rule], record_losses=True)
    drawn = {device: _draw(device, work) for device in {cpu, accelerator}}
    states, inputs = _start(cpu, simulation, work, drawn[cpu])
    places = [(cpu, "highest"), (accelerator, "highest"), (accelerator, None)]
    with ThreadPoolExecutor(2) as pool:
        sides = list(pool.map(partial(_side, simulation, work, states, inputs), *zip(*places, strict=True)))
    reference, exact, default = sides
    starts = sorted({0, num_rounds // 5, num_rounds // 2})
    expected, kept = reference.follow(states, num_rounds, starts)
    before = {number: flat(state.variables) for number, state in kept.items()}
    found = {"highest": exact.follow(states, num_rounds)[0], "default": default.follow(states, num_rounds)[0]}
    single = {
        precision: {number: side.follow(kept[number], 1)[0][0] for number in starts}
        for precision, side in (("highest", exact), ("default", default))
    }
    terms = summed_terms(work)
    same_data = all(np.array_equal(*pair) for pair in zip(drawn[cpu], drawn[accelerator], strict=True))
    results = []
    for run, scenario in enumerate(SCENARIOS):
        one_round = [
            _one_round(work, run, number, before[number], expected[number], single, terms) for number in starts
        ]
        final = _final(run, expected, found, len(work.dataset.y_test))
        same_cohorts = all(
            np.array_equal(ours.record.client_ids[run], theirs.record.client_ids[run])
            for ours, theirs in zip(expected, found["highest"], strict=True)
        )
        passed = (
            same_data
            and same_cohorts
            and all(one["difference"] <= one["bound"] for one in one_round)
            and abs(final["highest"] - final["cpu"]) <= final["allowed_difference"]
        )
        settings = {"rule": rule, "scenario": scenario, "rounds": num_rounds, "seed": 0}
        numbers = {"passed": bool(passed), "same_corruption": same_data, "same_cohorts": same_cohorts}
        over_rounds = _over_rounds(run, before[0], expected, found)
        results.append(Result(settings, numbers | {"one_round": one_round, "final": final, "over_rounds": over_rounds}))
    return results


def _draw(device: jax.Device, work: Work) -> tuple[np.ndarray, np.ndarray]:
    """Who is corrupted [S, N], and the labels [S, M], as a device draws them."""

    @jax.jit
    def draw(data: ClientData, key: Array) -> tuple[Array, Array]:
        key, _ = jax.random.split(key)
        number = round(SHUFFLED[1] * work.dataset.num_clients)
        shuffled = fedsim.corrupt(fedsim.corruption.shuffling(), key, data, work.dataset.spec, number)
        return jnp.stack([data.corrupted, shuffled.corrupted]), jnp.stack([data.y, shuffled.y])

    corrupted, y = draw(*on(device, (work.dataset.train, jax.random.key(0))))
    return np.asarray(corrupted), np.asarray(y)


def _start(
    cpu: jax.Device, simulation: fedsim.Simulation, work: Work, drawn: tuple[np.ndarray, np.ndarray]
) -> tuple[ServerState, Inputs]:
    """The runs' first states and inputs, on the CPU."""
    corrupted, y = drawn
    every = lambda number: jnp.full(len(SCENARIOS), number, jnp.float32)
    hparams = HParams(every(work.learning_rate), every(1), {"arfl.lam": jnp.asarray(LAMBDAS, jnp.float32)})
    inputs, data, key = on(cpu, (Inputs(hparams, y, corrupted), work.dataset.train, jax.random.key(0)))

    def one(inputs: Inputs, data: ClientData, key: Array) -> ServerState:
        data = data._replace(y=inputs.y, corrupted=inputs.corrupted)
        return simulation.init(jax.random.split(key)[1], data, inputs.hparams)

    return jax.jit(jax.vmap(one, in_axes=(0, None, None)))(inputs, data, key), inputs


def _side(
    simulation: fedsim.Simulation,
    work: Work,
    states: ServerState,
    inputs: Inputs,
    device: jax.Device,
    precision: str | None,
) -> Side:
    """The program of a round and its test accuracy, compiled for a device and a precision of products."""

    def one(
        state: ServerState, data: ClientData, inputs: Inputs, x: Array, y: Array
    ) -> tuple[ServerState, RoundRecord, Array]:
        data = data._replace(y=inputs.y, corrupted=inputs.corrupted)
        state, record = simulation.round(state, data, inputs.hparams)
        metrics = fedsim.evaluate(simulation.task, state.variables, x, y)
        return state, record, metrics.num_correct / metrics.num_examples

    arguments = on(device, (work.dataset.train, inputs, work.dataset.x_test, work.dataset.y_test))
    with jax.default_matmul_precision(precision) if precision else nullcontext():
        mapped = jax.vmap(one, in_axes=(0, None, 0, None, None))
        compiled = jax.jit(mapped).lower(on(device, states), *arguments).compile()
    return Side(device, compiled, arguments)


def _one_round(
    work: Work,
    run: int,
    number: int,
    before: np.ndarray,
    expected: Round,
    single: dict[str, dict[int, Round]],
    terms: int,
) -> dict[str, float]:
    """What a round from the same state differs by, relative to the update, and the bound."""
    update = np.linalg.norm(expected.params[run] - before[run])
    counts = work.dataset.train.counts[expected.record.client_ids[run]]
    steps = work.epochs * math.ceil(counts.max() / work.batch_size)
    length = np.linalg.norm(before[run]) / update
    distance = lambda found: float(np.linalg.norm(found[number].params[run] - expected.params[run]) / update)
    exact, largest = single["highest"][number].record, np.max(np.abs(expected.record.losses[run]))
    return {
        "round": number + 1,
        "difference": distance(single["highest"]),
        "bound": SAFETY * UNIT * (math.sqrt(steps * terms) + math.sqrt(steps) * float(length)),
        "difference_at_default_precision": distance(single["default"]),
        "losses": float(np.max(np.abs(exact.losses[run] - expected.record.losses[run])) / largest),
        "weights": float(np.max(np.abs(exact.weights[run] - expected.record.weights[run]))),
    }


def _final(run: int, expected: list[Round], found: dict[str, list[Round]], num_tests: int) -> dict[str, float]:
    """Test accuracies after all rounds, and how far they may be apart."""
    accuracy = float(expected[-1].accuracy[run])
    allowed = max(3.0, 3 * math.sqrt(num_tests * accuracy * (1 - accuracy))) / num_tests
    return {
        "cpu": accuracy,
        **{precision: float(rounds[-1].accuracy[run]) for precision, rounds in found.items()},
        "allowed_difference": allowed,
        "test_examples": num_tests,
    }


def _over_rounds(
    run: int, start: np.ndarray, expected: list[Round], found: dict[str, list[Round]]
) -> list[dict[str, float]]:
    """How the sides drift apart: parameters by the way from the start, losses and weights by the largest difference."""
    lines = []
    for number in sorted({1, 2, 5, 10, 20, 50, 100, len(expected)}):
        if number > len(expected):
            break
        ours = expected[number - 1]
        way = np.linalg.norm(ours.params[run] - start[run])
        line: dict[str, float] = {"round": number}
        for precision, rounds in found.items():
            theirs = rounds[number - 1]
            line |= {
                f"{precision}_params": float(np.linalg.norm(theirs.params[run] - ours.params[run]) / way),
                f"{precision}_losses": float(np.max(np.abs(theirs.record.losses[run] - ours.record.losses[run]))),
                f"{precision}_weights": float(np.max(np.abs(theirs.record.weights[run] - ours.record.weights[run]))),
                f"{precision}_accuracy": float(theirs.accuracy[run] - ours.accuracy[run]),
            }
        lines.append(line)
    return lines
