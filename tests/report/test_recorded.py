"""The rows that reports read, from a chunk's records (`fedsim.runs.tables`)."""

from dataclasses import replace

import numpy as np
import pytest

from fedsim.config.schema import Config
from fedsim.config.sections import AttackConfig, ServerConfig
from fedsim.core.types import Metrics, RoundRecord
from fedsim.runs.tables import RunClients, client_rows, round_rows

METRICS = Metrics(np.asarray([5.0]), np.asarray([7]), np.asarray([10]))


def clients_of(corrupted, malicious=None):
    corrupted = np.asarray(corrupted)
    malicious = corrupted if malicious is None else np.asarray(malicious)
    return RunClients(np.asarray([[5, 6, 7]]), corrupted, malicious)


def test_corrupted_weight_is_over_all_rounds_since_the_last_row():
    records = RoundRecord(
        client_ids=np.asarray([[[0, 1], [1, 2], [0, 2]]]),
        losses=np.zeros((1, 3, 2)),
        weights=np.asarray([[[0.4, 0.6], [1.0, 0.0], [0.0, 0.0]]]),  # the last round is skipped
        valid=np.ones((1, 3, 2), bool),
        info={},
    )
    rows = round_rows([Config()], [0], 3, METRICS, records, clients_of([[False, True, True]]))
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
    alpha = np.asarray([[0.5, 0.3, 0.2]])
    clients = clients_of([[False, False, True]])
    rows = client_rows([4], 9, records, METRICS, alpha, clients, last_only=False)
    assert rows["client_id"].tolist() == [2, 0, 1]
    assert rows["run"].tolist() == [4, 4, 4]
    assert rows["round"].tolist() == [9, 9, 9]
    np.testing.assert_allclose(rows["weight"], [np.nan, 1.0, np.nan])
    np.testing.assert_allclose(rows["alpha"], [0.2, 0.5, 0.3], rtol=1e-6)
    assert rows["num_examples"].tolist() == [7, 5, 6]


def test_malicious_clients_are_counted_apart_from_corrupted_ones():
    records = RoundRecord(
        client_ids=np.asarray([[[0, 1, 2]]]),
        losses=np.zeros((1, 1, 3)),
        weights=np.asarray([[[0.5, 0.3, 0.2]]]),
        valid=np.ones((1, 1, 3), bool),
        info={},
    )
    clients = clients_of([[False, True, False]], malicious=[[False, False, True]])
    server = ServerConfig(aggregator="trimmed_mean")
    config = Config(
        attack=AttackConfig("ipm", fraction=0.3), server=server, settings=(("trimmed_mean.num_byzantine", 1),)
    )
    rows = round_rows([config], [0], 1, METRICS, records, clients)
    assert rows["corrupted_weight"] == pytest.approx([0.3])
    assert rows["malicious_weight"] == pytest.approx([0.2])
    assert rows["byzantine_excess"] == pytest.approx([1])
    only_malicious = replace(config, server=replace(server, num_byzantine="malicious"))
    assert round_rows([only_malicious], [0], 1, METRICS, records, clients)["byzantine_excess"] == pytest.approx([0])
    no_attack = replace(config, attack=AttackConfig())
    assert np.isnan(round_rows([no_attack], [0], 1, METRICS, records, clients)["malicious_weight"]).all()
    rows = client_rows([0], 1, records, METRICS, None, clients, last_only=False)
    assert rows["malicious"].tolist() == [False, False, True]
    assert rows["corrupted"].tolist() == [False, True, False]
