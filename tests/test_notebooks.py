"""The notebooks, executed, and what they claim."""

import runpy
from pathlib import Path

import jax
import matplotlib as mpl
import numpy as np
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.fixture(autouse=True)
def _notebook_settings():
    mpl.use("agg")
    with jax.numpy_rank_promotion("allow"):
        yield


def test_lambda_sweep_shows_three_regimes():
    result = runpy.run_path(str(NOTEBOOKS / "lambda_sweep.py"))
    num_weights, on_corrupted = np.asarray(result["num_weights"]), np.asarray(result["on_corrupted"])
    assert num_weights[0] == 1
    assert ((num_weights > 1) & (on_corrupted == 0)).any()
    assert num_weights[-1] == 10
    assert on_corrupted[-1] > 0.1
