"""Settings of one or several folders: the runs of each setting, and its name."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsim import report
from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.names import labels, scenario_name
from fedsim.report.rows import row_names
from fedsim.report.settings import scenarios
from tests.report.synthetic import GRID, SEEDS, SWEPT, make_folder, run, synthetic_accuracy

ROWS = Path(__file__).parents[2] / "docs" / "results" / "rows"


def test_lambda_is_in_row_names_only_where_needed(tmp_path):
    (setting,) = report.load(make_folder(tmp_path / "a", [run("arfl", 0.5)])).settings
    clean = dataclasses.replace(setting, corruption="none", fraction=0.0, lam=1e4)
    assert list(row_names([setting, clean]).values()) == ["ARFL", "ARFL"]
    other = dataclasses.replace(setting, lam=10.0)
    assert list(row_names([setting, other]).values()) == ["ARFL, λ = 1 M", "ARFL, λ = 10 M"]
    follows = dataclasses.replace(setting, swept_values=(("client.learning_rate", 0.5),))
    clean = dataclasses.replace(follows, corruption="none", fraction=0.0, lam=1e4)
    assert list(row_names([setting, other, follows, clean]).values())[2:] == ["ARFL, client.learning_rate=0.5"] * 2
    large = [dataclasses.replace(setting, lam=lam) for lam in (1e6, 1000001.0)]
    automatic = dataclasses.replace(setting, lam=None, swept_values=(("arfl.lam", "auto"),), roles={"arfl.lam": "rule"})
    assert list(row_names(large).values()) == ["ARFL, λ = 1e+06 M", "ARFL, λ = 1000001 M"]
    assert list(row_names([automatic, other]).values()) == ["ARFL, arfl.lam=auto", "ARFL, λ = 10 M"]


def test_keys_of_a_rule_do_not_distinguish_settings_of_others(tmp_path):
    krum = run("multi_krum", 0.3, **{"multi_krum.num_selected": 7})
    unswept = [run("fedavg", 0.3), run("arfl", 0.3), run("arfl")]
    attack = run("arfl", 0.5, **{"attack.kind": "fake_loss"})
    folder = make_folder(tmp_path / "a", [krum, *unswept, attack])
    settings = report.load(folder).settings
    assert all(setting.swept_values == () for setting in settings)  # only the scale of the forged losses varies
    assert [scenario_name(scenario) for scenario in scenarios(settings)] == [
        "Clean", "Shuffling 30 %", "Shuffling + Fake loss 50 %"
    ]  # fmt: skip
    both = make_folder(tmp_path / "b", [krum, run("multi_krum", 0.3), *unswept])
    swept_values = [dict(c.swept_values) for c in report.load(both).settings]
    assert swept_values[:3] == [{"multi_krum.num_selected": 7}, {"multi_krum.num_selected": None}, {}]


def test_settings_that_only_some_runs_have(tmp_path):
    prox = [run("fedavg", **{"client.algorithm": "fedprox", "fedprox.mu": mu}) for mu in (0.01, 0.1)]
    settings = report.load(make_folder(tmp_path / "a", [run("fedavg"), *prox])).settings
    assert list(row_names(settings).values()) == [
        "FedAvg, client.algorithm=fedavg",
        "FedAvg, client.algorithm=fedprox, fedprox.mu=0.01",
        "FedAvg, client.algorithm=fedprox, fedprox.mu=0.1",
    ]


def test_a_folder_without_a_newer_key_has_its_default(tmp_path):
    earlier = [{key: value for key, value in run.items() if key != "record.data"} for run in GRID[:4]]
    current = [run | {"client.dropout_rate": 0.1} for run in earlier]
    for configuration in earlier:
        del configuration["client.dropout_rate"]
    results = report.load(make_folder(tmp_path / "a", earlier), make_folder(tmp_path / "b", current))
    assert [setting.swept_values for setting in results.settings] == [
        (("client.dropout_rate", rate),) for rate in (0.0, 0.1)
    ]
    data = {"data.partition": "dirichlet", "dirichlet.by": "class"}
    current = [run("rfa", **data), run("rfa", **data | {"dirichlet.by": "client"})]
    earlier = [{key: value for key, value in run("arfl", **data).items() if key != "dirichlet.by"}]
    results = report.load(make_folder(tmp_path / "c", earlier), make_folder(tmp_path / "d", current))
    assert [dict(setting.swept_values) for setting in results.settings] == [
        {"dirichlet.by": by} for by in ("class", "class", "client")
    ]


def plugin_run(number=0, file="/home/me/my_rules.py", **keys):
    """A run with a rule and a corruption from plug-ins."""
    rule = {"server.aggregator": f"{file}:tau_mean", "tau_mean.tau": 0.5, "tau_mean.lam": float(number + 1)}
    return run("fedavg", 0.3) | {"corruption.kind": "my.things:blank"} | rule | keys


def test_plugins_are_labeled_by_their_function_names(tmp_path, monkeypatch):
    pre = {"server.pre_aggregators": ["pre.py:clip", "pre.py:pairs"]}
    runs = [plugin_run(number, **{"tau_mean.tau": tau}) for number in range(3) for tau in (0.5, 2.0)]
    results = report.load(make_folder(tmp_path / "a", [*runs, plugin_run(**pre), run("fedavg", 0.3)]))
    (table,) = report.accuracy_tables(results)
    assert [column.label for column in table.columns] == ["Blank 30 %", "Shuffling 30 %"]
    assert {row.name for row in table.rows} == {
        *(
            f"tau_mean, λ = {lam}, server.pre_aggregators=none, tau_mean.tau={tau}"
            for lam in (1, 2, 3)
            for tau in (0.5, 2.0)
        ),
        "tau_mean, λ = 1, server.pre_aggregators=clip + pairs, tau_mean.tau=0.5",
        "FedAvg, server.pre_aggregators=none",
    }
    figures = report.figures(results)
    assert "accuracy_over_lam" in figures
    assert not any("/" in name or ":" in name for name in figures)
    assert not report.differences(results, baseline="/home/me/my_rules.py:tau_mean")  # FedAvg is in another scenario
    monkeypatch.setattr(report, "figures", lambda results: {})
    (tmp_path / "a" / "worst.md").touch()
    (tmp_path / "a" / ".report.json").write_text('["worst.md"]')  # of an earlier report
    report.write(results, results.folders[0])
    assert not list((tmp_path / "a").glob("worst.*"))


def test_functions_of_the_same_name_are_distinguished(tmp_path):
    folders = [make_folder(tmp_path / f, [plugin_run(file=f"{f}.py") | {"seed": s} for s in SEEDS]) for f in ("a", "b")]
    (table,) = report.accuracy_tables(report.load(*folders))
    assert [row.name for row in table.rows] == ["tau_mean (a.py)", "tau_mean (b.py)"]
    assert labels(["own.py:none", "none"]) == {"own.py:none": "none (own.py)", "none": "none"}
    assert labels(["own.py:arfl", "fedavg"]) == {"own.py:arfl": "arfl (own.py)", "fedavg": "fedavg"}
    assert labels(["own.py:FedAvg"]) == {"own.py:FedAvg": "FedAvg (own.py)"}  # which is how fedavg is shown
    assert labels(["own.py:Shuffling"]) == {"own.py:Shuffling": "Shuffling (own.py)"}


def test_each_of_several_corruptions_is_labeled(tmp_path):
    mixed = plugin_run(**{"corruption.kind": "noisy+/home/me/things.py:blank"})
    (table,) = report.accuracy_tables(report.load(make_folder(tmp_path / "a", [mixed])))
    assert [column.label for column in table.columns] == ["Noisy+blank 30 %"]


def test_several_folders_are_read_as_one(tmp_path):
    first = [run for run in GRID if run["seed"] < 2 and run["server.aggregator"] != "rfa"]
    whole = report.load(make_folder(tmp_path / "one", GRID))
    renamed = [run | {"name": "other"} for run in GRID if run not in first]
    parts = report.load(make_folder(tmp_path / "first", first), make_folder(tmp_path / "rest", renamed))
    assert report.accuracy_tables(parts) == report.accuracy_tables(whole)
    key = lambda row: (row["aggregator"], row["fraction"])
    assert sorted(report.summary(parts), key=key) == sorted(report.summary(whole), key=key)
    assert parts.num_repeated == 0


def test_a_run_in_two_folders_is_read_from_the_first(tmp_path):
    folders = [make_folder(tmp_path / "a", GRID[:6]), make_folder(tmp_path / "b", GRID, lambda run, t: 0.9)]
    results = report.load(*folders)
    assert len(results.runs) == len(GRID)
    last = results.table.filter(round=20)
    for number, configuration in enumerate(GRID):
        expected = synthetic_accuracy(configuration, 20) if number < 6 else 0.9
        keys = ("server.aggregator", "corruption.fraction", "seed")
        actual = last.filter(**{key: configuration[key] for key in keys})["test_accuracy"].item()
        assert actual == pytest.approx(expected)
    (table,) = report.accuracy_tables(results)
    assert table.notes == ("6 runs are in several folders; the first folder's, or the longest, are used.",)


def test_folders_of_version_0_3_are_read(tmp_path):
    """A committed one, whole and stopped after 20 rounds."""
    whole = report.load(ROWS / "heterogeneity-digits")
    assert (len(whole.runs), whole.notes, whole.settings[0].rounds[-1]) == (60, (), 2000)
    shutil.copytree(ROWS / "heterogeneity-digits", tmp_path / "cut")
    (tmp_path / "cut" / "models").mkdir()
    np.savez(tmp_path / "cut" / "models" / "00005.npz", kernel=np.ones(2))
    manifest = tmp_path / "cut" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"status":"complete"', '"status":"incomplete"'))
    (tmp_path / "cut" / "parts" / "00000").mkdir(parents=True)
    rows = pl.read_parquet(tmp_path / "cut" / "rounds.parquet").filter(pl.col("round") <= 20)
    rows.write_parquet(tmp_path / "cut" / "parts" / "00000" / "00000000-00000020-rounds.parquet")
    cut = report.load(tmp_path / "cut")
    left = "60 are not: settings are shown up to the last evaluation that all their runs have."
    assert cut.notes[0].endswith(f"0 of 60 runs are complete, {left}")
    assert cut.sources[5][1].read_model()["kernel"].tolist() == [1, 1]
    assert cut.table.equals(whole.table.filter(pl.col("round") <= 20))
    manifest.write_text(manifest.read_text().replace('"config":"', '"config":"= '))
    with pytest.raises(RunFolderError, match=r"manifest\.json: broken: "):
        report.load(tmp_path / "cut")


def test_inputs_that_differ_within_a_folder_are_a_note(tmp_path):
    """They were allowed when the folder's missing runs were computed."""
    inputs = [{"files": {"a.py:f": f"{n}"}, "data": f"{n}"} for n in (0, 1)]
    folders = [make_folder(tmp_path / f"{n}", [plugin_run(seed=n)], **of) for n, of in enumerate(inputs)]
    shutil.copytree(folders[1].path / "groups", folders[0].path / "groups", dirs_exist_ok=True)
    assert report.load(folders[0]).notes == tuple(
        f"Mixed: {name} has changed between runs of {folders[0].path}." for name in ("data", "a.py:f")
    )


