"""The worst attack for each rule, in tables and heat maps."""

import itertools
import math
import warnings

import numpy as np
import pytest

import fedsim
from fedsim import report
from fedsim.config.components import flatten
from fedsim.report import heatmap, style
from fedsim.report.heatmap import plot_planes, plot_threat_grids
from fedsim.report.metric import ACCURACY
from fedsim.report.worst import narrow, threat_grids, worst_tables
from tests.report.synthetic import make_folder, run

ATTACKS, RULES, SHARES, SEEDS = ("ipm", "alie", "sign_flip", "mimic"), ("arfl", "fedavg", "median"), (0.2, 0.4), (0, 1)


def accuracy(run, t):
    """Different for each run, and with a different worst attack for each rule and share."""
    if not run["corruption.fraction"]:
        return 0.9
    place = (
        ATTACKS.index(run["attack.kind"]),
        RULES.index(run["server.aggregator"]),
        SHARES.index(run["corruption.fraction"]),
    )
    return 0.2 + ((3 * place[0] + 5 * place[1] + 7 * place[2]) % 13) / 20 + run["seed"] / 100


def attacked(rule, share, attack, seed=0, **keys):
    """A run whose corrupted clients attack with clean data."""
    return run(rule, share, seed, "none", **{"attack.kind": attack} | keys)


def runs():
    clean = [run(rule, seed=seed) for rule in RULES for seed in SEEDS]
    return clean + [attacked(*place) for place in itertools.product(RULES, SHARES, ATTACKS, SEEDS)]


def with_alpha(rule, share, attack, seed, alpha):
    """A run on data that Dirichlet's distribution with this alpha divides."""
    return attacked(rule, share, attack, seed, **{"data.partition": "dirichlet", "dirichlet.alpha": alpha})


def numbers_of(figures):
    """By name, the numbers of each panel of heat maps."""
    panels = lambda figure: figure.axes[:-1]  # the last is the scale of colors
    return {name: [[t.get_text() for t in panel.texts] for panel in panels(f)] for name, f in figures.items()}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return report.load(make_folder(tmp_path_factory.mktemp("worst") / "a", runs(), accuracy))


def expected(rule, share):
    values = [
        np.mean([100 * accuracy(attacked(rule, share, attack, seed), 20) for seed in SEEDS]) for attack in ATTACKS
    ]
    return min(values)


def test_the_worst_attack_of_each_rule_and_share(results):
    (table,) = worst_tables(results)
    assert [column.label for column in table.columns] == ["Clean", "Worst 20 %", "Worst 40 %"]
    names = {"ARFL": "arfl", "FedAvg": "fedavg", "Median": "median"}
    for row in table.rows:
        means = [number.mean for number in row.entries]
        assert means == pytest.approx([90, *(expected(names[row.name], share) for share in SHARES)])
        assert row.entries[1].spread == pytest.approx(math.sqrt(0.5))
    best = [max(row.entries[i].mean for row in table.rows) for i in range(3)]
    bold = lambda i, number: i > 0 and number.mean == best[i]  # all are equal without corrupted clients
    assert all(number.bold == bold(i, number) for row in table.rows for i, number in enumerate(row.entries))
    assert table.notes == ("Worst of: IPM, ALIE, Sign flip, Mimic.",)


def test_a_wide_table_is_replaced_by_its_worst_case(results):
    tables = report.accuracy_tables(results)
    assert len(tables[0].columns) == 9
    assert narrow(tables, results, 9) == tables
    (shown,) = narrow(tables, results, 8)
    assert shown.rows == worst_tables(results)[0].rows
    assert shown.notes[-1] == "table.md and the figures have all 9 columns."
    (shown,) = narrow(tables, results, 8, is_written=False)
    assert shown.notes[-1] == "--format markdown shows all 9 columns."
    paired = report.paired_tables(results)
    assert narrow(paired, results, 8) == paired  # the worst-case table has no differences


