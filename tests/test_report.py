"""Statistics of a made run folder whose numbers are known, and its figures."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim import report
from fedsim.config import Config
from fedsim.keys import flatten
from fedsim.report import cells
from fedsim.report.figures import figures
from fedsim.report.names import row_names
from fedsim.report.summary import summary
from fedsim.rows import client_rows, round_rows
from fedsim.store import CLIENTS, ROUNDS, RunFolder
from fedsim.types import Metrics, RoundRecord

ROUND_NUMBERS = [0, 10, 20, 30, 40, 50]
ACCURACY = np.asarray([[0.1, 0.5, 0.71, 0.73, 0.7, 0.8], [0.2, 0.54, 0.5, 0.6, 0.5, 0.6]])


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """Two seeds of one cell; four clients of 10, 10, 20 and 20 examples, the last of each size corrupted."""
    made = RunFolder(tmp_path / "made")
    runs = [
        flatten(Config(seed=seed)) | {"corruption.kind": "shuffling", "corruption.fraction": 0.5} for seed in (3, 4)
    ]
    empty = dict.fromkeys(("config", "plan", "groups", "versions", "device"))
    made.create(empty | {"status": "complete", "runs": runs})
    rounds = [
        (
            run,
            "arfl",
            "shuffling",
            0.5,
            1.0,
            3 + run,
            t,
            ACCURACY[run, i],
            1.0,
            None if t == 0 else 0.25,
            i / 10,
            0.5,
            run / 2,
            False,
        )
        for run in range(2)
        for i, t in enumerate(ROUND_NUMBERS)
    ]
    # In the second half corrupted clients get less than by their counts, but for client 3 of the second run.
    late = {0: [0.3, 0.1, 0.5, 0.1], 1: [0.3, 0.0, 0.2, 0.5]}
    clients = [
        (run, t, client, (10, 10, 20, 20)[client], 1.0, None, w, client in (1, 3), None)
        for run in range(2)
        for t in (10, 50)
        for client, w in enumerate(late[run] if t == 50 else [0.0, 0.5, 0.0, 0.5])
    ]
    for kind, rows, schema in [("rounds", rounds, ROUNDS), ("clients", clients, CLIENTS)]:
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
        pq.write_table(pa.table(columns, schema=schema), made.path / f"{kind}.parquet")
    return made


def test_summary(folder):
    (row,) = summary(cells.read(folder))
    assert row["num_runs"] == 2
    assert row["final_accuracy_mean"] == pytest.approx(0.7)
    assert row["final_accuracy_std"] == pytest.approx(np.sqrt(0.02))  # ddof 1
    assert row["last5_accuracy_mean"] == pytest.approx((0.688 + 0.548) / 2)
    assert row["last5_accuracy_std"] == pytest.approx(0.14 / np.sqrt(2))
    assert row["rounds_to_90_mean"] == (30 + 10) / 2  # 0.72 is first reached in round 30, 0.54 in round 10
    # Run 0: all pairs the right way. Run 1, relative to counts: benign 1.8 and 0.6, corrupted 0 and 1.5: 3 of 4 pairs.
    assert row["weight_auc_mean"] == pytest.approx((1 + 0.75) / 2)
    assert [row[f"accuracy_p{p}_mean"] for p in (10, 50, 90)] == pytest.approx([0.5, 0.5, 0.25])  # of the last round


def test_files(folder):
    report.make(folder)
    header, line = (folder.path / "summary.csv").read_text().splitlines()
    values = dict(zip(header.split(","), line.split(","), strict=True))
    assert values["aggregator"] == "arfl"
    assert float(values["final_accuracy_mean"]) == pytest.approx(0.7)
    assert values["settings"] == ""


def test_curves_are_means_and_bands_extremes(folder):
    drawn = figures(cells.read(folder))
    assert set(drawn) == {"accuracy", "loss", "corrupted_weight"}  # no alpha was kept
    (panel,) = drawn["accuracy"].axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), 100 * ACCURACY.mean(0))
    band = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((10, 80))
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("Round", "Test accuracy (%)")
    assert panel.get_title() == "Shuffling 50 %"


def test_lambda_tells_rows_apart_only_where_it_must(folder):
    (cell,) = cells.read(folder).cells
    import dataclasses

    clean = dataclasses.replace(cell, corruption="none", fraction=0.0, lam=1e4)
    assert row_names([cell, clean]) == ["ARFL", "ARFL"]
    other = dataclasses.replace(cell, lam=10.0)
    assert row_names([cell, other]) == ["ARFL, λ = 1 M", "ARFL, λ = 10 M"]


def test_corrupted_weight_is_over_all_rounds_since_the_last_row():
    records = RoundRecord(
        client_ids=np.asarray([[[0, 1], [1, 2], [0, 2]]]),
        losses=np.zeros((1, 3, 2)),
        weights=np.asarray([[[0.4, 0.6], [1.0, 0.0], [0.0, 0.0]]]),  # the last round is void
        valid=np.ones((1, 3, 2), bool),
    )
    corrupted = np.asarray([[False, True, True]])
    metrics = Metrics(np.asarray([5.0]), np.asarray([7]), np.asarray([10]))
    rows = round_rows([Config()], [0], 3, metrics, records, corrupted)
    assert rows["corrupted_weight"] == pytest.approx([(0.6 + 1.0) / 2])
    assert rows["test_accuracy"] == pytest.approx([0.7])
    assert rows["test_loss"] == pytest.approx([0.5])


def test_clients_without_a_valid_report_have_no_weight():
    records = RoundRecord(
        client_ids=np.asarray([[[2, 0]]]),
        losses=np.asarray([[[np.nan, 1.0]]]),
        weights=np.asarray([[[0.0, 1.0]]]),
        valid=np.asarray([[[False, True]]]),
    )
    counts, corrupted = np.asarray([[5, 6, 7]]), np.asarray([[False, False, True]])
    metrics = Metrics(np.asarray([5.0]), np.asarray([7]), np.asarray([10]))
    rows = client_rows([4], 9, records, metrics, np.asarray([[0.5, 0.3, 0.2]]), counts, corrupted, last_only=False)
    assert rows["client_id"].tolist() == [2, 0, 1]
    assert rows["run"].tolist() == [4, 4, 4]
    assert rows["round"].tolist() == [9, 9, 9]
    np.testing.assert_allclose(rows["weight"], [np.nan, 1.0, np.nan])
    np.testing.assert_allclose(rows["alpha"], [0.2, 0.5, 0.3], rtol=1e-6)
    assert rows["count"].tolist() == [7, 5, 6]
