"""Keys of a configuration among options."""

import pytest

from fedsim.cli.overrides import split_overrides
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
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ConfigError, match=message):
        split_overrides(arguments.split())