def test_runs_that_all_diverged_are_the_worst(tmp_path):
    diverges = lambda run: run["attack.kind"] == "mimic" and run["server.aggregator"] == "median"
    lost = lambda run, t: math.nan if diverges(run) else accuracy(run, t)
    results = report.load(make_folder(tmp_path / "a", runs(), lost, diverged=diverges))
    (grid,) = threat_grids(results)
    assert [grid.worst("Median", share).attack for share in SHARES] == ["mimic", "mimic"]
    assert results.mean(grid.worst("FedAvg", 0.2), ACCURACY) == pytest.approx(expected("fedavg", 0.2))
    (table,) = worst_tables(results)
    assert table.notes[1] == "† diverged runs: Median, Worst 20 %: 2 of 2; Median, Worst 40 %: 2 of 2."


def test_two_attacks_have_no_worst_case_table(tmp_path):
    selected = [run for run in runs() if run["attack.kind"] in ("none", "ipm", "alie")]
    results = report.load(make_folder(tmp_path / "a", selected, accuracy))
    assert worst_tables(results) == []
    assert plot_threat_grids(results) == {}


def test_the_worst_of_as_many_other_attacks_is_marked_too(tmp_path):
    attacks = {"arfl": ("ipm", "alie", "min_max"), "fedavg": ("ipm", "alie", "min_sum")}
    selected = [attacked(rule, 0.2, attack, seed) for rule in attacks for attack in attacks[rule] for seed in SEEDS]
    (table,) = worst_tables(report.load(make_folder(tmp_path / "a", selected)))
    assert [(number.marks, number.bold) for row in table.rows for number in row.entries] == [("§", False)] * 2


def test_a_rule_without_attacked_runs_has_its_clean_accuracy_only(tmp_path):
    results = report.load(make_folder(tmp_path / "a", [*runs(), run("krum")], accuracy))
    (table,) = worst_tables(results)
    entries = next(row.entries for row in table.rows if row.name == "Krum")
    assert [number and number.mean for number in entries] == [90, None, None]


def test_the_worst_of_fewer_attacks_is_marked_and_never_the_best(tmp_path):
    one = [attacked("rfa", 0.2, "alie", seed) for seed in SEEDS]
    results = report.load(make_folder(tmp_path / "a", [*runs(), *one], lambda run, t: 0.99))
    (table,) = worst_tables(results)
    (number,) = next(tuple(filter(None, row.entries)) for row in table.rows if row.name == "RFA")
    assert (number.marks, number.bold) == ("§", False)
    assert "§ the worst without threats of other rows: RFA, Worst 20 %." in table.notes
    with style.context():
        drawn = numbers_of(plot_threat_grids(results))
    assert len(drawn["accuracy_worst_attack"][0]) == sum(len(list(filter(None, row.entries))) for row in table.rows) - 1
    assert (report.latex([table]).isascii(), r"\S{}" in report.latex([table])) == (True, True)
    listed = [run("rfa", **{"corruption.clients": clients}) for clients in ((0,), (0, 1), (0, 1, 2))]
    assert worst_tables(report.load(make_folder(tmp_path / "b", listed, accuracy))) == []  # one threat a column


def test_the_share_of_attacks_on_clean_data_is_that_of_the_malicious_clients(tmp_path):
    """Attacks count once, whatever their shares, and the worst is that of each share."""
    every = [
        attacked("fedavg", 0.0, attack, seed, **{"attack.fraction": share})
        for attack, share, seed in itertools.product(ATTACKS, SHARES, SEEDS)
    ]
    value = lambda run, t: 0.9 - run["attack.fraction"] - 0.1 * ATTACKS.index(run["attack.kind"])
    (table,) = worst_tables(report.load(make_folder(tmp_path / "a", every, value)))
    assert [column.label for column in table.columns] == ["Worst 20 %", "Worst 40 %"]
    assert [number.mean for number in table.rows[0].entries] == pytest.approx([40, 20])
    assert table.notes[0] == "Worst of: IPM, ALIE, Sign flip, Mimic."
    one_attack = [run | {"attack.kind": "ipm"} for run in every[:4]]
    one_attack += [run | {"attack.fraction": share} for run in one_attack for share in (0.1, 0.3)]
    assert worst_tables(report.load(make_folder(tmp_path / "b", one_attack, value))) == []


