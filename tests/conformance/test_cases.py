"""All published cases: fedsim computes what is expected, or what a documented difference says."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import Variables, aggregators, algorithms
from fedsim.aggregators.coordinatewise import mean_around_median
from fedsim.algorithms.fednova import effective_steps
from fedsim.config.registry import find
from fedsim.core.contracts import LocalTraining
from fedsim.runs import privacy
from fedsim.testing.conformance import ROUNDING, compute, load_cases
from fedsim.testing.reports import make_report
from tests.docs.pages import blocks, text_of

CASES = {case["id"]: case for case in load_cases()}
IN_CONFIGURATIONS = {"rule": "server.aggregator", "pre_aggregator": "server.pre_aggregators", "attack": "attack.kind"}
REFUSED = {76: r"num_byzantine: .* 4 .*2 f < "}
INSTEAD = {65: np.arange(1, 10) * 2.5}  # the mean of the middle two
CLIENT_C_CHANGE = [-0.5, -0.5, -1, -1]
YOGI, OPTAX_START = 93, 1e-6
EPSILONS = {116: 1.0001, 117: 1.1}  # upper bounds, at most this many times the expected values


def check(case, actual, expected=None):
    expected = case["expected"] if expected is None else expected
    np.testing.assert_allclose(actual, expected, max(ROUNDING, case.get("relative_tolerance", 0)), case["tolerance"])


def check_component(case):
    """A rule, pre-aggregator or attack."""
    name, settings = case["name"], {key: value for key, value in case["params"].items() if key != "middle"}
    make = find(IN_CONFIGURATIONS[case["kind"]], name).make
    if case["id"] in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[case["id"]]):
            compute(make(**settings), case)
    else:
        check(case, compute(make(**settings), case), INSTEAD.get(case["id"]))
    if "expected_weights" in case:
        weights = aggregators.apply(make(), case["inputs"], root_update=case["root_update"]).weights
        check(case, weights, case["expected_weights"])


def check_helper(case):
    """The second step of Bulyan and of the mean around the median, with another point than the median."""
    assert case["name"] == "mean_of_nearest"
    report = make_report(np.asarray(case["inputs"], float))
    center, count = np.asarray(case["params"]["reference"], np.float32), np.asarray(case["params"]["count"])
    check(case, jax.jit(mean_around_median)(report, report.valid, count, center)[0].params)


def check_server_optimizer(case):
    """A list of parameters over rounds, or those after one round of two clients."""
    settings, expected = dict(case["params"]), None
    if case["id"] == YOGI:
        expected = yogi(**(settings | {"initial": OPTAX_START}))
        check(case, yogi(**settings))
        del settings["initial"]
    optimizer = find("server.optimizer", case["name"]).make(settings.pop("learning_rate"), **settings)
    aggregates = np.asarray(case["inputs"], np.float32)
    if case["weights"]:
        aggregates = np.average(aggregates, axis=0, weights=case["weights"])[None]
    params = [jnp.full(aggregates.shape[1], case["start"])]
    state = optimizer.init(params[0])
    for aggregate in aggregates:
        step, state = optimizer.update(-jnp.asarray(aggregate), state, params[-1])
        params.append(params[-1] + step)
    check(case, params[-1] if case["weights"] else np.ravel(params), expected)


def yogi(learning_rate, b1, b2, eps, initial):
    """The parameter from 1 over four rounds with the gradient 2."""
    params, m, v = [1.0], initial, initial
    for t in range(1, 5):
        m, v = b1 * m + (1 - b1) * 2, v - (1 - b2) * 4 * np.sign(v - 4)
        params.append(params[-1] - learning_rate * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps))
    return params


def check_accountant(case):
    settings = case["params"]
    rate, multiplier, rounds = settings["sampling_rate"], settings["noise_multiplier"], settings["rounds"]
    if case["name"] == "rdp":
        return check(case, rounds * privacy.poisson_divergence(rate, multiplier, tuple(settings["orders"])))
    epsilon = privacy.poisson_epsilons([rate] * rounds, [multiplier] * rounds, settings["delta"], slice(-1, None))
    if case["id"] not in EPSILONS:
        return check(case, epsilon)
    assert 1 < epsilon[0] / case["expected"][0] < EPSILONS[case["id"]]


def train(case, gradients, start, client_state=(), server_state=()):
    """One client's training with the case's algorithm: a step with each of the `gradients`, functions of the params."""
    settings = case["params"]

    def run(model, correct):
        params = model.params
        for gradient in gradients:
            g = gradient(params) if correct is None else correct(gradient(params), params)
            params = params - settings.get("learning_rate", 1.0) * g
        return model._replace(params=params)

    make = {"fedavg": fedsim.plain_sgd}.get(case["name"]) or getattr(algorithms, case["name"])
    algorithm = make(mu=settings["mu"]) if "mu" in settings else make()
    local = LocalTraining(Variables(start), len(gradients), settings.get("learning_rate", 1.0), run)
    return algorithm, algorithm.train(local, client_state, server_state)


def check_batches(case):
    """Clients with given batches: their updates, or the server's parameters with `weights`."""
    gradient_of = {"mean(x) * w": lambda w, x: np.mean(x), "w / sum(x)": lambda w, x: w / np.sum(x)}
    gradient = gradient_of[case.get("loss") or case["gradient"]]
    start = np.asarray(case["start"], float)
    steps = [[lambda w, x=x: gradient(w, x) for x in batches] for batches in case["inputs"]]
    updates = [train(case, gradients, start)[1].variables.params - start for gradients in steps]
    weighted = case["weights"] and start + np.average(updates, axis=0, weights=case["weights"])
    check(case, np.ravel(weighted if case["weights"] else updates))


