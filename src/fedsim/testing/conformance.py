"""Versions of known rules, pre-aggregators and attacks: published cases first, then the built-in one."""

import inspect
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim import aggregators, attacks
from fedsim.aggregators import apply, fedavg
from fedsim.core.chain import chain
from fedsim.core.contracts import Aggregator, Attack, AttackContext, PreAggregator
from fedsim.core.factories import Built
from fedsim.core.types import Variables
from fedsim.testing.clauses import one_line
from fedsim.testing.comparison import SETTINGS, compare_with_built_in, require_close
from fedsim.testing.reports import make_report

FILE = Path(__file__).with_name("cases.json")
KINDS = "rule", "pre_aggregator", "attack"
ROUNDING = 1e-6  # of float32, relative to the expected value
KEY = jax.random.key(0)


@cache
def load_cases() -> list[dict[str, Any]]:
    """All cases; docs/extending/conformance.md describes their fields."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def check_conformance(make: Callable[..., Any] | Aggregator | Attack, name: str, **settings: Any) -> list[int]:
    """Raises `AssertionError` with a sentence if a version of a known component differs from the published cases.

    `make` is a factory of rules, pre-aggregators or attacks, which gets the settings of each case of the built-in
    `name`, for example `num_byzantine`. With `settings`, only cases that have these are compared. A rule or attack that
    is already built is compared with the cases of exactly its `settings`, {} by default.

    Some cases are variants of the paper's definition. They are left out if the factory does not have their settings, or
    if it or the rule refuses them by a `ValueError`.

    Then the version is compared with the built-in one on `fedsim.testing.comparison.seeded_reports`, over rounds with
    state. Both get the settings of the cases that were compared, with f = 2 and small radii (`comparison.SETTINGS`),
    and then `settings`, which need not be those of a case.

    Returns the ids of the cases that were compared. Raises `ValueError` if there is nothing to compare.

    >>> import fedsim
    >>> from fedsim.testing import check_conformance
    >>> check_conformance(fedsim.aggregators.clipping, "clipping")
    [40, 83]
    >>> check_conformance(fedsim.aggregators.fedavg, "median")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: median: case 5 (flwrlabs/flower...): expected [0.5, ...], got [0.5666667, ...], with a tolerance...
    """
    is_built = isinstance(make, Aggregator | Attack)
    version: Any = (lambda **_: make) if is_built else make
    if is_built and not settings and (built := Built.of(make)) is not None:
        settings = built.fixed | built.traced
    comparable = [case for case in load_cases() if case["kind"] in KINDS]
    known = [case for case in comparable if case["name"] == name]
    if not known:
        names = ", ".join(dict.fromkeys(case["name"] for case in comparable))
        raise ValueError(f"name: must be one of {names}, got {name!r}")
    matches = lambda params: settings == params if is_built else settings.items() <= params.items()
    compared = [case for case in known if matches(case["params"]) and _compare(version, case)]
    built_in = getattr(attacks if known[0]["kind"] == "attack" else aggregators, name)
    shared = [settings] if is_built else _shared_settings(version, compared, settings)
    shared = [own for own in shared if not _refusal(built_in, own) and not _refusal(version, own)]
    if not compared and not shared:
        others = "; ".join(dict.fromkeys(describe(case["params"]) for case in known))
        raise ValueError(f"settings: must be those of cases of {name} ({others}), got {describe(settings)}")
    for own in shared:
        where = f"{name}: beside fedsim's with {describe(own)}"
        compare_with_built_in(partial(version, **own), built_in(**own), where)
    return [case["id"] for case in compared]


def _shared_settings(
    make: Callable[..., Any], compared: list[dict[str, Any]], settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """What the version and the built-in one both get: settings of cases, or of `SETTINGS` those that `make` has."""
    plain = {key: value for key, value in SETTINGS.items() if not _refusal(make, {key: value}, is_complete=False)}
    params = [case["params"] for case in compared]
    own = [{key: SETTINGS.get(key, value) for key, value in each.items()} | settings for each in params or [plain]]
    return [each for number, each in enumerate(own) if each not in own[:number]]


def _refusal(make: Callable[..., Any], settings: dict[str, Any], is_complete: bool = True) -> str:
    """Why the factory does not take the settings; empty if it does."""
    try:
        signature = inspect.signature(make)
        (signature.bind if is_complete else signature.bind_partial)(**settings)
    except TypeError as error:
        return f"the factory {error}"
    return ""


def describe(settings: dict[str, Any]) -> str:
    """The settings in words."""
    return ", ".join(f"{name} = {json.dumps(value, default=str)}" for name, value in settings.items()) or "no settings"


def _compare(make: Callable[..., Any], case: dict[str, Any]) -> bool:
    """Whether the case applies. Raises `AssertionError` if it differs."""
    where = f"{case['name']}: case {case['id']} ({case['source']}; {describe(case['params'])})"
    expected = np.asarray(case["expected"], float)
    try:
        if refusal := _refusal(make, case["params"]):
            raise ValueError(refusal)
        actual = compute(make(**case["params"]), case)
    except Exception as error:
        if "variant" in case and isinstance(error, ValueError):
            return False
        raise AssertionError(f"{where}: {type(error).__name__}: {one_line(error)}") from error
    require_close(actual, expected, where, ROUNDING, case["tolerance"])
    return True


def compute(component: Aggregator | PreAggregator | Attack, case: dict[str, Any]) -> np.ndarray:
    """What corresponds to the case's `expected`: an update [d], or the rows [K, d] after a pre-aggregator."""
    rows, weights = input_rows(case), case["weights"]
    if isinstance(component, Aggregator):
        return np.asarray(apply(component, rows, num_examples=weights, root_update=case.get("root_update")).update)
    if isinstance(component, Attack):
        return _forge(component, case)
    if not callable(component):
        raise ValueError(f"must be an Aggregator, a PreAggregator or an Attack, got {component!r}")
    if np.ndim(case["expected"]) == 1:
        return np.asarray(apply(fedavg(), rows, num_examples=weights, pre_aggregators=[component]).update)
    return np.asarray(jax.jit(component)(make_report(rows), KEY).updates.params)


def input_rows(case: dict[str, Any]) -> np.ndarray:
    """The inputs [K, d] of a case; those with `powers` have the rows [i^power / divisor, ...], i = 1 ... `count`."""
    inputs = case["inputs"]
    if isinstance(inputs, list):
        return np.asarray(inputs, float)
    numbers = np.arange(1, inputs["count"] + 1)[:, None]
    return numbers ** np.asarray(inputs["powers"]) / np.asarray(inputs["divisors"])


def _forge(attack: Attack, case: dict[str, Any]) -> np.ndarray:
    """The update [d] of one malicious client beside the honest inputs, against the stages in the case's `server`."""
    honest, stages = input_rows(case), case.get("server", [["fedavg", {}]])
    server = chain(*(getattr(aggregators, name)(**settings) for name, settings in stages))
    report = make_report(np.concatenate([honest, honest[:1]]))
    variables = Variables(jnp.zeros(honest.shape[1]))
    server_state = server.init(variables, report.num_examples, report.losses)
    aggregate = lambda report: server.aggregate(server_state, report, KEY)[0]
    context = AttackContext(report, jnp.arange(len(honest) + 1) == len(honest), variables, aggregate)
    forge = jax.jit(lambda state: attack.forge_updates(state, context, KEY)[0])  # type: ignore[misc]
    return np.asarray(forge(attack.init(variables, report.num_examples)).params[-1])