def test_attackers_among_the_corrupted_clients_and_of_their_own_are_compared(tmp_path):
    """20 % that attack in either way are one column, of which the worst counts."""
    shares = ((0.2, None), (0.0, 0.2))  # of corrupted clients, and of malicious ones of their own
    every = [
        attacked("fedavg", corrupted, attack, **{"attack.fraction": malicious})
        for attack, (corrupted, malicious) in itertools.product(ATTACKS, shares)
    ]
    value = lambda run, t: 0.1 if run["corruption.fraction"] else 0.9
    (table,) = worst_tables(report.load(make_folder(tmp_path / "a", every, value)))
    assert [number.mean for number in table.rows[0].entries] == [10]


def test_heat_maps_show_every_number(results):
    with style.context():
        drawn = plot_threat_grids(results)
    assert set(drawn) == {"accuracy_by_attack", "accuracy_worst_attack"}
    assert numbers_of(drawn)["accuracy_worst_attack"] == [
        [f"{v:.0f}" for rule in ("fedavg", "median", "arfl") for v in (90, *(expected(rule, s) for s in SHARES))]
    ]
    assert [len(panel) for panel in numbers_of(drawn)["accuracy_by_attack"]] == [3 * (1 + 4 + 1)] * 2


@pytest.mark.parametrize("name", [f"rules.py:rule_{i}" for i in range(20)])
def test_rows_have_different_looks(name):
    """Whatever the names of plug-ins are; built-in rules have the same in all figures."""
    rules = [name, "arfl", name, "other.py:rule", "fedavg", name, "arfl"]
    looks = style.looks(rules)
    assert len({tuple(look.values()) for look in looks}) == len(rules)
    of_rule = lambda rule: {look["color"] for look, of in zip(looks, rules, strict=True) if of == rule}
    assert sum(map(len, map(of_rule, dict.fromkeys(rules)))) == len({look["color"] for look in looks}) == 4
    assert [looks[1], looks[4]] == style.looks(["arfl", "fedavg"])


def test_long_names_of_attacks_have_room(tmp_path):
    """matplotlib warns if there is none, which is an error here."""
    tables = {"adversary": "standard-1", "corruption": {"kind": "none", "fraction": 0.2}}
    every = [flatten(config) for config in fedsim.load(tables).runs()]
    folder = make_folder(tmp_path / "a", every, lambda run, t: 0.5)
    with style.context(), warnings.catch_warnings(action="error"):
        drawn = plot_threat_grids(report.load(folder))
        assert set(drawn) == {"accuracy_by_attack", "accuracy_worst_attack"}
        for name, figure in drawn.items():
            folder.write_figure(name, figure)


def test_names_of_data_are_parts_of_file_names(tmp_path, monkeypatch):
    letters = [keys | {"data.name": "tfds", "tfds.name": "emnist/letters"} for keys in runs()]
    for name in ("_plot_by_attack", "_plot_worst"):
        monkeypatch.setattr(heatmap, name, lambda grid: None)
    drawn = plot_threat_grids(report.load(make_folder(tmp_path / "a", runs() + letters, accuracy)))
    places = itertools.product(("by", "worst"), ("digits", "emnist-letters"))
    assert set(drawn) == {f"accuracy_{which}_attack_{data}" for which, data in places}


