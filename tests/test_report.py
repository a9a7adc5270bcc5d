"""Statistics of a made run folder whose numbers are known, and its figures."""

import csv
import dataclasses
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats

from fedsim import report
from fedsim.cli.main import main
from fedsim.config.fields import flatten
from fedsim.config.schema import (
    ArflConfig,
    AttackConfig,
    ClientConfig,
    Config,
    CorruptionConfig,
    DataConfig,
    MultiKrumConfig,
    ServerConfig,
    canonical,
)
from fedsim.core.types import Metrics, RoundRecord
from fedsim.errors import ConfigError, FedsimError
from fedsim.report import cells
from fedsim.report.figures import figures
from fedsim.report.latex import escape
from fedsim.report.names import row_names
from fedsim.report.summary import summary
from fedsim.report.table import Column, Entry, Row, Table
from fedsim.runs.folder import CLIENTS, ROUNDS, RunFolder
from fedsim.runs.tables import client_rows, round_rows

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


def test_files(folder, no_figures):
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


# Made folders of any runs: the accuracy of a run is a function of its configuration and round.


def made(path, configs, accuracy, diverged=lambda config: False, alphas=None) -> RunFolder:
    """A complete folder of `configs`; rows after rounds 0, 10, ...; `alphas(config)` of clients after the last one."""
    folder = RunFolder(path)
    runs = [flatten(canonical(config)) for config in configs]
    about = {"versions": {"fedsim": "0", "jax": "1"}, "device": {"kind": "cpu"}, "config": "", "plan": [], "groups": []}
    folder.create(about | {"status": "complete", "runs": runs})
    rounds = [
        {
            "run": run,
            "aggregator": c.server.aggregator,
            "corruption": c.corruption.kind,
            "fraction": c.corruption.fraction,
            "lam": c.arfl.lam if c.server.aggregator == "arfl" else None,
            "seed": c.seed,
            "round": t,
            "test_accuracy": accuracy(c, t),
            "test_loss": None if diverged(c) else 1 - accuracy(c, t),
            "corrupted_weight": c.corruption.fraction / 2 if t else None,
            "diverged": diverged(c) and t == c.server.num_rounds,
        }
        for run, c in enumerate(configs)
        for t in range(0, c.server.num_rounds + 1, 10)
    ]
    clients = [
        {"run": run, "round": t, "client_id": i, "count": 10, "alpha": alpha / t, "corrupted": i == 0}
        for run, c in enumerate(configs)
        for t in ((10, c.server.num_rounds) if alphas else ())
        for i, alpha in enumerate(alphas(c) if c.server.aggregator == "arfl" else ())
    ]
    for kind, rows, schema in [("rounds", rounds, ROUNDS), ("clients", clients, CLIENTS)]:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder.path / f"{kind}.parquet")
    return folder


def config(rule, fraction=0.0, seed=0, lam=1.0, data="digits", kind="shuffling", num_rounds=20, **client) -> Config:
    return Config(
        seed=seed,
        data=DataConfig(name=data),
        corruption=CorruptionConfig(kind=kind if fraction else "none", fraction=fraction),
        client=ClientConfig(**client),
        server=ServerConfig(aggregator=rule, num_rounds=num_rounds),
        arfl=ArflConfig(lam=lam if rule == "arfl" else 1.0),
    )


