"""A version of a known component beside the built-in one, on seeded reports."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators import fedavg
from fedsim.core.chain import run_rule
from fedsim.core.contracts import Aggregator, Attack, AttackContext, PreAggregator, RootEvaluator
from fedsim.core.trees import squared_norms
from fedsim.core.types import Array, CohortReport, PyTree, Variables
from fedsim.testing.clauses import one_line
from fedsim.testing.reports import invalidate, make_report

SETTINGS: dict[str, Any] = {"num_byzantine": 2, "tau": 1.0, "threshold": 2.0, "num_iters": 2}
"""In place of those of published cases, which are too small or never reached: they matter on `seeded_reports`."""
NUM_CLIENTS, NUM_PARAMETERS, NUM_SEEDS, NUM_ROUNDS = 12, 5, 12, 3
OUTLIERS, INVALID = np.array([1, 6]), 3
MALICIOUS = jnp.asarray(np.isin(np.arange(NUM_CLIENTS), OUTLIERS))
VARIABLES = Variables(jnp.zeros(NUM_PARAMETERS))
RELATIVE, ABSOLUTE = 1e-4, 1e-4  # rounding errors of updates with norms of about 10

Component = Aggregator | PreAggregator | Attack


def seeded_reports(seed: int) -> list[CohortReport]:
    """Three rounds of 12 clients with 5 parameters, two of them outliers; in the last round, client 3 is invalid.

    Clients have equal numbers of examples.
    """
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.normal(-0.5, 0.8, (NUM_ROUNDS, NUM_CLIENTS, 1)))
    rows = 1 + spread * rng.normal(size=(NUM_ROUNDS, NUM_CLIENTS, NUM_PARAMETERS))
    rows[:, OUTLIERS] = -3 + 2 * rows[:, OUTLIERS]
    *first, last = map(make_report, rows)
    return [*first, invalidate(last, [INVALID], jnp.inf)]


def compare_with_built_in(make: Callable[[], Component], built_in: Component, where: str) -> None:
    """Raises `AssertionError` with a sentence, which starts with `where`, at the first round that differs."""
    try:
        component = make()
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {one_line(error)}") from error
    step, built_in_step = (jax.jit(partial(_step, part)) for part in (component, built_in))
    for seed in range(NUM_SEEDS):
        expected_state = state = None
        for number, report in enumerate(seeded_reports(seed), 1):
            key = jax.random.fold_in(jax.random.key(seed), number)
            place = f"{where}: seed {seed}, round {number}"
            place += "" if bool(report.valid.all()) else f" (client {INVALID} is invalid)"
            expected_state = _init(built_in, report) if number == 1 else expected_state
            expected, expected_state = built_in_step(expected_state, report, key)
            try:
                state = _init(component, report) if number == 1 else state
                actual, state = step(state, report, key)
            except Exception as error:  # of the compared version
                raise AssertionError(f"{place}: {type(error).__name__}: {one_line(error)}") from error
            require_close(actual, expected, place, RELATIVE, ABSOLUTE)


def require_close(actual: Any, expected: Any, where: str, relative: float, absolute: float) -> None:
    """Requires equal shapes and values."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        raise AssertionError(f"{where}: expected the shape {expected.shape}, got {actual.shape}")
    if not np.allclose(actual, expected, relative, absolute):
        got = f"expected {_show(expected)}, got {_show(actual)}"
        raise AssertionError(f"{where}: {got}, with a tolerance of {absolute:g}")


def _show(values: np.ndarray) -> str:
    return " ".join(np.array2string(values, precision=7, separator=", ", threshold=20).split())


def _init(component: Component, report: CohortReport) -> PyTree:
    if isinstance(component, Aggregator):
        return component.init(VARIABLES, report.num_examples, report.losses)
    return component.init(VARIABLES, report.num_examples) if isinstance(component, Attack) else ()


def _step(component: Component, state: PyTree, report: CohortReport, key: Array) -> tuple[Array, PyTree]:
    """The update [d], or the rows [K, d] after a pre-aggregator, or those that the outliers send; and the state."""
    if isinstance(component, Aggregator):
        root = RootEvaluator(squared_norms, lambda: jax.tree.map(jnp.ones_like, VARIABLES))
        result, state = run_rule(component, state, report, key, root)
        return result.update.params, state
    if isinstance(component, Attack):
        context = AttackContext(report, MALICIOUS, VARIABLES, lambda report: fedavg().aggregate((), report, key)[0])
        forged, state = component.forge_updates(state, context, key)  # type: ignore[misc]
        return forged.params[OUTLIERS], state
    return component(report, key).updates.params, state