def test_planes_of_a_swept_number(tmp_path):
    """Dirichlet's alpha over the share, with the worst of two attacks in each cell; settings of rules have no plane."""
    alphas, shares = (0.1, 1.0, 10.0), (0.1, 0.2, 0.4)
    places = itertools.product(("arfl", "fedavg"), shares, ("ipm", "alie"), (0,), alphas)
    runs = [with_alpha(*place) for place in places]
    value = lambda run, t: (
        0.9 - run["corruption.fraction"] - run["dirichlet.alpha"] / 50 - 0.1 * (run["attack.kind"] == "alie")
    )
    results = report.load(make_folder(tmp_path / "a", runs, value))
    with style.context():
        drawn = plot_planes(results, ACCURACY)
    assert set(drawn) == {"accuracy_plane_dirichlet-alpha"}
    *panels, _ = drawn["accuracy_plane_dirichlet-alpha"].axes
    assert [panel.get_title() for panel in panels] == ["FedAvg", "ARFL"]
    expected = lambda offset: [f"{100 * (0.8 - s - alpha / 50 + offset):.0f}" for alpha in alphas for s in shares]
    assert numbers_of(drawn)["accuracy_plane_dirichlet-alpha"] == [expected(0)] * 2
    assert panels[0].get_yticklabels()[0].get_text() == "0.1"
    assert drawn["accuracy_plane_dirichlet-alpha"].get_supylabel() == "dirichlet.alpha"
    fewer = runs[:-1]  # FedAvg's last place has one attack of two
    with style.context():
        drawn = plot_planes(report.load(make_folder(tmp_path / "c", fewer, value)), ACCURACY)
    assert numbers_of(drawn)["accuracy_plane_dirichlet-alpha"] == [expected(0)[:-1], expected(0)]
    other_data = [run | {"data.name": "mnist"} for run in runs]
    higher = lambda run, t: value(run, t) + 0.05 * (run["data.name"] == "mnist")
    with style.context():
        drawn = plot_planes(report.load(make_folder(tmp_path / "b", runs + other_data, higher)), ACCURACY)
    offsets = {"digits": 0, "mnist": 0.05}
    assert numbers_of(drawn) == {
        f"accuracy_plane_dirichlet-alpha_{data}": [expected(offset)] * 2 for data, offset in offsets.items()
    }


def test_malicious_clients_are_part_of_the_share_in_a_plane(tmp_path):
    places = itertools.product((0.0, 0.2, 0.4), (None, 0.1), (0.1, 1.0, 10.0))
    runs = [with_alpha("rfa", share, "ipm", 0, alpha) | {"attack.fraction": own} for share, own, alpha in places]
    value = lambda run, t: 0.9 if not run["corruption.fraction"] and run["attack.fraction"] is None else 0.3
    with style.context():
        figure = plot_planes(report.load(make_folder(tmp_path / "a", runs, value)), ACCURACY)
    (plane,) = figure.values()
    assert [label.get_text() for label in plane.axes[0].get_xticklabels()] == ["0 %", "10 %", "20 %", "40 %"]
    assert numbers_of(figure)["accuracy_plane_dirichlet-alpha"] == [["90", "30", "30", "30"] * 3]


def test_the_worst_threat_in_a_plane_is_chosen_as_in_the_tables(tmp_path):
    """A diverged run is worse than any accuracy, and with other runs to choose on, these decide."""
    places = itertools.product(("fedavg",), (0.1, 0.2, 0.4), ("ipm", "alie"), (0, 1), (0.1, 1.0, 10.0))
    value = lambda run, t: {("ipm", 0): 0.2, ("alie", 0): 0.4, ("ipm", 1): 0.8, ("alie", 1): 0.6}[
        run["attack.kind"], run["seed"]
    ]
    results = report.load(make_folder(tmp_path / "a", [with_alpha(*place) for place in places], value))
    shown = lambda results: {
        number for panels in numbers_of(plot_planes(results, ACCURACY)).values() for panel in panels for number in panel
    }
    with style.context():
        assert shown(results) == {"50"}
        confirmed = report.confirm(results, "seed", (1,))
        assert shown(confirmed) == {"80"}  # IPM is the worst on seed 0
        lost = lambda run: (run["attack.kind"], run["seed"]) == ("alie", 1)
        diverged = make_folder(tmp_path / "b", list(results.runs), value, lost)
        assert shown(report.confirm(report.load(diverged), "seed", (0,))) == {"40"}
    remarks = [figure.get_suptitle() for figure in report.figures(confirmed).values()]
    assert all("Runs with seed 1 are shown" in " ".join(remark.split()) for remark in remarks)