def learned(c: Config, t: int) -> float:
    """An accuracy that is different for every run and round; ARFL's is the greatest, and barely falls."""
    falls = 0.1 if c.server.aggregator == "arfl" else 0.6
    noise = ((c.seed * 5 * len(c.server.aggregator) + int(100 * c.corruption.fraction)) % 11) / 200
    rate = c.client.learning_rate + np.log10(c.arfl.lam) / 50
    return float((0.3 + 0.4 * t / 20) * (1 - falls * c.corruption.fraction) + noise + rate)


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes a second; the other tests do it."""
    monkeypatch.setattr(report, "figures", lambda results: {})


RULES, SEEDS = ("arfl", "fedavg", "rfa"), (0, 1, 2, 3)
GRID = [config(rule, fraction, seed) for fraction in (0.0, 0.3, 0.5) for rule in RULES for seed in SEEDS]


def final(rule, fraction, seeds=SEEDS) -> np.ndarray:
    """Percent, by seed."""
    return np.asarray([100 * learned(config(rule, fraction, seed), 20) for seed in seeds])


def test_table_holds_means_deviations_and_the_best(tmp_path):
    (table,) = report.accuracy_tables(report.read(made(tmp_path / "a", GRID, learned)))
    assert [row.name for row in table.rows] == ["FedAvg", "RFA", "ARFL"]  # the paper's order
    assert [(c.group, c.name) for c in table.columns] == [("Clean", ""), ("Shuffling", "30 %"), ("Shuffling", "50 %")]
    for row in table.rows:
        for fraction, entry in zip((0.0, 0.3, 0.5), row.entries, strict=True):
            values = final(row.aggregator, fraction)
            assert entry.mean == pytest.approx(values.mean())
            assert entry.spread == pytest.approx(np.std(values, ddof=1))
            best = max(RULES, key=lambda rule: final(rule, fraction).mean())
            assert entry.bold == (row.aggregator == best)
    assert (table.title, table.data) == ("Test accuracy (%) after 20 rounds", "Digits")
    assert "over 4 seeds" in table.subtitle


def test_markdown_and_latex_say_the_same(tmp_path):
    tables = report.accuracy_tables(report.read(made(tmp_path / "a", GRID, learned)))
    markdown, latex = report.markdown(tables), report.latex(tables)
    mean, deviation = final("arfl", 0.5).mean(), np.std(final("arfl", 0.5), ddof=1)
    (line,) = (line for line in markdown.splitlines() if line.startswith("| ARFL"))
    assert line.split(" | ")[-1] == f"**{mean:.2f} ± {deviation:.2f}** |"
    lines = [line.strip() for line in latex.splitlines()]
    (line,) = (line for line in lines if line.startswith("ARFL"))
    assert line.split(" & ")[-1] == rf"$\mathbf{{{mean:.2f} \pm {deviation:.2f}}}$ \\"
    assert r"\textbf{Digits} & \textbf{Clean} & \multicolumn{2}{c}{\textbf{Shuffling}} \\" in lines
    assert r"\cmidrule(lr){2-2} \cmidrule(lr){3-4}" in lines
    assert r"Corrupted & -- & 30\,\% & 50\,\% \\" in lines
    assert lines[lines.index(line) - 1] == r"\midrule"  # ARFL apart, as in the paper
    assert well_formed(latex)


def well_formed(latex: str) -> bool:
    """Braces and environments are closed, dollars paired, rows as long as the tabular is wide; ASCII alone."""
    bare = re.sub(r"\\[\\{}$&%#_]", "", latex.replace("%", "", 1))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert "%" not in bare
    begun, ended = (re.findall(rf"\\{word}{{(.*?)}}", latex) for word in ("begin", "end"))
    assert sorted(begun) == sorted(ended)
    for block in re.findall(r"\\begin{tabular}(.*?)\\end{tabular}", latex, re.DOTALL):
        width = len(re.match(r"{(.*?)}", block)[1])
        for line in block.splitlines()[1:]:
            if line.endswith(r"\\"):
                spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn{(\d+)}", line))
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + spans == width
    return latex.isascii()


def test_latex_escapes_what_would_be_commands(tmp_path):
    awkward = r"a&b_50%#$~^\{λ}|<"
    assert escape(awkward) == (r"a\&b\_50\%\#\$\textasciitilde{}\textasciicircum{}\textbackslash{}\{$\lambda$\}$|$$<$")
    row = Row(awkward, (Entry(1.0, None, True, 1, 1), None), "own")
    table = Table(awkward, awkward, "±", (Column("A_1", "5 %"), Column("B&", "")), (row,), ("† 1 of 1",))
    assert well_formed(report.latex([table]))
    assert r"$\mathbf{1.00}^{\dagger}$" in report.latex([table])


def test_a_table_a_data_set_and_only_keys_that_vary_inside_it(tmp_path):
    small = [config(rule, data="cifar10", learning_rate=0.01, seed=seed) for rule in RULES for seed in (0, 1)]
    results = report.read(made(tmp_path / "a", GRID, learned), made(tmp_path / "b", small, learned))
    tables = report.accuracy_tables(results)
    assert [table.data for table in tables] == ["Digits", "CIFAR-10"]
    assert all(cell.settings == () for cell in results.cells)  # the learning rate follows the data set
    latex = report.latex(tables)
    assert latex.count(r"\begin{tabular}") == 2
    assert latex.count(r"\begin{table*}") == 1
    assert well_formed(latex)
    assert "CIFAR-10: Test accuracy (%) after 20 rounds" in report.markdown(tables)
    titles = [panel.get_title() for panel in report.figures(results)["accuracy"].axes]
    assert titles == ["Digits: Clean", "Digits: Shuffling 30 %", "Digits: Shuffling 50 %", "CIFAR-10: Clean"]


def test_keys_of_one_rule_tell_nothing_of_the_others(tmp_path):
    krum = dataclasses.replace(config("multi_krum", 0.3), multi_krum=MultiKrumConfig(num_selected=7))
    others = [config("fedavg", 0.3), config("arfl", 0.3), config("arfl")]
    attack = dataclasses.replace(config("arfl", 0.5), attack=AttackConfig(kind="fake_loss"))
    folder = made(tmp_path / "a", [krum, *others, attack], learned)
    found = {(c.aggregator, c.corruption, c.fraction): dict(c.settings) for c in report.read(folder).cells}
    assert found["multi_krum", "shuffling", 0.3] == {"attack.kind": "none"}  # as some clients lie elsewhere
    assert found["arfl", "none", 0.0] == {}
    assert found["arfl", "shuffling", 0.5] == {"attack.kind": "fake_loss"}
    both = made(tmp_path / "b", [krum, dataclasses.replace(krum, multi_krum=MultiKrumConfig()), *others], learned)
    found = [dict(c.settings) for c in report.read(both).cells]
    assert found[:3] == [{"multi_krum.num_selected": 7}, {"multi_krum.num_selected": None}, {}]


def test_several_folders_are_read_as_one(tmp_path):
    first = [c for c in GRID if c.seed < 2 and c.server.aggregator != "rfa"]
    one = report.read(made(tmp_path / "one", GRID, learned))
    renamed = [dataclasses.replace(c, name="other") for c in GRID if c not in first]
    two = report.read(made(tmp_path / "first", first, learned), made(tmp_path / "rest", renamed, learned))
    assert report.accuracy_tables(two) == report.accuracy_tables(one)
    key = lambda row: (row["aggregator"], row["fraction"])
    assert sorted(report.summary(two), key=key) == sorted(report.summary(one), key=key)
    assert two.num_repeated == 0


def test_of_a_run_in_two_folders_the_first_one_counts(tmp_path):
    folders = [made(tmp_path / "a", GRID[:6], learned), made(tmp_path / "b", GRID, lambda c, t: 0.9)]
    results = report.read(*folders)
    assert len(results.runs) == len(GRID)
    accuracy = {
        (c.aggregator, c.fraction, s): a[-1] for c in results.cells for s, a in zip(c.seeds, c.accuracy, strict=True)
    }
    for number, c in enumerate(GRID):
        expected = learned(c, 20) if number < 6 else 0.9
        assert accuracy[c.server.aggregator, c.corruption.fraction, c.seed] == pytest.approx(expected)
    (table,) = report.accuracy_tables(results)
    assert table.notes == ("6 runs are in several folders; the first folder's count.",)


def test_clients_of_several_folders_are_numbered_anew(tmp_path):
    alphas = lambda c: [0.0, 1.0 + c.seed]
    configs = [config("arfl", 0.5, seed) for seed in SEEDS]
    folders = [made(tmp_path / n, part, learned, alphas=alphas) for n, part in [("a", configs[:3]), ("b", configs[1:])]]
    rows = [row for row in report.read(*folders).clients.to_pylist() if row["client_id"] == 1 and row["round"] == 20]
    assert [(row["run"], round(20 * row["alpha"], 5)) for row in rows] == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]


def test_paired_intervals_are_those_of_the_paired_t_test(tmp_path):
    results = report.read(made(tmp_path / "a", GRID, learned))
    found = report.differences(results)
    assert len(found) == 6
    for d in found:
        mine, arfl = (final(rule, d.cell.fraction) for rule in (d.cell.aggregator, "arfl"))
        interval = scipy.stats.ttest_rel(mine, arfl).confidence_interval(0.95)
        assert d.mean == pytest.approx((mine - arfl).mean())
        assert (d.mean - d.half_width, d.mean + d.half_width) == pytest.approx(tuple(interval))
    (table,) = report.paired_tables(results)
    assert [row.name for row in table.rows] == ["FedAvg", "RFA"]
    for row in table.rows:
        for fraction, entry in zip((0.0, 0.3, 0.5), row.entries, strict=True):
            p = scipy.stats.ttest_rel(final(row.aggregator, fraction), final("arfl", fraction)).pvalue
            assert entry.bold == (p < 0.05)
    assert well_formed(report.latex([table]))


def test_paired_takes_the_seeds_that_both_have_and_any_reference(tmp_path):
    configs = [config("arfl", 0.5, s) for s in (1, 2, 3)] + [config("fedavg", 0.5, s) for s in (5, 3, 1)]
    configs += [config("rfa", 0.5, 2), config("rfa", 0.3, 2)]
    results = report.read(made(tmp_path / "a", configs, learned))
    fedavg, rfa = report.differences(results)  # nothing to compare with at 30 %
    assert fedavg.seeds == (3, 1)
    np.testing.assert_allclose(fedavg.values, final("fedavg", 0.5, (3, 1)) - final("arfl", 0.5, (3, 1)))
    assert rfa.half_width is None
    (arfl,) = report.differences(results, to="fedavg")
    assert arfl.mean == pytest.approx(-fedavg.mean)
    with pytest.raises(ConfigError, match="no runs of cfl; there are arfl, fedavg, rfa"):
        report.differences(results, to="cfl")


def test_paired_names_the_reference_where_there_are_several(tmp_path, no_figures):
    configs = [config("fedavg", 0.5, s) for s in SEEDS]
    configs += [config("arfl", 0.5, s, lam) for lam in (1.0, 10.0) for s in SEEDS]
    folder = made(tmp_path / "a", configs, learned)
    (table,) = report.paired_tables(report.read(folder))
    assert [row.name for row in table.rows] == ["FedAvg − ARFL, λ = 1 M", "FedAvg − ARFL, λ = 10 M"]
    report.make(folder)
    lines = list(csv.DictReader((folder.path / "paired.csv").open()))
    assert [line["reference_lam"] for line in lines] == ["1", "10"]
    fedavg, arfl = final("fedavg", 0.5), [100 * learned(c, 20) for c in configs[-4:]]
    low, high = scipy.stats.ttest_rel(fedavg, arfl).confidence_interval(0.95)
    assert [float(lines[1][f"difference_{end}"]) for end in ("low", "high")] == pytest.approx([low, high], rel=1e-4)


def test_diverged_runs_are_counted_and_marked(tmp_path):
    diverged = lambda c: c.server.aggregator == "fedavg" and c.corruption.fraction == 0.5 and c.seed in (1, 3)
    folder = made(tmp_path / "a", GRID, learned, diverged)
    results = report.read(folder)
    counts = {(row["aggregator"], row["fraction"]): row["num_diverged"] for row in report.summary(results)}
    assert counts.pop(("fedavg", 0.5)) == 2
    assert set(counts.values()) == {0}
    (table,) = report.accuracy_tables(results)
    assert table.notes == ("† diverged runs: FedAvg, Shuffling 50 %: 2 of 4.",)
    assert table.rows[0].entries[2].mean == pytest.approx(final("fedavg", 0.5).mean())
    assert report.markdown([table]).count("†") == 2
    assert well_formed(report.latex([table]))
    (paired,) = report.paired_tables(results)
    assert paired.notes == table.notes
    assert set(report.figures(results)) == {"accuracy", "loss", "corrupted_weight", "accuracy_over_fraction"}


def test_folders_from_before_the_column_diverged(tmp_path):
    folder = made(tmp_path / "a", GRID, learned, lambda c: c.seed == 0)
    pq.write_table(folder.read("rounds").drop_columns(["diverged"]), folder.path / "rounds.parquet")
    assert {cell.num_diverged for cell in report.read(folder).cells} == {1}  # its loss is no number


LAMS = (0.1, 1.0, 10.0)
SWEPT = [config("fedavg", 0.5, seed) for seed in (0, 1)]
SWEPT += [config("arfl", 0.5, seed, lam) for lam in (10.0, 0.1, 1.0) for seed in (0, 1)]


def test_figures_over_lambda(tmp_path):
    alphas = lambda c: [c.arfl.lam, 1.0, 2.0]
    drawn = report.figures(report.read(made(tmp_path / "a", SWEPT, learned, alphas=alphas)))
    assert {"accuracy_over_lam", "weights_over_lam", "client_weights"} <= set(drawn)
    assert "accuracy_over_fraction" not in drawn
    (panel,) = drawn["accuracy_over_lam"].axes
    fedavg, arfl = panel.lines
    expected = [100 * np.mean([learned(config("arfl", 0.5, s, lam), 20) for s in (0, 1)]) for lam in LAMS]
    np.testing.assert_allclose(arfl.get_xdata(), LAMS)
    np.testing.assert_allclose(arfl.get_ydata(), expected)
    np.testing.assert_allclose(fedavg.get_ydata(), [final("fedavg", 0.5, (0, 1)).mean()] * 3)  # it has no lambda
    assert panel.get_xscale() == "log"
    (panel,) = drawn["weights_over_lam"].axes
    corrupted, *benign = panel.lines
    np.testing.assert_allclose(corrupted.get_ydata(), 100 * np.asarray(LAMS) / 20, rtol=1e-6)
    assert corrupted.get_linestyle() == "--"
    assert [line.get_linestyle() for line in benign] == ["-", "-"]
    assert "seed 0" in panel.get_title()


def test_accuracy_over_fraction_begins_with_the_clean_runs(tmp_path):
    kinds = [config(rule, 0.5, seed, kind="flipping") for rule in RULES for seed in SEEDS]
    drawn = report.figures(report.read(made(tmp_path / "a", GRID + kinds, learned)))
    (panel,) = drawn["accuracy_over_fraction"].axes  # flipping has two values only, with the clean one
    assert panel.get_title() == "Shuffling"
    np.testing.assert_allclose(panel.lines[2].get_xdata(), [0, 0.3, 0.5])
    np.testing.assert_allclose(panel.lines[2].get_ydata(), [final("arfl", f).mean() for f in (0, 0.3, 0.5)])


def test_accuracy_over_any_number(tmp_path):
    rates = (0.01, 0.1, 0.5)
    configs = [config(rule, 0.5, seed, learning_rate=r) for rule in RULES for r in rates for seed in (0, 1)]
    drawn = report.figures(report.read(made(tmp_path / "a", configs, learned)))
    (panel,) = drawn["accuracy_over_client-learning_rate"].axes
    assert len(panel.lines) == 3  # the key is on the axis, so that a rule is one line
    values = [100 * np.mean([learned(config("rfa", 0.5, s, learning_rate=r), 20) for s in (0, 1)]) for r in rates]
    np.testing.assert_allclose(panel.lines[1].get_ydata(), values)


def test_what_a_figure_leaves_out_is_said(tmp_path):
    configs = [config(rule, fraction / 50, 0) for rule in RULES for fraction in range(1, 31)]
    drawn = report.figures(report.read(made(tmp_path / "a", configs, learned)))
    assert drawn["accuracy"].get_suptitle() == "12 of 30 panels"
    assert len(drawn["accuracy"].axes) == 12
    many = [config("arfl", 0.5, 0, lam) for lam in range(1, 41)]
    drawn = report.figures(report.read(made(tmp_path / "b", many, learned, alphas=lambda c: np.ones(130))))
    assert drawn["accuracy"].get_suptitle() == "35 of 40 rows"
    assert drawn["client_weights"].get_suptitle() == "12 of 40 panels; 44 of 130 clients"
    assert len(drawn["client_weights"].axes[0].lines) == 44


def test_figures_are_written_as_png_and_pdf_in_one_style(tmp_path):
    import matplotlib as mpl

    folder = made(tmp_path / "a", SWEPT, learned, alphas=lambda c: [0.5, 0.5])
    with mpl.rc_context({"font.size": 33, "axes.facecolor": "red"}):
        drawn = report.figures(report.read(folder))
        assert mpl.rcParams["font.size"] == 33
    assert drawn["loss"].axes[0].title.get_fontsize() == 9
    assert drawn["loss"].axes[0].get_facecolor() == (1, 1, 1, 1)
    report.make(folder)
    for name in drawn:
        assert (folder.path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder.path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    before = (folder.path / "figures" / "loss.pdf").read_bytes()
    with report.style.context():
        folder.write_figure("loss", drawn["loss"])
    assert (folder.path / "figures" / "loss.pdf").read_bytes() == before  # no date
    folder.create(folder.read_manifest())
    assert not list((folder.path / "figures").iterdir())
    assert not {"table.md", "table.tex", "paired.csv", "summary.csv"} & {path.name for path in folder.path.iterdir()}


def test_xarray_holds_every_row(tmp_path):
    pytest.importorskip("xarray")
    clean = [config(rule, 0.0, seed, 1e4) for rule in ("fedavg", "arfl") for seed in (0, 1)]
    short = [config("fedavg", 0.5, 2, learning_rate=0.5, num_rounds=10)]
    krum = [dataclasses.replace(config("multi_krum", 0.5), multi_krum=MultiKrumConfig(num_selected=n)) for n in (2, 3)]
    folder = made(tmp_path / "a", [*SWEPT, *clean, *krum], learned)
    other = made(tmp_path / "b", short, learned, lambda c: True)
    data = report.as_xarray(folder.path, other)
    assert list(data.test_accuracy.dims) == [
        "aggregator",
        "corruption",
        "fraction",
        "lam",
        "client_learning_rate",
        "server_num_rounds",
        "multi_krum_num_selected",
        "seed",
        "round",
    ]
    filled = 0
    for made_folder in (folder, other):
        runs = made_folder.read_manifest()["runs"]
        for row in made_folder.read("rounds").to_pylist():
            run = runs[row["run"]]
            one = {name: row[name] for name in ("aggregator", "corruption", "fraction", "seed", "round")}
            one |= {"client_learning_rate": run["client.learning_rate"], "server_num_rounds": run["server.num_rounds"]}
            lams = [1e4] if row["corruption"] == "none" else LAMS
            selected = [run["multi_krum.num_selected"]] if row["aggregator"] == "multi_krum" else [2, 3]
            for lam in lams if row["lam"] is None else [row["lam"]]:
                for number in selected:
                    found = data.sel(one | {"lam": lam, "multi_krum_num_selected": number})
                    filled += 1
                    for name in data.data_vars:
                        expected = np.nan if row[name] is None else float(row[name])
                        np.testing.assert_equal(float(found[name]), expected)
    assert int(data.test_accuracy.notnull().sum()) == filled  # and nothing else
    assert data.attrs == {"name": "fedsim", "versions": "fedsim 0, jax 1", "device": "kind cpu"}


def test_xarray_without_lambda_and_without_xarray(tmp_path, monkeypatch):
    folder = made(tmp_path / "a", [config("fedavg"), config("fedavg", data="cifar10")], learned)
    pytest.importorskip("xarray")
    data = report.as_xarray(folder)
    assert data.data.values.tolist() == ["digits", "cifar10"]
    assert float(data.test_accuracy.isel(data=0, round=-1).squeeze()) == pytest.approx(learned(config("fedavg"), 20))
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(FedsimError, match=r"pip install 'fedsim\[notebook\]'"):
        report.as_xarray(folder)


def test_command_line_of_one_folder(tmp_path, capsys, no_figures):
    folder = made(tmp_path / "a", GRID, learned)
    assert main(["report", str(folder.path), "--paired"]) == 0
    printed = capsys.readouterr().out
    assert "Difference to ARFL in test accuracy (percentage points) after 20 rounds" in printed
    for name in ("summary.csv", "paired.csv", "table.md", "table.tex"):
        assert (folder.path / name).exists()
        assert name in printed.replace("\n", "")
    assert main(["report", str(folder.path), "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (folder.path / "table.md").read_text()
    assert main(["report", str(folder.path), "--format", "latex"]) == 0
    assert capsys.readouterr().out == (folder.path / "table.tex").read_text()
    assert main(["report", str(folder.path), "--paired", "--to", "rfa", "--format", "markdown"]) == 0
    assert "rule − RFA" in capsys.readouterr().out
    with (folder.path / "paired.csv").open() as file:
        assert {line["reference"] for line in csv.DictReader(file)} == {"rfa"}


def test_command_line_of_several_folders(tmp_path, capsys, no_figures):
    one, two = made(tmp_path / "a", GRID[:12], learned), made(tmp_path / "b", GRID[12:], learned)
    before = sorted(tmp_path.rglob("*"))
    assert main(["report", str(one.path), str(two.path)]) == 0
    assert "Shuffling 50 %" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before  # the table is shown, nothing is written
    assert main(["report", str(one.path), str(two.path), "--out", str(tmp_path / "deep" / "both")]) == 0
    written = {path.name for path in (tmp_path / "deep" / "both").rglob("*")}
    assert {"summary.csv", "paired.csv", "table.md", "table.tex"} <= written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "--out", "b"], "--out: b is a run folder"),
        (["a", "--to", "cfl"], "--to: no runs of cfl; there are arfl, fedavg, rfa"),
        (["c", "--paired"], "--paired: no other rule shares a scenario and a seed with arfl"),
        (["a", "b", "nowhere"], "nowhere: not a run folder"),
        (["a", "--format", "html"], "invalid choice"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(arguments, message, tmp_path, monkeypatch, capsys, no_figures):
    monkeypatch.chdir(tmp_path)
    for name, configs in {"a": GRID[:12], "b": GRID[12:], "c": GRID[:4]}.items():
        made(tmp_path / name, configs, learned)
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
