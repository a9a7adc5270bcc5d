"""Keys of a configuration among options."""

import pytest

from fedsim.cli.overrides import SHORT, no_option, split_overrides
from fedsim.config.resolve import schema
from fedsim.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "rest", "overrides"),
    [
        ("run c.toml", "run c.toml", {}),
        (
            "run --sweep.seed 0 1 c.toml --client.learning-rate=0.5 --out d --arfl.lam 4",
            "run c.toml --out d",
            {"sweep.seed": ["0", "1"], "client.learning_rate": "0.5", "arfl.lam": "4"},
        ),
        ("run c.toml --seed 3 --name=a", "run c.toml", {"seed": "3", "name": "a"}),
        ("run c.toml --sweep.seed=0 1 --dry-run", "run c.toml --dry-run", {"sweep.seed": ["0", "1"]}),
        ("run c.toml --arfl.lam -3", "run c.toml", {"arfl.lam": "-3"}),
        ("run --slurm.partition gpu c.toml", "run c.toml", {"slurm.partition": "gpu"}),
        ("run c.toml --data.name a=b.py:f", "run c.toml", {"data.name": "a=b.py:f"}),
        ("run c.toml --budget small", "run c.toml --budget small", {}),
        ("run --mlp.hidden-sizes 64 32 c.toml", "run c.toml", {"mlp.hidden_sizes": ["64", "32"]}),
        (
            "run --lr 0.5 --sweep.lam 1 2 c.toml",
            "run c.toml",
            {"client.learning_rate": "0.5", "sweep.arfl.lam": ["1", "2"]},
        ),
        ("run c.toml --mlp.hidden-sizes 64 32", "run c.toml", {"mlp.hidden_sizes": ["64", "32"]}),
        ("run --sweep.seed 0 1 quickstart", "run quickstart", {"sweep.seed": ["0", "1"]}),
        ("run --lr 0.5 quickstart", "run quickstart", {"client.learning_rate": "0.5"}),
        ("run --dirichlet-alpha 3 c.toml", "run --dirichlet-alpha 3 c.toml", {}),
    ],
)
def test_keys_are_split_from_options(arguments, rest, overrides):
    assert split_overrides(arguments.split()) == (rest.split(), overrides)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--sweep.seed", "--sweep.seed: needs a value"),
        ("--sweep.seed c.toml", "--sweep.seed: needs a value"),
        ("--client.epochs --out d", "--client.epochs: needs a value"),
        ("--seed 1 --seed 2", "--seed: given twice"),
        ("--seed 1 --sweep.seed 1 2", "--sweep.seed: given twice"),
        ("--client.learning-rate 1 --client.learning_rate 2", "--client.learning_rate: given twice"),
        ("--lr 1 --client.learning-rate 2", "--client.learning-rate: given twice"),
        ("--slurm.partition gpu cpu", "--slurm.partition: takes one value"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ConfigError, match=message):
        split_overrides(arguments.split())


def test_short_names_are_keys():
    assert set(SHORT.values()) <= set(schema().fields)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--dryrun", "no option --dryrun; did you mean --dry-run?"),
        ("--learning-rte=3", "no option --learning-rte; did you mean --learning-rate?"),
        ("--num-byzantine", "no option --num-byzantine; did you mean --server.num-byzantine?"),
        ("--tau", "no option --tau; did you mean --"),
        ("--zzzz", "no option --zzzz; see `fedsim run --help`"),
        ("other.toml", "other.toml: one configuration at a time"),
    ],
)
def test_what_is_no_option(argument, message):
    assert message in str(no_option(argument, ["--dry-run"]))
