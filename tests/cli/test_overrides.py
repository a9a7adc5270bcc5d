"""Keys of a configuration among options."""

import re

import pytest

import fedsim
from fedsim.cli import run
from fedsim.cli.overrides import no_option, split_overrides
from fedsim.config.kinds import KINDS, NAMES
from fedsim.config.registry import find
from fedsim.config.resolve import schema
from fedsim.config.toml import read
from fedsim.config.values import KEYS
from fedsim.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "rest", "overrides"),
    [
        (
            "run --sweep.seed 0 1 c.toml --client.learning-rate=0.5 --out d --arfl.lam 4",
            "run c.toml --out d",
            {"seed": fedsim.sweep(["0", "1"]), "client.learning_rate": "0.5", "arfl.lam": "4"},
        ),
        ("run c.toml --seed 3 --name=a", "run c.toml", {"seed": "3", "name": "a"}),
        ("run c.toml --sweep.seed=0 1 --dry-run", "run c.toml --dry-run", {"seed": fedsim.sweep(["0", "1"])}),
        ("run c.toml --arfl.lam -3", "run c.toml", {"arfl.lam": "-3"}),
        ("run --slurm.partition gpu c.toml", "run c.toml", {"slurm.partition": "gpu"}),
        ("run c.toml --data.name a=b.py:f", "run c.toml", {"data.name": "a=b.py:f"}),
        ("run --mlp.hidden-sizes 64 32 c.toml", "run c.toml", {"mlp.hidden_sizes": ["64", "32"]}),
        (
            "run --lr 0.5 --sweep.rounds 1,2 3 c.toml --sweep.mlp.hidden-sizes [8,4] 8",
            "run c.toml",
            {
                "client.learning_rate": "0.5",
                "server.num_rounds": fedsim.sweep(["1", "2", "3"]),
                "mlp.hidden_sizes": fedsim.sweep(["[8,4]", "8"]),
            },
        ),
        ("run c.toml --mlp.hidden-sizes 64 32", "run c.toml", {"mlp.hidden_sizes": ["64", "32"]}),
        ("run --sweep.seed 0 1 quickstart", "run quickstart", {"seed": fedsim.sweep(["0", "1"])}),
        ("run --out d --sweep.seed 0 1 quickstart", "run --out d quickstart", {"seed": fedsim.sweep(["0", "1"])}),
        ("run --force --sweep.seed 0 1 grid", "run --force grid", {"seed": fedsim.sweep(["0", "1"])}),
        ("run --out=d q --sweep.seed 0 1", "run --out=d q", {"seed": fedsim.sweep(["0", "1"])}),
        ("run --lr 0.5 quickstart", "run quickstart", {"client.learning_rate": "0.5"}),
        ("run --log tensorboard wandb q", "run --log tensorboard --log wandb q", {}),
        ("run q --log wandb", "run q --log wandb", {}),
        ("run --dirichlet-alpha 3 c.toml", "run --dirichlet-alpha 3 c.toml", {}),
    ],
)
def test_keys_are_split_from_options(arguments, rest, overrides):
    assert split_overrides(arguments.split(), run.flags()) == (rest.split(), overrides)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--sweep.seed", "--sweep.seed: .* value"),
        ("--sweep.seed c.toml", "--sweep.seed: .* value"),
        ("--client.epochs --out d", "--client.epochs: .* value"),
        ("--corruption.clients --out d", '--corruption.clients: .* default is its default, "\\[]" an empty list'),
        ("--seed 1 --seed 2", "--seed: is given twice$"),
        ("--seed 1 --sweep.seed 1 2", "--sweep.seed: is given twice; .* sweep"),
        ("--client.learning-rate 1 --client.learning_rate 2", "--client.learning_rate: .* twice$"),
        ("--lr 1 --client.learning-rate 2", "--client.learning-rate: .* twice"),
        ("--slurm.partition gpu cpu", "--slurm.partition: .* gpu cpu"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ConfigError, match=message):
        split_overrides(arguments.split())


