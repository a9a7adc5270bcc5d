"""Configurations: valid and wrong values, and the runs of sweeps."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from fedsim.config.clients import num_corrupted, number_clients, sort_clients
from fedsim.config.components import flatten
from fedsim.config.experiment import Experiment
from fedsim.config.kinds import KINDS
from fedsim.config.resolve import schema
from fedsim.config.roles import run_id
from fedsim.config.schema import Config
from fedsim.config.sections import ModelConfig
from fedsim.config.toml import PAPER, parse, read
from fedsim.config.values import Word
from fedsim.engine.checks import check_limits
from fedsim.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
KEYS = list(schema().fields)


def setting(run: Config, key: str):
    return dict(run.settings)[key]


def test_reference_names_every_key_and_choice_and_is_itself_a_config():
    text = schema().reference()
    assert parse(text).runs() == parse("").runs()
    for name, field in schema().fields.items():
        assert name.rpartition(".")[2] + " = " in text
        assert field.meaning, name
        assert field.meaning in text
    for kind in KINDS.values():
        for name in kind.built_in:
            assert name in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[client]\nlearnig_rate = 0.1", "unknown key client.learnig_rate; did you mean client.learning_rate?"),
        ("[clinet]\nepochs = 1", "unknown key clinet; did you mean client?"),
        ("[adamw]\nb1 = 0.8", "unknown key adamw; did you mean client_adamw?"),
        ("lam = 2", "unknown key lam; did you mean arfl.lam?"),
        ("[arfl]\nlamda = 2", "unknown key arfl.lamda; did you mean arfl.lam?"),
        ("[krum]\nf = 2", "unknown key krum.f; the settings of krum are: num_byzantine, neighbors"),
        ("[alie]\nclient_ids = 2", "unknown key alie.client_ids; the settings of alie are: z, "),  # not mimic.client_id
        ("[median]\nf = 2", "unknown key median; median has no settings"),
        ("xyzzy = 2", "unknown key xyzzy"),
        ("server = 2", "server: must be a section, [server] with its keys below, got 2"),
        ("seed = true", "seed: must be an integer >= 0, got True"),
        ("seed = -1", "seed: must be an integer >= 0, got -1"),
        ("[client]\nlearning_rate = nan", "client.learning_rate: must be a number > 0 and <= 1e+30, got nan"),
        ("[client]\ndropout_rate = 1.0", "client.dropout_rate: must be a number >= 0 and < 1, got 1.0"),
        ("[server]\ncohort_size = 21", "server.cohort_size: must be at most the number of clients (20), got 21"),
        ("[arfl]\nlam = 0", "arfl.lam: must be a number > 0"),
        ("[arfl]\nlam = inf", "got inf"),
        ("[mlp]\nhidden_sizes = [8, 0]", "mlp.hidden_sizes: must be a list, each element an integer >= 1, got [8, 0]"),
        ("[mlp]\nhidden_sizes = 8", "mlp.hidden_sizes: must be a list, each element an integer >= 1, got 8"),
        ("[[sweep]]\nmlp.hidden_sizes = 8", "mlp.hidden_sizes: must be a list, each element an integer >= 1, got 8"),
        (
            "data.partition = 'natural'\nserver.aggregator = 'trimmed_mean'\nserver.num_byzantine = 'corrupted'\n"
            "corruption.kind = 'shuffling'\ncorruption.clients = [3]",
            "server.num_byzantine: must be a number if clients of a natural partition are listed, got corrupted",
        ),
        ("[server]\naggregator = 'zzz'", "server.aggregator: must be one of fedavg, rfa, multi_krum, cfl, arfl"),
        ("[server]\npre_aggregators = ['zzz']", "server.pre_aggregators: must be one of nnm"),
        (
            "[corruption]\nclients = [20]",
            "corruption.clients: must be numbers from 0 to 19, or names in quotes, got 20",
        ),
        ("[corruption]\nclients = [9, 1, 9]", "corruption.clients: must be different clients, got 9 twice"),
        ("[data]\nname = 'digit'", 'data.name: must be a known name, got "digit"; did you mean digits?'),
        ("[server]\naggregator = 'Krum'", 'server.aggregator: must be a known name, got "Krum"; did you mean krum?'),
        ("[server]\naggregator = 'ARFL'", 'server.aggregator: must be a known name, got "ARFL"; did you mean arfl?'),
        ("data.name = 'arrays'\narrays.path = 5", "arrays.path: must be text, got 5"),
        ("[engine]\nclient_width = 11", "engine.client_width: must be at most server.cohort_size (10), got 11"),
        ("[engine]\nclient_width = 'wide'", "engine.client_width: must be an integer >= 1 or \"auto\", got 'wide'"),
        ("[record]\nclients = 'some'", 'record.clients: must be "all" or "evaluated" or "none", got \'some\''),
        ("name = '../up'", "name: must be text of up to 100 letters"),
        ("[[sweep]]\nseed = []", "seed: must have at least one value in a sweep"),
        ("[[sweep]]\npreset = ['a']", "preset: must be at the top level of a configuration"),
        ("seed = " + "9" * 5000, "not valid TOML: "),
        ("seed = " + "[" * 2000 + "]" * 2000, "not valid TOML: "),
        ("[attack]\nkind = ''", "attack.kind: "),
        ("[[sweep]]\nsede = [1]", "unknown key sede; did you mean seed?"),
        ("[[sweep]]\nseed = [0, 'a']", "seed: must be an integer >= 0, got 'a'"),
        ("[sweep]\nseed = [0]", "sweep: must be written [[sweep]], with double brackets"),
        (
            "[[sweep]]\nseed = [1]\n[[sweep]]\nserver.cohort_size = [1, 50]",
            "server.cohort_size: must be at most the number of clients (20), got 50",
        ),
        ("[preset.small]\nsede = 1", "unknown key sede; did you mean seed?"),
        ("[budget.small]\nseed = 1", "unknown key budget; it is called preset now"),
        ("[preset]\nseed = 1", "preset: must be written [preset.NAME]"),
        ("[preset.paper]\nseed = 1", "preset: must be written [preset.NAME]"),
        ("[preset.small]\nsweep = 1", "preset.small.sweep: must be written [[preset.small.sweep]]"),
        ("seed = = 1", "not valid TOML: Invalid value"),
        ("seed = 2020-01-01", "seed: must be an integer >= 0, got datetime.date"),
    ],
)
def test_errors_name_the_key(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(text).runs()


def test_too_large_sweeps_are_errors_before_they_are_built():
    text = "[[sweep]]\n" + "\n".join(f"{key} = {list(range(1, 101))}" for key in ("seed", "client.epochs", "data.seed"))
    with pytest.raises(ConfigError, match=r"at most 100000 .* got 1000000"):
        parse(text)


def test_missing_and_broken_files(tmp_path):
    (tmp_path / "quickstart.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read(tmp_path / "quickstart.toml")
    with pytest.raises(ConfigError, match=r"no such file; did you mean .*quickstart\.toml\?"):
        read(tmp_path / "quikstart.toml")
    with pytest.raises(ConfigError, match=r"must be a configuration, got a folder; `fedsim report .* shows the runs"):
        read(tmp_path)
    (tmp_path / "wrong.toml").write_text("sede = 1")
    with pytest.raises(ConfigError, match=r"wrong\.toml: unknown key sede"):
        read(tmp_path / "wrong.toml")


# Runs of a sweep


def test_runs_of_all_blocks_equal_ones_once():
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
    assert len(runs) == 2 + 2 * 2 * 2  # in the first block no clients are corrupted: one run per rule
    seen = [(r.server.aggregator, r.corruption.kind, r.corruption.fraction, r.section("arfl").get("lam")) for r in runs]
    assert seen[:2] == [("fedavg", "none", 0.0, None), ("arfl", "none", 0.0, 1e4)]
    assert len(set(seen)) == len(seen)


def test_data_seed_can_be_the_seed_of_each_run():
    experiment = parse('data.seed = "seed"\n[[sweep]]\nseed = [3, 8]\nserver.aggregator = ["fedavg", "rfa"]')
    pairs = "\n".join(
        f'[[sweep]]\ndata.seed = {seed}\nseed = {seed}\nserver.aggregator = ["fedavg", "rfa"]' for seed in (3, 8)
    )
    assert experiment.runs() == parse(pairs).runs()
    assert parse(experiment.dump()).runs() == experiment.runs()
    with pytest.raises(ConfigError, match=r'data\.seed: must be an integer >= 0 or "seed", got'):
        parse('data.seed = "sed"')


ATTACKED = {"attack.kind": "ipm", "attack.fraction": 0.2}


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        ({"corruption.kind": "noisy"}, {}, True),  # no clients are corrupted
        ({"corruption.fraction": 0.5}, {}, True),  # neither corruption nor attack
        ({"corruption.fraction": 0.5, "attack.kind": "sign_flip"}, {"corruption.fraction": 0.5}, False),
        ({"corruption.clients": [2, 1], "corruption.kind": "noisy"}, {"corruption.clients": [1, 2]}, False),
        (
            {"corruption.clients": [2, 1], "corruption.fraction": 0.3, "corruption.kind": "noisy"},
            {"corruption.clients": [1, 2], "corruption.kind": "noisy"},
            True,
        ),
        ({"corruption.rounding": "down"}, {}, True),  # no clients are corrupted
        (
            {"corruption.clients": [1], "corruption.rounding": "down", "corruption.kind": "noisy"},
            {"corruption.clients": [1], "corruption.kind": "noisy"},
            True,
        ),
        ({"rfa.num_iters": 9}, {}, True),  # of a rule that is not used
        ({"arfl.lam": 1}, {"arfl.lam": 1.0}, True),
        ({"arfl.lam": 2.0}, {}, False),
        ({"mlp.hidden_sizes": [64]}, {}, True),
        ({"data.partition": "natural", "data.num_clients": 9}, {"data.partition": "natural"}, True),
        ({"fedprox.mu": 0.5, "client.algorithm": "fedprox"}, {"client.algorithm": "fedprox"}, False),
        ({"attack.fraction": 0.1}, {}, True),  # there is no attack
        ({"attack.kind": "ipm", "attack.fraction": 0.2, "corruption.fraction": 0.3}, ATTACKED, True),
    ],
)
def test_keys_without_effect_do_not_distinguish_runs(first, second, are_equal):
    resolve = schema().resolve
    assert (resolve(first) == resolve(second)) == are_equal
    assert (hash(resolve(first)) == hash(resolve(second))) == are_equal


@pytest.mark.parametrize(
    ("fraction", "num_clients", "nearest", "down"),
    [
        (0.3, 25, 8, 7),  # 7.5: a half goes to the even number
        (0.5, 71, 36, 35),  # the paper's Shakespeare, 35.5
        (0.3, 1039, 312, 311),  # and its FEMNIST, 311.7
        (0.29, 100, 29, 29),  # a little less in floating point
        (0.7, 45, 32, 31),  # 31.5, also a little less
        (1.0, 7, 7, 7),
        (0.0, 7, 0, 0),
    ],
)
def test_rounding_of_the_corrupted_fraction(fraction, num_clients, nearest, down):
    count_corrupted = lambda **more: num_corrupted(
        schema().resolve({"corruption.kind": "noisy", "corruption.fraction": fraction} | more), num_clients
    )
    assert (count_corrupted(), count_corrupted(**{"corruption.rounding": "down"})) == (nearest, down)


def test_list_keys_in_a_sweep():
    sizes = lambda text: [setting(run, "mlp.hidden_sizes") for run in parse(text).runs()]
    assert sizes("[[sweep]]\nmlp.hidden_sizes = [[8], [8, 8]]") == [(8,), (8, 8)]
    assert sizes("[[sweep]]\nmlp.hidden_sizes = [8, 8]\nseed = [0, 1]") == [(8, 8), (8, 8)]


def test_a_preset_wins_over_the_file_and_overrides_win_over_both():
    text = """
    seed = 7
    [server]
    num_rounds = 2000
    [preset.small]
    server.num_rounds = 20
    seed = 0
    [preset.tiny]
    sweep = [{ arfl.lam = [1.0, 2.0] }]
    [[sweep]]
    seed = [1, 2, 3]
    client.epochs = [1, 2]
    """
    values_of = lambda runs: [
        (run.server.num_rounds, run.seed, run.client.epochs, setting(run, "arfl.lam")) for run in runs
    ]
    whole = parse(text, name="file")
    assert values_of(whole.runs()) == [(2000, seed, epochs, 1.0) for seed in (1, 2, 3) for epochs in (1, 2)]
    assert parse(text, name="file", preset="paper") == whole
    small = parse(text, name="file", preset="small")
    assert small.name == "file-small"
    assert values_of(small.runs()) == [(20, 0, epochs, 1.0) for epochs in (1, 2)]
    assert values_of(parse(text, preset="tiny").runs()) == [(2000, 7, 1, lam) for lam in (1.0, 2.0)]
    assert values_of(parse(text, {"seed": 5, "client.epochs": fedsim.sweep([3])}, preset="small").runs()) == [
        (20, 5, 3, 1.0)
    ]
    assert small.digest() != whole.digest()
    with pytest.raises(ConfigError, match=r'preset: .* got "smal"; did you mean small\?'):
        parse(text, preset="smal")
    with pytest.raises(ConfigError, match=r'preset: .* got "small"'):
        parse("", preset="small")


def test_overrides_win_over_file_and_sweep():
    text = "[client]\nepochs = 3\n[[sweep]]\nseed = [0, 1]\narfl.lam = [1.0, 2.0]\n[[sweep]]\nseed = [7]"
    runs = parse(text, {"client.epochs": 4, "arfl.lam": 5, "client.batch_size": fedsim.sweep([8, 16])}).runs()
    assert {r.client.epochs for r in runs} == {4}
    assert {setting(r, "arfl.lam") for r in runs} == {5.0}
    assert [(r.seed, r.client.batch_size) for r in runs] == [(0, 8), (0, 16), (1, 8), (1, 16), (7, 8), (7, 16)]
    assert [r.seed for r in parse("", {"seed": fedsim.sweep([3, 4])}).runs()] == [3, 4]
    for rate in (0.5, Word(".5")):
        assert parse("", {"client.learning_rate": rate}).runs()[0].client.learning_rate == 0.5
    (wide,) = parse("", {"engine.client_width": 2, "engine.run_width": "auto"}).runs()
    assert (wide.engine.client_width, wide.engine.run_width) == (2, "auto")
    assert parse("", {"name": "7"}).name == "7"
    lists = "[mlp]\nhidden_sizes = [8]\n[server]\npre_aggregators = ['nnm']"
    (restored,) = parse(lists, {"mlp.hidden_sizes": "default", "server.pre_aggregators": "default"}).runs()
    assert (setting(restored, "mlp.hidden_sizes"), restored.server.pre_aggregators) == ((64,), ())
    swept = parse(lists, {"server.pre_aggregators": fedsim.sweep(["default", ["bucketing"]])}).runs()
    assert [run.server.pre_aggregators for run in swept] == [(), ("bucketing",)]
    words = fedsim.sweep([Word("default"), Word("bucketing")])
    assert [run.server.pre_aggregators for run in parse(lists, {"server.pre_aggregators": words}).runs()] == [
        (), ("bucketing",)
    ]  # fmt: skip
    words = fedsim.sweep([Word("default"), Word("1")])
    runs = parse("corruption.kind = 'shuffling'", {"corruption.clients": words}).runs()
    assert [run.corruption.clients for run in runs] == [(), (1,)]
    with pytest.raises(ConfigError, match=r"client\.epochs: .* got 'many'"):
        parse(text, {"client.epochs": "many"})


def test_words_that_toml_takes_for_numbers_are_texts_where_these_are_expected():
    attacked = "attack.kind = 'inf'\ncorruption.fraction = 0.2"
    assert [setting(run, "inf.value") for run in parse(attacked, {"inf.value": Word("nan")}).runs()] == ["nan"]
    named = {"corruption.kind": "shuffling", "corruption.clients": [Word("007"), Word("2020-01-01"), Word("3")]}
    (run,) = parse("", {"data.partition": "natural", **named}).runs()
    assert run.corruption.clients == (3, "007", "2020-01-01")


def test_a_run_of_several_blocks_records_what_any_of_them_asks_for():
    blocks = [
        {"seed": [0, 1]},
        {"seed": [0], "record": {"models": True, "clients": "none"}, "server.num_rounds": [200]},
    ]
    runs = fedsim.load({"sweep": blocks}).runs()
    assert [(r.seed, r.record.models, r.record.clients) for r in runs] == [(0, True, "all"), (1, False, "all")]
    assert [r.server.num_rounds for r in runs] == [200, 100]
    (run,) = fedsim.load({"seed": 0, "record": {"losses": False}, "sweep": [{"record": {"models": True}}, {}]}).runs()
    assert (run.record.losses, run.record.models) == (False, True)
    (run,) = fedsim.load({"seed": 0, "record": {"losses": False}, "sweep": [{}, {"record": {"models": True}}]}).runs()
    assert (run.record.losses, run.record.models) == (False, True)


def test_a_block_in_python_overrules_a_sweep_of_all_blocks():
    tables = {"seed": fedsim.sweep([0, 1]), "sweep": [{"arfl": {"lam": [1, 2]}}, {"seed": [5]}]}
    assert [run.seed for run in fedsim.load(tables).runs()] == [0, 1, 0, 1, 5]


# Python


def test_keywords_are_keys_and_sweeps_are_explicit():
    tables = {"server": {"num_rounds": 9, "aggregator": "rfa"}, "sweep": [{"rfa.num_iters": [1, 2]}]}
    runs = fedsim.load(tables, server__num_rounds=3, seed=fedsim.sweep([0, 1]), data__name="separable_2d").runs()
    assert [(r.server.num_rounds, r.seed, setting(r, "rfa.num_iters")) for r in runs] == [
        (3, 0, 1),
        (3, 1, 1),
        (3, 0, 2),
        (3, 1, 2),
    ]
    assert {r.data.name for r in runs} == {"separable_2d"}
    assert tables["server"]["num_rounds"] == 9  # the argument is not changed
    (run,) = fedsim.load({}, record__models=True, corruption__clients=[3, 1], corruption__kind="noisy").runs()
    assert (run.record.models, run.corruption.clients) == (True, (1, 3))
    swept = {"server": {"aggregator": fedsim.sweep(["rfa", "arfl"])}, "seed": fedsim.sweep(range(2))}
    assert [(r.server.aggregator, r.seed) for r in fedsim.load(swept).runs()] == [
        ("rfa", 0),
        ("rfa", 1),
        ("arfl", 0),
        ("arfl", 1),
    ]
    momenta = fedsim.load({}, client__momentum=fedsim.sweep([None, 0.9]))
    assert [run.client.momentum for run in momenta.runs()] == [None, 0.9]
    assert parse(momenta.dump()).runs() == momenta.runs()  # TOML has no null
    for rule in (fedsim.aggregators.median(), fedsim.aggregators.median, fedsim.sweep([fedsim.aggregators.median()])):
        with pytest.raises(ConfigError, match=r'an object of Python; give its name, .*"file\.py:function"$'):
            fedsim.load({}, server__aggregator=rule)
    with pytest.raises(ConfigError, match=r"client\.epochs: .*got '3'"):
        fedsim.load({}, client__epochs="3")  # text is not parsed
    with pytest.raises(ConfigError, match=r'^preset: .* got "3"'):
        fedsim.load({}, preset=3)
    with pytest.raises(ConfigError, match=r"keys must be text, got 1"):
        fedsim.load({1: 2})
    with pytest.raises(ConfigError, match=r"source: .* got \[1\]"):
        fedsim.load([1])
    with pytest.raises(ConfigError, match=r"source: .* got text; tomllib\.loads makes tables"):
        fedsim.load("seed = 1\n" * 500)  # longer than a file's name
    with pytest.raises(
        ConfigError, match=r"^server: must be set by its keys, such as server\.aggregator \(server__aggregator in"
    ):
        fedsim.load({}, server={"num_rounds": 1})


# An experiment as text


keys_and_junk = st.one_of(st.sampled_from([*KEYS, "sweep", "server", "client.learnig_rate"]), st.text(max_size=8))
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
        st.sampled_from(["arfl", "none", "auto", "digits", "iid", "rfa", "multi_krum", "scaffold", "adam"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys_and_junk, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), values, max_size=4), st.dictionaries(keys_and_junk, values, max_size=3))
def test_arbitrary_values_raise_only_config_errors(values, block):
    with contextlib.suppress(ConfigError):
        experiment = Experiment(values, ({k: [v] for k, v in block.items()},), schema())
        runs = experiment.runs()
        assert parse(experiment.dump()).runs() == runs


def valid_values(key):
    """Values that are valid for a key, if it does not depend on others."""
    if key in KINDS:
        names = st.sampled_from(list(KINDS[key].built_in))
        return st.just([]) if key == "server.pre_aggregators" else names
    default = schema().fields[key].default
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.integers(1, 9)
    if isinstance(default, float):
        return st.floats(1.1, 3) if key == "fang.range_factor" else st.floats(0.01, 0.9)
    return st.just(default)


DEPENDENT = {"data.num_clients", *(key for key in KEYS if key.startswith("engine."))}  # must fit other keys
INDEPENDENT = [key for key, field in schema().fields.items() if field.default is not None and key not in DEPENDENT]
some_keys = st.lists(st.sampled_from(INDEPENDENT), max_size=3, unique=True)


@given(st.data(), some_keys, some_keys)
@settings(max_examples=60)
def test_dump_of_any_experiment_is_the_same_experiment(data, fixed, swept):
    values = {"data.partition": "iid"} | {key: data.draw(valid_values(key)) for key in fixed}
    block = {key: data.draw(st.lists(valid_values(key), min_size=1, max_size=2)) for key in swept}
    experiment = parse({**values, "sweep": [block]})
    again = parse(experiment.dump())
    assert again.runs() == experiment.runs()
    assert again.digest() == experiment.digest()
    assert again.dump() == experiment.dump()


def test_dumps_keep_the_order_of_runs():
    """TOML writes the dotted keys of a section together."""
    experiment = parse("", {key: fedsim.sweep([4, 8]) for key in ("client.epochs", "seed", "client.batch_size")})
    assert parse(experiment.dump()).runs() == experiment.runs()


@given(st.text(max_size=60), st.dictionaries(keys_and_junk, st.text(max_size=6), max_size=3))
def test_arbitrary_text_raises_only_config_errors(text, overrides):
    for source in (text, f"[client]\nepochs = {text}", f"[[sweep]]\n{text} = 1", f"server.aggregator = '{text}'"):
        with contextlib.suppress(ConfigError):
            parse(source, {k: v for k, v in overrides.items() if not k.startswith("sweep.")}).runs()


# Bundled configurations


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.toml")), ids=lambda p: p.stem)
def test_bundled_configurations_are_valid(path, dataset):
    text, one_split = path.read_text(), {"data.seed": 0}
    for preset in [PAPER, *re.findall(r"^\[preset\.(\w+)\]", text, flags=re.MULTILINE)]:
        experiment = read(path, one_split, preset)
        runs = experiment.runs()
        assert runs
        assert preset != PAPER or not experiment.unused_keys(runs)
        for config in {(config.server, config.settings): config for config in runs}.values():
            config = replace(config, model=ModelConfig("logistic"))  # some models take images only
            check_limits([config], dataset)
    command = next(line for line in text.splitlines() if "Command:" in line)
    assert f"fedsim run {path.relative_to(CONFIGS.parent)}" in command


@pytest.mark.parametrize(
    ("name", "learning_rate", "epochs", "batch_size", "cohort_size", "num_rounds"),
    [
        ("table2-cifar10", 0.01, 5, 64, 20, 2000),
        ("table2-femnist", 0.01, 20, 64, 32, 2000),
        ("table2-shakespeare", 0.6, 1, 10, 16, 100),
    ],
)
def test_presets_have_the_values_of_table_1(name, learning_rate, epochs, batch_size, cohort_size, num_rounds):
    runs = read(CONFIGS / "paper" / f"{name}.toml").runs()
    assert len(runs) == 7 * 5 * 5  # Table 2: scenarios, rules, seeds
    for config in runs:
        client, server = config.client, config.server
        assert (client.learning_rate, client.epochs, client.batch_size) == (learning_rate, epochs, batch_size)
        assert (server.cohort_size, server.num_rounds) == (cohort_size, num_rounds)
        if server.aggregator == "arfl":
            assert setting(config, "arfl.lam") == (1e4 if config.corruption.kind == "none" else 1.0)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("cifar10", "client.batch_size noisy.std"),
        ("femnist", "femnist_cnn.dense_size"),
        ("shakespeare", "noisy.text_noise char_lstm.forget_bias char_lstm.dropout_at"),
    ],
)
def test_configurations_of_the_authors_programs(name, keys):
    """They differ from the text of the paper in these keys only."""
    text, authors = (
        read(CONFIGS / "paper" / place).runs() for place in (f"table2-{name}.toml", f"authors/{name}.toml")
    )
    pairs = [(flatten(a), flatten(b)) for a, b in zip(text, authors, strict=True)]
    different = {key for a, b in pairs for key in a if a[key] != b[key]}
    always = {"client.loss_at", "corruption.rounding", "multi_krum.num_byzantine"}
    assert different == always | set(keys.split())


def test_listed_clients_have_several_corruptions_in_the_order_of_the_list():
    key = "corruption.kind = 'shuffling+noisy'\ncorruption.clients = "
    (third,) = parse(key + "[7, 2, 5]").runs()
    assert third.corruption.clients == (2, 5, 7)
    assert third.corruption.kind == "noisy+shuffling+shuffling"
    (in_order,) = parse(key + "[2, 5, 7]").runs()
    assert in_order.corruption.kind == "shuffling+noisy"
    (named,) = parse(key + "['b', 'a']").runs()
    assert named.corruption.kind == "noisy+shuffling"
    numbered = number_clients(named, ["b", "x", "a"])
    assert numbered.corruption.clients == (0, 2)
    assert numbered.corruption.kind == "shuffling+noisy"
    assert run_id(numbered) == run_id(*parse(key + "[0, 2]").runs())
    attacked = "data.partition = 'natural'\ndata.name = 'femnist'\nattack.kind = 'ipm'\n"
    (config,) = parse(f"{attacked}attack.clients = ['b', 'a']").runs()
    assert number_clients(config, ["b", "x", "a"]).attack.clients == (0, 2)
    (config,) = parse(f"{attacked}[[sweep]]\nattack.clients = [['b', 'a'], ['a', 'b']]").runs(lambda _: ["b", "x", "a"])
    assert config.attack.clients == (0, 2)
    (config,) = parse("attack.kind = 'ipm'\n[[sweep]]\nattack.clients = [[3, 1], [1, 3]]\n").runs()
    assert config.attack.clients == (1, 3)
    assert sort_clients([5, 2], "attack.kind", "a+b.py:attack") == ((2, 5), "a+b.py:attack")  # a file with that name
