"""Folders that get more runs: what is there stays, and the new runs are those of an experiment of their own."""

import pytest

import fedsim
from fedsim.cli.main import main
from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan
from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs.folder import RunFolder
from tests.conftest import Stop, check_equal
from tests.engine.test_resume import interrupt, times_of_parts

SMALL = """
[data]
num_clients = 6
num_train = 240
[mlp]
hidden_sizes = [8]
[server]
cohort_size = 4
num_rounds = 4
eval_every = 2
aggregator = "fedavg"
[engine]
run_width = 1
client_width = 4
[[sweep]]
seed = [0, 1]
"""
MORE = {"seed": fedsim.sweep([3, 1, 0]), "server.aggregator": fedsim.sweep(["arfl", "fedavg"])}


def plan_of(overrides=None):
    return make_plan(parse(SMALL, overrides, "small"))


def rows_of(folder, seed, rule):
    table = folder.read("rounds")
    return table.filter(seed=seed, aggregator=rule).drop("run").to_dicts()


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    """All runs of the longer experiment, at once."""
    return run_plan(plan_of(MORE), tmp_path_factory.mktemp("runs") / "more")


def check(folder, more):
    """The rows of the longer experiment, whatever their order."""
    assert folder.read_manifest()["status"] == "complete"
    for seed in (0, 1, 3):
        for rule in ("fedavg", "arfl"):
            expected = rows_of(more, seed, rule)
            assert len(expected) == 3
            assert rows_of(folder, seed, rule) == expected


def test_more_seeds_and_rules_are_added(more, tmp_path):
    first = run_plan(plan_of(), tmp_path / "first")
    parts = times_of_parts(first)
    with pytest.raises(RunFolderError, match="add --extend to keep its 2 runs and add 4"):
        run_plan(plan_of(MORE), first.path)
    observer = Stop(-1)
    run_plan(plan_of(MORE), first.path, [observer], extend=True)
    assert observer.rounds[0] == 8  # kept
    assert sum(observer.rounds) == 6 * 4
    check(first, more)
    assert times_of_parts(first).items() >= parts.items()
    run_plan(plan_of(MORE), first.path)  # complete: the same experiment, in another order
    text = (first.path / "config.toml").read_text()
    assert parse(text).runs() == plan_of(MORE).runs
    with pytest.raises(RunFolderError, match="holds results of another config"):
        run_plan(plan_of(), first.path)
    with pytest.raises(RunFolderError, match="4 of its runs are not in this config"):
        run_plan(plan_of(), first.path, extend=True)


def test_an_incomplete_folder_is_extended_and_interrupted(more, tmp_path):
    cut = interrupt(plan_of(), tmp_path / "cut", 2, checkpoint_seconds=0)
    again = interrupt(plan_of(MORE), cut.path, 4, checkpoint_seconds=0, extend=True)
    assert again.read_manifest()["status"] == "incomplete"
    check(run_plan(plan_of(MORE), cut.path), more)


def longer(rounds, **overrides):
    return plan_of({"record.final_states": True, "server.num_rounds": rounds, **overrides})


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Two seeds with eight rounds, made at once."""
    return run_plan(longer(8), tmp_path_factory.mktemp("runs") / "straight")


def test_rounds_are_added_from_the_final_states(straight, tmp_path):
    folder = run_plan(longer(4), tmp_path / "more-rounds")
    with pytest.raises(RunFolderError, match="num_rounds was 4, is 8; add --extend to add rounds"):
        run_plan(longer(8), folder.path)
    parts = times_of_parts(folder)
    observer = Stop(-1)
    run_plan(longer(8), folder.path, [observer], extend=True)
    assert observer.rounds == [8, 4, 4]  # the two runs of four rounds are done; two evaluations
    check_equal(folder, straight)
    assert times_of_parts(folder).items() >= parts.items()
    cut = run_plan(longer(4), tmp_path / "cut")
    interrupt(longer(8), cut.path, 2, checkpoint_seconds=0, extend=True)
    check_equal(run_plan(longer(8), cut.path), straight)
    seeds = {"seed": fedsim.sweep([0, 1, 2])}
    both = run_plan(longer(12, **seeds), folder.path, extend=True).read("rounds")
    assert set(both.select("seed", "round").rows()) == {
        (seed, round_) for seed in (0, 1, 2) for round_ in range(0, 13, 2)
    }


def test_rounds_that_cannot_be_added(tmp_path):
    unkept = run_plan(plan_of({"server.num_rounds": 2}), tmp_path / "unkept")
    with pytest.raises(RunFolderError, match=r"final states were not saved .record\.final_states = false"):
        run_plan(plan_of(), unkept.path, extend=True)
    with pytest.raises(RunFolderError, match="2 of its runs are not in this config"):
        run_plan(plan_of({"server.num_rounds": 1}), unkept.path, extend=True)
    cosine = {"client.schedule": "cosine"}
    falling = run_plan(longer(2, **cosine), tmp_path / "falling")
    with pytest.raises(RunFolderError, match="with 4 rounds the learning rates of the first 2 would differ"):
        run_plan(longer(4, **cosine), falling.path, extend=True)
    odd = run_plan(longer(3), tmp_path / "odd")
    with pytest.raises(RunFolderError, match=r"3 rounds are not a multiple of server\.eval_every = 2"):
        run_plan(longer(6), odd.path, extend=True)
    apart = {"seed": fedsim.sweep([0]), "server.num_rounds": fedsim.sweep([2, 4])}
    assert run_plan(longer(2, **apart), tmp_path / "apart").read_manifest()["status"] == "complete"


def test_on_the_command_line(tmp_path, capsys):
    config = tmp_path / "small.toml"
    config.write_text(SMALL)
    run = ["run", str(config), "--num-rounds", "1"]
    assert main([*run, "--extend"]) == 2
    assert "--extend: must be used with --out" in capsys.readouterr().err
    out = ["--out", str(tmp_path / "out")]
    assert main([*run, *out, "--extend"]) == 2
    assert "no run folder to extend; leave out --extend" in capsys.readouterr().err
    assert main([*run, *out]) == 0
    assert main([*run, *out, "--sweep.seed", "0", "1", "2", "--extend"]) == 0
    assert "3 seeds" in capsys.readouterr().out
    assert set(RunFolder(tmp_path / "out").read("rounds")["seed"]) == {0, 1, 2}


def test_extending_deletes_nothing(more):
    runs = more.read_manifest()["runs"]
    with pytest.raises(ConfigError, match=r"^--extend: must be used without --force"):
        run_plan(plan_of(), more.path, extend=True, force=True)
    assert more.read_manifest()["runs"] == runs
