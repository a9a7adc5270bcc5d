"""Configurations: what is accepted, what is said of the rest, and what a sweep makes."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.aggregators import AGGREGATORS
from fedsim.attacks.all_ import ATTACKS
from fedsim.config.fields import KEYS, flatten, reference, unflatten
from fedsim.config.schema import Config, canonical
from fedsim.config.toml import Experiment, load, parse
from fedsim.corruption.all_ import CHANGES, CORRUPTIONS
from fedsim.engine import build
from fedsim.errors import ConfigError


def test_defaults_are_a_valid_run():
    experiment = parse("")
    assert experiment.runs() == [canonical(Config())]
    build.check_names(experiment.base)


def test_flatten_and_unflatten_are_inverse():
    assert unflatten(flatten(Config())) == Config()


def test_fixed_names():
    """Names that users and other programs rely on."""
    fixed = """data.name data.num_clients data.partition data.dirichlet_alpha corruption.kind corruption.fraction
    model.name client.learning_rate client.epochs client.batch_size server.aggregator server.cohort_size
    server.num_rounds server.eval_every arfl.lam seed"""
    assert set(fixed.split()) <= set(KEYS)


def test_reference_names_every_key_and_choice_and_is_itself_a_config():
    text = reference()
    assert parse(text).base == Config()
    for name in KEYS:
        assert name.rpartition(".")[2] + " = " in text
    for table in (AGGREGATORS, CORRUPTIONS, ATTACKS, build.DATASETS, build.MODELS, build.PARTITIONS):
        for name in table:
            assert name in text
    assert set(CHANGES) == set(CORRUPTIONS)


def check(text):
    for point in parse(text).points():
        build.check_names(point)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[client]\nlearnig_rate = 0.1", "unknown key client.learnig_rate; did you mean client.learning_rate?"),
        ("[clinet]\nepochs = 1", "unknown key clinet; did you mean client?"),
        ("lam = 2", "unknown key lam; did you mean arfl.lam?"),
        ("xyzzy = 2", "unknown key xyzzy"),
        ("server = 2", "server is a section, not a key; write [server] and its keys below"),
        ("seed = 'one'", "seed: expected `int`, got `str`"),
        ("seed = true", "seed: expected `int`, got `bool`"),
        ("seed = -1", "seed: expected `int` >= 0"),
        ("[client]\nlearning_rate = nan", "client.learning_rate: expected `float` >= 1e-30"),
        ("[client]\nbatch_size = 0", "client.batch_size: expected `int` >= 1"),
        ("[corruption]\nfraction = 1.2", "corruption.fraction: expected `float` <= 1.0"),
        ("[corruption]\nfraction = -0.1", "corruption.fraction: expected `float` >= 0.0"),
        ("[server]\ncohort_size = 0", "server.cohort_size: expected `int` >= 1"),
        ("[server]\ncohort_size = 21", "server.cohort_size: 21 clients a round, but there are only 20"),
        ("[server]\nnum_rounds = -5", "server.num_rounds: expected `int` >= 0"),
        ("[arfl]\nlam = 0", "arfl.lam: expected `float` >= 1e-30"),
        ("[arfl]\nlam = inf", "arfl.lam: expected `float` <= 1e+30"),
        ("[server]\naggregator = 'afrl'", 'server.aggregator: no "afrl"; did you mean arfl?'),
        ("[server]\naggregator = 'zzz'", 'server.aggregator: no "zzz"; choose from fedavg, rfa, multi_krum, cfl, arfl'),
        ("[corruption]\nkind = 'shufling'", 'corruption.kind: no "shufling"; did you mean shuffling?'),
        ("[corruption]\nclients = [20]", "corruption.clients: no client 20; the ids are 0 to 19"),
        ("[data]\nname = 'digit'", 'data.name: no "digit"; did you mean digits?'),
        ("[data]\nmin_examples = 0", "data.min_examples: expected `int` >= 1"),
        ("[engine]\nclient_width = 11", "engine.client_width: 11 clients in lockstep, but a cohort is only 10"),
        ("[engine]\nclient_width = 'wide'", "engine.client_width: expected a number or \"auto\", got 'wide'"),
        ("[record]\nclients = 'some'", 'record.clients: expected "all" or "evaluated" or "none", got \'some\''),
        ("name = '../up'", "name: expected `str` matching"),
        ("[[sweep]]\nseed = []", "sweep: seed has no values"),
        ("[[sweep]]\nsede = [1]", "unknown key sede; did you mean seed?"),
        ("[[sweep]]\nseed = [0, 'a']", "seed: expected `int`, got `str`"),
        ("[sweep]\nseed = [0]", "sweep: write [[sweep]], with double brackets, above each block"),
        ("[[sweep]]\nseed = [1]\n[[sweep]]\nserver.cohort_size = [1, 50]", "server.cohort_size: 50 clients a round"),
        ("[budget.small]\nsede = 1", "unknown key sede; did you mean seed?"),
        ("[budget]\nseed = 1", "budget: write [budget.NAME], for example [budget.small], and its keys below"),
        ("[budget.paper]\nseed = 1", "budget: write [budget.NAME]"),
        ("[budget.small]\nsweep = 1", "budget.small.sweep: write [[budget.small.sweep]], with double brackets"),
        ("seed = = 1", "not valid TOML: Invalid value"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError) as caught:
        check(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_large_a_sweep_is_refused_before_it_is_built():
    text = "[[sweep]]\n" + "\n".join(f"{key} = {list(range(1, 101))}" for key in ("seed", "client.epochs", "data.seed"))
    with pytest.raises(ConfigError, match="1000000 runs are more than 100000"):
        parse(text)


def test_missing_and_broken_files(tmp_path):
    (tmp_path / "quickstart.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "quickstart.toml")
    with pytest.raises(ConfigError, match=r"no such file; did you mean .*quickstart\.toml\?"):
        load(tmp_path / "quikstart.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_blocks_are_united_and_equal_runs_kept_once():
    """As in the paper's Table 2: clean once with its own lambda, then the corrupted scenarios."""
    text = """
    [[sweep]]
    server.aggregator = ["fedavg", "arfl"]
    corruption.kind = ["none", "shuffling"]
    arfl.lam = 1e4
    [[sweep]]
    server.aggregator = ["fedavg", "arfl"]
    corruption.kind = ["shuffling", "flipping"]
    corruption.fraction = [0.3, 0.5]
    """
    runs = parse(text).runs()
    assert len(runs) == 2 + 2 * 2 * 2  # in the first block both kinds corrupt nobody: one run a rule
    seen = [(r.server.aggregator, r.corruption.kind, r.corruption.fraction, r.arfl.lam) for r in runs]
    assert seen[:2] == [("fedavg", "none", 0.0, 1.0), ("arfl", "none", 0.0, 1e4)]
    assert len(set(seen)) == len(seen)


