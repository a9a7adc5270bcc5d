"""Claims about the limits of ARFL."""

from fedsim.paper import limits
from tests.paper.run_folders import read, rule, run, verdicts


def test_limits(tmp_path):
    attack = lambda kind: {"attack.kind": kind}
    runs = [
        run(rule("arfl", "shuffling", 0.5), [10, 70], weight=0.0),
        run(rule("arfl", "collusion", 0.5), [10, 40], weight=0.9),
        run(rule("arfl", "shuffling", 0.3), [10, 71], weight=0.01),
        run(rule("arfl", "shuffling", 0.3) | attack("fake_loss"), [10, 30], weight=0.8),
        run(rule("arfl", "none", 0.3) | attack("sign_flip"), [10, 45], weight=0.3),
        run(rule("fedavg", "none", 0.3) | attack("sign_flip"), [10, 44], weight=0.3),
    ]
    results = read(tmp_path, "limits", runs)
    claims = limits.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds", "holds", "fails"]
    assert claims[1].measured == "80.0 % of the weight, 30 % of the clients; 1.0 % with true losses"
    assert claims[4].measured == "ARFL 45.00 %, FedAvg 44.00 %"
    (table,) = limits.tables(results)
    rows = {row.name: row.entries for row in table.rows}
    assert rows["30 %: shuffling and false losses"] == ("", "", "30.00", "80.0")
    assert rows["30 %: flipped updates"] == ("44.00", "30.0", "45.00", "30.0")