def check_regression(case):
    """Steps with all examples of one client; the loss is the mean over examples of sum |x w - t|."""
    x, w, t = (np.asarray(case["inputs"][key]) for key in "xwt")
    gradients = [lambda w: x.T @ np.sign(x @ w - t) / len(x)] * case["params"]["epochs"]
    states = [np.full_like(w, case["params"][key]) for key in ("client_c", "server_c") if key in case["params"]]
    _, result = train(case, gradients, w, *states)
    update = result.variables.params - w
    check(case, np.ravel(update))
    if states:
        check(case, np.ravel(result.message), CLIENT_C_CHANGE)
        other_sign = states[0] - states[1] + update / case["params"]["learning_rate"]
        check(case, np.ravel(other_sign), case["expected_client_c_change"])


def check_fednova(case):
    steps, weights = case["inputs"]["steps"], np.asarray(case["weights"] or [1.0])
    if case.get("output") == "a_k":
        return check(case, [effective_steps(np.asarray(n), case["params"]["momentum"]) for n in steps])
    unit_updates = [-np.eye(len(steps))[k] / n for k, n in enumerate(steps)]
    gradients = case["inputs"].get("gradients", unit_updates)
    start = np.zeros(np.shape(gradients[0]) or 1)
    trained = [train(case, [lambda w, g=g: g] * n, start) for g, n in zip(gradients, steps, strict=True)]
    shares, algorithm = weights / weights.sum(), trained[0][0]
    updates = np.stack([result.variables.params for _, result in trained])
    scale = algorithm.scale(np.stack([result.message for _, result in trained]), shares)
    return check(case, scale * (shares @ updates))


def check_algorithm(case):
    inputs = case["inputs"]
    (check_fednova if "steps" in inputs else check_regression if "w" in inputs else check_batches)(case)


CHECKS = dict.fromkeys(IN_CONFIGURATIONS, check_component) | {
    "helper": check_helper,
    "server_optimizer": check_server_optimizer,
    "accountant": check_accountant,
    "algorithm": check_algorithm,
}


@pytest.mark.parametrize("number", CASES)
def test_case(number):
    CHECKS[CASES[number]["kind"]](CASES[number])


def test_the_pages_runner_computes_its_cases():
    """An independent program, in float64: also the variants of its rules."""
    namespace = {}
    for block in blocks("docs/extending/conformance.md", "python")[1:]:
        exec(block.text, namespace)
    results = namespace["results"]
    assert {CASES[number]["name"] for number in results} == set(namespace["functions"])
    assert {65, 69, 76, 31} <= set(results)
    assert all(results.values()), results
    assert f"# {len(results)} of {len(results)} cases agree" in text_of("docs/extending/conformance.md")


def test_the_page_says_where_fedsim_differs():
    numbers = re.findall(r"^\| ([\d, ]+) \|", text_of("docs/extending/conformance.md"), flags=re.M)
    scaffold = [number for number, case in CASES.items() if "expected_client_c_change" in case]
    variants = {*REFUSED, *INSTEAD, *scaffold, *EPSILONS}
    assert {int(number) for row in numbers for number in row.split(",")} == {*variants, YOGI}
    assert variants < {number for number, case in CASES.items() if "variant" in case}