def test_keys_without_effect_do_not_make_runs():
    runs = parse(
        "[[sweep]]\nserver.aggregator = ['fedavg', 'rfa']\narfl.lam = [1.0, 2.0]\nrfa.num_iters = [4, 8]"
    ).runs()
    assert [(r.server.aggregator, r.rfa.num_iters) for r in runs] == [("fedavg", 4), ("rfa", 4), ("rfa", 8)]


def test_list_keys_in_a_sweep():
    runs = parse("[[sweep]]\nmodel.hidden_sizes = [[8], [8, 8]]").runs()
    assert [r.model.hidden_sizes for r in runs] == [(8,), (8, 8)]
    runs = parse("[[sweep]]\nmodel.hidden_sizes = [8, 8]\nseed = [0, 1]").runs()
    assert [r.model.hidden_sizes for r in runs] == [(8, 8), (8, 8)]


def test_a_budget_wins_over_the_file_and_overrides_win_over_both():
    text = """
    seed = 7
    [server]
    num_rounds = 2000
    [budget.small]
    server.num_rounds = 20
    seed = 0
    [budget.tiny]
    sweep = [{ arfl.lam = [1.0, 2.0] }]
    [[sweep]]
    seed = [1, 2, 3]
    client.epochs = [1, 2]
    """
    of = lambda runs: [(run.server.num_rounds, run.seed, run.client.epochs, run.arfl.lam) for run in runs]
    whole = parse(text, name="file")
    assert of(whole.runs()) == [(2000, seed, epochs, 1.0) for seed in (1, 2, 3) for epochs in (1, 2)]
    assert parse(text, name="file", budget="paper") == whole
    small = parse(text, name="file", budget="small")
    assert small.base.name == "file-small"
    assert of(small.runs()) == [(20, 0, epochs, 1.0) for epochs in (1, 2)]
    assert of(parse(text, budget="tiny").runs()) == [(2000, 7, 1, lam) for lam in (1.0, 2.0)]
    assert of(parse(text, {"seed": "5", "sweep.client.epochs": ["3"]}, budget="small").runs()) == [(20, 5, 3, 1.0)]
    assert small.digest() != whole.digest()
    with pytest.raises(ConfigError, match=r'--budget: no "smal"; did you mean small\?'):
        parse(text, budget="smal")
    with pytest.raises(ConfigError, match=r'--budget: no "small"; there are none here'):
        parse("", budget="small")


