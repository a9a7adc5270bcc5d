"""The rows that reports read, from a chunk's records (`fedsim.runs.tables`)."""

import numpy as np
import pytest

from fedsim.config.schema import Config
from fedsim.core.types import Metrics, RoundRecord
from fedsim.runs.tables import client_rows, round_rows

METRICS = Metrics(np.asarray([5.0]), np.asarray([7]), np.asarray([10]))


def test_corrupted_weight_is_over_all_rounds_since_the_last_row():
    records = RoundRecord(
        client_ids=np.asarray([[[0, 1], [1, 2], [0, 2]]]),
        losses=np.zeros((1, 3, 2)),
        weights=np.asarray([[[0.4, 0.6], [1.0, 0.0], [0.0, 0.0]]]),  # the last round is skipped
        valid=np.ones((1, 3, 2), bool),
        info={},
    )
    rows = round_rows([Config()], [0], 3, METRICS, records, np.asarray([[False, True, True]]))
    assert rows["corrupted_weight"] == pytest.approx([(0.6 + 1.0) / 2])
    assert rows["test_accuracy"] == pytest.approx([0.7])
    assert rows["test_loss"] == pytest.approx([0.5])


def test_clients_without_a_valid_report_have_no_weight():
    records = RoundRecord(
        client_ids=np.asarray([[[2, 0]]]),
        losses=np.asarray([[[np.nan, 1.0]]]),
        weights=np.asarray([[[0.0, 1.0]]]),
        valid=np.asarray([[[False, True]]]),
        info={},
    )
    alpha, num_examples = np.asarray([[0.5, 0.3, 0.2]]), np.asarray([[5, 6, 7]])
    corrupted = np.asarray([[False, False, True]])
    rows = client_rows([4], 9, records, METRICS, alpha, num_examples, corrupted, last_only=False)
    assert rows["client_id"].tolist() == [2, 0, 1]
    assert rows["run"].tolist() == [4, 4, 4]
    assert rows["round"].tolist() == [9, 9, 9]
    np.testing.assert_allclose(rows["weight"], [np.nan, 1.0, np.nan])
    np.testing.assert_allclose(rows["alpha"], [0.2, 0.5, 0.3], rtol=1e-6)
    assert rows["num_examples"].tolist() == [7, 5, 6]