def test_synonyms_stand_for_keys_and_components():
    assert set(KEYS.values()) <= set(schema().fields)
    assert schema().nearest("client.lr") == "client.learning_rate"
    components = {name for kind in KINDS.values() for name in kind.built_in}
    assert set(NAMES.values()) <= components
    assert not set(NAMES) & components


@pytest.mark.parametrize(
    ("key", "name", "suggestion"),
    [
        ("server.aggregator", "geometric_median", "rfa"),
        ("server.aggregator", "coordinate-wise median", "median"),
        ("data.partition", "non-iid", "dirichlet"),
        ("attack.kind", "LIE", "alie"),
        ("attack.kind", "geometric_median", None),  # of another kind
    ],
)
def test_components_are_suggested_under_other_names(key, name, suggestion):
    with pytest.raises(ConfigError) as error:
        find(key, name)
    assert str(error.value).endswith(f"did you mean {suggestion}?") == (suggestion is not None)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--dryrun", "--dryrun; did you mean --dry-run?"),
        ("--learning-rte=3", "--learning-rte; did you mean --learning-rate?"),
        ("--num-byzantine", "--num-byzantine; did you mean --server.num-byzantine?"),
        ("--tau", "--tau; did you mean --"),
        ("--resume", "--resume: no such option; an unfinished run resumes"),
        ("--lam=3", "--lam: no such option; use --arfl.lam"),
        ("-x", "unknown option -x; see `fedsim run --help`"),
        ("other.toml", "CONFIG: must be one configuration, got other.toml"),
    ],
)
def test_unknown_options(argument, message):
    assert message in str(no_option(argument, ["--dry-run", "--force"]))


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("client.foo", None),
        ("xyz.quux", None),
        ("client.batch_sise", "client.batch_size"),
        ("clients.batch_size", "client.batch_size"),
        ("arfl.lamb", "arfl.lam"),
        ("dirichlet.alpa", "dirichlet.alpha"),
        ("batch_sizes", "client.batch_size"),
    ],
)
def test_only_keys_with_one_or_two_typing_errors_are_suggested(key, suggestion):
    assert schema().nearest(key) == suggestion


LATER = "[[sweep]]\nseed = [0]\nserver.cohort_size = [5]\n[[sweep]]\nseed = [0]\nserver.cohort_size = [9]"


@pytest.mark.parametrize(
    ("file", "changes", "preset", "message"),
    [
        ("server.cohort_size = 50", {}, None, "{}: server.cohort_size: must be at most .*20.*"),
        (
            "data.num_clients = 5",
            {"server.cohort_size": 10},
            None,
            "on the command line: server.cohort_size: .*5.*got 10.*",
        ),
        ("client.epochs = -1", {"data.num_clients": 5}, None, "{}: client.epochs: .*"),
        ("", {"client.epochs": -1}, None, "on the command line: client.epochs: .*"),
        (
            "server.cohort_size = 10\npreset.small.data.num_clients = 5",
            {},
            "small",
            "{} with --preset small: server.*",
        ),
        ("", {}, "small", "{}: preset: must be left out.*"),
        ("server.aggregator = 'krumm'", {"seed": 3}, None, "{}: server.aggregator: .*"),
        ("server.cohort_size = 10", {"seed": 1, "data.num_clients": 5}, None, "{} with --data.num-clients: server.*"),
        (LATER, {"seed": 1, "data.num_clients": 8}, None, "{} with --data.num-clients: server.* [(]8[)], got 9.*"),
        (LATER, {"server.cohort_size": 0}, None, "on the command line: server.cohort_size: .*"),
        ("[[sweep]]\nseed=[0]\n[[sweep]]\nserver.cohort_size=[50]", {"client.epochs": 2}, None, "{}: server.*50.*"),
    ],
)
def test_errors_name_the_source_of_the_value(file, changes, preset, message, tmp_path):
    path = tmp_path / "q.toml"
    path.write_text(file)
    with pytest.raises(ConfigError) as error:
        read(path, changes, preset).runs()
    assert re.fullmatch(message.format(re.escape(str(path))), str(error.value))
