"""Runs the code of the page on simulations from Python objects, and checks its claims."""

import dataclasses

import jax
import numpy as np

from tests.docs.pages import blocks

PAGE = "docs/how-to/simulation.md"


def test_code_and_claims():
    namespace: dict = {}
    for block in blocks(PAGE, "python"):
        exec(compile(block.text, PAGE, "exec"), namespace)
    assert float(namespace["accuracy"]) > 0.9
    weight = np.asarray(namespace["on_corrupted"])[:, -5:].mean(axis=1)
    assert weight[0] == 0  # small lambda: no weight on corrupted clients
    assert weight[2] == 0
    assert weight[-1] > 0.2  # large lambda: FedAvg
    rule, simulation = namespace["lowest_losses"], namespace["simulation"]

    fedsim = namespace["fedsim"]
    method = lambda hparams, round: fedsim.Method(rule(), fedsim.client_sgd(hparams))
    simulation = dataclasses.replace(simulation, method=method)
    clients, key = namespace["clients"], namespace["key"]
    hparams = fedsim.HParams()
    state = simulation.init(key, clients, hparams)
    _, record = jax.jit(simulation.round)(state, clients, hparams)
    assert int((record.weights > 0).sum()) == 5


def test_snippets_are_short():
    """About 20 lines to build and train, about 10 for a rule."""
    is_code = lambda line: line.strip() and not line.startswith(("import", "from"))
    code = [block.text for block in blocks(PAGE, "python")]
    num_build, _, num_rule = (len([line for line in text.splitlines() if is_code(line)]) for text in code)
    assert num_build <= 21
    assert num_rule <= 11