def test_overrides_win_over_file_and_sweep():
    text = "[client]\nepochs = 3\n[[sweep]]\nseed = [0, 1]\narfl.lam = [1.0, 2.0]\n[[sweep]]\nseed = [7]"
    runs = parse(text, {"client.epochs": "4", "arfl.lam": "5", "sweep.client.batch_size": ["8", "16"]}).runs()
    assert {r.client.epochs for r in runs} == {4}
    assert {r.arfl.lam for r in runs} == {5.0}
    assert [(r.seed, r.client.batch_size) for r in runs] == [(0, 8), (0, 16), (1, 8), (1, 16), (7, 8), (7, 16)]
    assert [r.seed for r in parse("", {"sweep.seed": ["3", "4"]}).runs()] == [3, 4]
    assert parse("", {"client.learning_rate": ".5"}).base.client.learning_rate == 0.5
    wide = parse("", {"name": "7", "engine.client_width": "2", "engine.run_width": "auto"}).base
    assert (wide.name, wide.engine.client_width, wide.engine.run_width) == ("7", 2, "auto")
    with pytest.raises(ConfigError, match="expected `int`, got `str`"):
        parse(text, {"client.epochs": "many"})


def test_dump_is_the_same_experiment():
    text = """
    seed = 3
    [multi_krum]
    num_byzantine = 2
    [[sweep]]
    arfl.lam = [0.1, 1e5]
    [[sweep]]
    corruption.clients = [1, 2]
    """
    experiment = parse(text, name="trial")
    again = parse(experiment.dump())
    assert again.runs() == experiment.runs()
    assert again.digest() == experiment.digest()
    assert experiment.digest() != parse(text, {"seed": "4"}, name="trial").digest()


keys_and_junk = st.one_of(st.sampled_from([*KEYS, "sweep", "server", "client.learnig_rate"]), st.text(max_size=8))
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
        st.sampled_from(["arfl", "none", "auto", "digits", "iid"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys_and_junk, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(list(KEYS)), values, max_size=4), st.dictionaries(keys_and_junk, values, max_size=3)
)
@settings(max_examples=300, deadline=None)
def test_only_config_errors_come_out_of_wild_values(settings_, block):
    try:
        experiment = Experiment(unflatten(settings_), ({k: [v] for k, v in block.items()},))
        for point in experiment.points():
            build.check_names(point)
        assert parse(experiment.dump()).runs() == experiment.runs()
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017


@given(st.text(max_size=60), st.dictionaries(keys_and_junk, st.text(max_size=6), max_size=3))
@settings(max_examples=300, deadline=None)
def test_only_config_errors_come_out_of_wild_text(text, overrides):
    for source in (text, f"[client]\nepochs = {text}", f"[[sweep]]\n{text} = 1"):
        with contextlib.suppress(ConfigError):
            parse(source, {k: v for k, v in overrides.items() if not k.startswith("sweep.")}).runs()


@pytest.mark.parametrize("name", ["cifar10_cnn", "char_lstm"])
def test_models_that_do_not_fit_the_data_are_named(name):
    config = parse("", {"model.name": name}).base
    with pytest.raises(ConfigError, match=rf"model\.name: {name} does not take uint8 inputs of shape \(8, 8, 1\)"):
        build.num_params(config, build.dataset(config.data))


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "configs").rglob("*.toml")), ids=lambda p: p.stem)
def test_configurations_that_come_with_fedsim_are_right(path):
    experiment = load(path, {})
    for config in experiment.runs():
        build.check_names(config)
    command = next(line for line in path.read_text().splitlines() if "Command:" in line)
    assert f"fedsim run {path.relative_to(Path(__file__).parents[1])}" in command


@pytest.mark.parametrize(
    ("name", "learning_rate", "epochs", "batch_size", "cohort_size", "num_rounds"),
    [
        ("table2-cifar10", 0.01, 5, 64, 20, 2000),
        ("table2-femnist", 0.01, 20, 64, 32, 2000),
        ("table2-shakespeare", 0.6, 1, 10, 16, 100),
    ],
)
def test_presets_have_the_values_of_table_1(name, learning_rate, epochs, batch_size, cohort_size, num_rounds):
    runs = load(Path(__file__).parents[1] / "configs" / "paper" / f"{name}.toml", {}).runs()
    assert len(runs) == 7 * 5 * 5  # Table 2: scenarios, rules, seeds
    for config in runs:
        client, server = config.client, config.server
        assert (client.learning_rate, client.epochs, client.batch_size) == (learning_rate, epochs, batch_size)
        assert (server.cohort_size, server.num_rounds) == (cohort_size, num_rounds)
        if server.aggregator == "arfl":
            assert config.arfl.lam == (1e4 if config.corruption.kind == "none" else 1.0)
