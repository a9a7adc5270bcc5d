"""Published numbers, and the claims of Table 2 on a made run folder."""

import pytest

from fedsim.paper import published, table2
from tests.paper.made import read, rule, run


def test_published_cells():
    cells = published.cells()
    assert len(cells) == 105
    assert {(c.dataset, c.aggregator) for c in cells} == {
        (d, a) for d in ("cifar10", "femnist", "shakespeare") for a in ("fedavg", "rfa", "multi_krum", "cfl", "arfl")
    }
    cell = published.cell("femnist", "multi_krum", "none", 0.0)
    assert (cell.mean, cell.std) == (79.38, 0.41)
    assert published.cell("femnist", "multi_krum", "collusion", 0.3) is None
    # Sec. 5.2: at 50 % flipping ARFL is 18.5, 14.2 and 9.89 points above the best of the others.
    for dataset, margin in (("cifar10", 18.5), ("femnist", 14.2), ("shakespeare", 9.89)):
        means = {
            c.aggregator: c.mean for c in cells if (c.dataset, c.corruption, c.fraction) == (dataset, "flipping", 0.5)
        }
        assert means.pop("arfl") - max(means.values()) == pytest.approx(margin)


def test_table2(tmp_path):
    cifar = {"data.name": "cifar10"}
    shuffled = rule("arfl", "shuffling", 0.5, **cifar)
    runs = [run(shuffled | {"seed": seed}, [10, final]) for seed, final in ((0, 68.0), (1, 70.0))]
    runs += [run(rule("fedavg", "shuffling", 0.5, **cifar), [10, 69.6]), run(rule("arfl", **cifar), [10, 70.0])]
    runs += [run(rule("fedavg", **cifar), [10, 73.59])]
    results = read(tmp_path, "table2-cifar10", runs)
    distance, *others = table2.claims(results)
    assert distance.measured == "6.67 on average, +22.60 at most (FedAvg, Shuffling 50 %)"  # of 0, 22.6, 3.42, 0.66
    of_scenario = {claim.text.partition(":")[0]: claim for claim in others}
    assert of_scenario["Shuffling 50 %"].measured.endswith("(2 rules)")
    assert of_scenario["Shuffling 50 %"].holds  # 0.6 below FedAvg, and the published deviation is 0.73
    assert not of_scenario["Clean"].holds  # 3.59 points below, and 1 is allowed
    assert of_scenario["Flipping 30 %"].verdict == "not run"
    assert of_scenario["Shuffling 50 %"].published == "69.66 %: +17.34 to Multi-Krum"
    (grid,) = table2.tables(results)
    assert [row[1:] for row in grid.rows] == [
        ("FedAvg", "73.59 ± 0.44", "73.59", "+0.00"),
        ("ARFL", "73.42 ± 0.40", "70.00", "-3.42"),
        ("FedAvg", "47.00 ± 7.51", "69.60", "+22.60"),
        ("ARFL", "69.66 ± 0.73", "69.00 ± 1.41", "-0.66"),
    ]
    assert [row[0] for row in grid.rows] == ["Clean", "", "Shuffling 50 %", ""]
    assert table2.in_short(results) == "4 of 35 cells, 6.67 points from published on average"