def test_a_plugin_that_has_changed_gives_other_runs(tmp_path):
    name = "/home/me/my_rules.py:tau_mean"
    first, same, changed = (
        make_folder(tmp_path / folder, [plugin_run(seed=0)], files={name: digest})
        for folder, digest in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert report.load(first, same).num_repeated == 1
    with pytest.raises(ConfigError, match=f"^{name}: must be the same in all folders, but its file has changed"):
        report.load(first, changed)
    with pytest.raises(ConfigError, match="its file has changed"):  # another seed would be averaged with the first
        report.load(first, make_folder(tmp_path / "d", [plugin_run(seed=1)], files={name: "2"}))


def test_listed_clients_are_one_setting_in_splits_of_different_sizes(tmp_path):
    listed = {"corruption.clients": [0, 1], "data.partition": "natural"}
    runs = [run("fedavg", **listed, **{"data.seed": split}) for split in (0, 1, 2)]
    folder = make_folder(tmp_path / "a", runs, num_clients=[40, 41, 42])
    (setting,) = report.load(folder).settings
    assert (setting.splits, setting.fraction) == ([0, 1, 2], 0.05)
    attacked = {"attack.kind": "ipm", "attack.clients": [3], "data.partition": "natural"}
    runs = [run("fedavg", share, **attacked, **{"data.seed": split}) for share in (0.2, 0.3) for split in (0, 1)]
    folder = make_folder(tmp_path / "b", runs, num_clients=[40, 41, 40, 41])
    settings = report.load(folder).settings
    assert [(s.fraction, s.attack_fraction) for s in settings] == [(0.2, 1 / 40), (0.3, 1 / 40)]
    runs = [run("fedavg", **listed, **{"data.sample_clients": number}) for number in (10, 20)]
    folder = make_folder(tmp_path / "c", runs, num_clients=[10, 20])
    assert [s.fraction for s in report.load(folder).settings] == [0.2, 0.1]


def test_clients_of_several_folders_are_renumbered(tmp_path):
    alphas = lambda run: [0.0, 1.0 + run["seed"]]
    runs = [run("arfl", 0.5, seed) for seed in SEEDS]
    folders = [make_folder(tmp_path / n, part, alphas=alphas) for n, part in [("a", runs[:3]), ("b", runs[1:])]]
    rows = [row for row in report.load(*folders).clients.to_dicts() if row["client_id"] == 1 and row["round"] == 20]
    assert [(row["run"], round(20 * row["alpha"], 5)) for row in rows] == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]


