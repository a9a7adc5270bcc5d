"""Runs the code of the page on simulations from Python objects, and checks its claims."""

import numpy as np
import pytest

from tests.docs.pages import blocks

PAGE = "docs/how-to/simulation.md"


@pytest.mark.docs
def test_code_and_claims():
    namespace: dict = {}
    for block in blocks(PAGE, "python"):
        exec(compile(block.text, PAGE, "exec"), namespace)
    assert float(namespace["accuracy"]) > 0.9
    weight = np.asarray(namespace["on_corrupted"])[:, -5:].mean(axis=1)
    assert weight[0] == 0  # small lambda: no weight on corrupted clients
    assert weight[2] == 0
    assert weight[-1] > 0.2  # large lambda: FedAvg


def test_the_snippet_is_short():
    code, *_ = blocks(PAGE, "python")
    lines = [line for line in code.text.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(lines) <= 21  # to build and to train