def test_the_f_of_a_rule_is_not_shown_if_it_is_the_shared_one(tmp_path):
    make_run = lambda rule, fraction, f: run(rule, fraction, **{"server.num_byzantine": f})
    shared = [make_run(rule, fraction, "corrupted") for rule in ("fedavg", "median", "krum") for fraction in (0.1, 0.4)]
    settings = report.load(make_folder(tmp_path / "a", shared)).settings
    assert list(row_names(settings).values()) == ["FedAvg", "FedAvg", "Median", "Median", "Krum", "Krum"]
    two = report.load(make_folder(tmp_path / "b", [*shared, make_run("krum", 0.4, 2)])).settings
    assert list(row_names(two).values())[:3] == ["FedAvg", "FedAvg", "Median"]
    assert list(row_names(two).values())[-2:] == [
        "Krum, server.num_byzantine=corrupted",
        "Krum, server.num_byzantine=2",
    ]


def in_memory(path, digest, value=0.5, **keys):
    """A folder of two seeds on a data set in memory, with its digest."""
    runs = [run("fedavg", seed=seed, **{"data.name": "arrays", "arrays.path": ""} | keys) for seed in (0, 1)]
    return make_folder(path, runs, lambda run, t: value, data=digest)


def test_data_in_memory_are_told_apart_by_their_digests(tmp_path):
    first, equal = in_memory(tmp_path / "a", "1"), in_memory(tmp_path / "b", "1")
    other = in_memory(tmp_path / "c", "2", 0.9)
    with pytest.raises(ConfigError, match=r"data: must be the same data set .*a and .*c have different"):
        report.load(first, equal, other)
    results = report.load(first, equal)
    assert results.num_repeated == 2
    assert report.accuracy_tables(results)[0].data == "data in memory"
    earlier = in_memory(tmp_path / "d", "2 1")  # of version 0.3, with the digests of several splits
    assert report.load(first, earlier).num_repeated == 2
    split = in_memory(tmp_path / "e", "3", **{"data.seed": 5})  # the digests of other splits differ
    assert report.load(first, split).settings[0].draws == ((0, 0), (0, 1), (5, 0), (5, 1))
    files = [make_folder(tmp_path / name, [run("fedavg")], data=name) for name in ("f", "g")]
    with pytest.raises(ConfigError, match=r"data: .*f and .*g have different examples under the same keys"):
        report.load(*files)
    with pytest.raises(ConfigError, match="load: must get a run folder, got none"):
        report.load()


def test_names_of_data_from_a_path_and_keys_that_change_nothing(tmp_path):
    table = {"data.name": "table", "table.path": "/home/me/wine.csv", "table.label": "quality"}
    hub = {"data.name": "huggingface", "huggingface.path": "org/flowers", "huggingface.label": "label"}
    settings = report.load(make_folder(tmp_path / "a", [run("fedavg", **keys) for keys in (table, hub)])).settings
    assert [setting.data for setting in settings] == ["wine", "flowers"]
    placed = [run("fedavg", seed=seed, **{"data.placement": place}) for seed, place in enumerate(("host", "device"))]
    (setting,) = report.load(make_folder(tmp_path / "b", placed)).settings
    assert setting.draws == ((0, 0), (0, 1))


def test_rows_are_in_order_of_lambda(tmp_path):
    (table,) = report.accuracy_tables(report.load(make_folder(tmp_path / "a", SWEPT)))
    assert [row.name for row in table.rows] == ["FedAvg", *(f"ARFL, λ = {lam} M" for lam in ("0.1", "1", "10"))]
