"""Keys of a configuration on the command line: `--key value ...` and `--sweep.key value ...`."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedsim.errors import ConfigError

SLURM = "slurm."  # options of a cluster look like keys, and are none
PLAIN_KEYS = ("name", "seed")  # without a section
SHORT = {
    "aggregator": "server.aggregator",
    "attack": "attack.kind",
    "batch_size": "client.batch_size",
    "cohort_size": "server.cohort_size",
    "corruption": "corruption.kind",
    "data": "data.name",
    "epochs": "client.epochs",
    "fraction": "corruption.fraction",
    "lam": "arfl.lam",
    "learning_rate": "client.learning_rate",
    "lr": "client.learning_rate",
    "model": "model.name",
    "num_clients": "data.num_clients",
    "num_rounds": "server.num_rounds",
    "rounds": "server.num_rounds",
}


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Arguments without `--key value ...` and `--sweep.key value ...`, and these as {"key": "value"}.

    Several values, and all those of a sweep, are a list. An option counts as a key if it has a dot, is `name` or
    `seed`, or is in `SHORT`; `-` in it stands for `_`. Whether there is such a key is seen when the configuration is
    read, which may bring keys of its own. Where nothing else is left, the last of several values at the end is the
    configuration.
    """
    rest: list[str] = []
    overrides: dict[str, Any] = {}
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        option, has_value, value = argument.partition("=")
        key = full_key(option)
        if key is None:
            rest.append(argument)
            continue
        target = key.removeprefix("sweep.")
        values = [value] if has_value else []
        while pending and not values_end(pending[0]) and (target != key or not has_value):
            values.append(pending.pop(0))
        if not pending and len(values) > 1 and rest[:1] == ["run"] and all(one.startswith("--") for one in rest[1:]):
            rest.append(values.pop())
        if not values:
            raise ConfigError(f"{option}: needs a value")
        if target.startswith(SLURM) and len(values) > 1:
            raise ConfigError(f"{option}: takes one value")
        if {target, f"sweep.{target}"} & overrides.keys():
            raise ConfigError(f"{option}: given twice; a key has one value, or --sweep and all its values at once")
        overrides[key] = values if target != key or len(values) > 1 else values[0]
    return rest, overrides


def full_key(option: str) -> str | None:
    """The key that an option names, with "sweep." in front where it is swept; None: the option is no key."""
    name = option.removeprefix("--").replace("-", "_")
    target = name.removeprefix("sweep.")
    if not option.startswith("--") or ("." not in name and name not in (*PLAIN_KEYS, *SHORT)):
        return None
    prefix = name.removesuffix(target) if not target.startswith(SLURM) else ""
    return prefix + SHORT.get(target, target)


def values_end(argument: str) -> bool:
    """Whether `argument` is no value any more: the next option, or the configuration file."""
    return argument.startswith("--") or argument.endswith(".toml")


def option_of(key: str) -> str:
    """How a key is written on the command line."""
    return f"--{key.replace('_', '-')}"


def no_option(argument: str, known: Iterable[str]) -> ConfigError:
    """What to say of an argument that is neither an option, of those `known`, nor a key."""
    from fedsim.config.registry import did_you_mean, nearest
    from fedsim.config.resolve import schema

    option = argument.partition("=")[0]
    if not option.startswith("--"):
        return ConfigError(f"{argument}: one configuration at a time; several values go with --sweep.KEY")
    name = option.removeprefix("--").replace("-", "_")
    keys = [key for key in schema().fields if key.rpartition(".")[2] == name]
    key = keys[0] if keys else schema().nearest(name)
    match = nearest(option, [*known, *map(option_of, SHORT)]) or (key and option_of(key))
    return ConfigError(f"no option {option}{did_you_mean(match) or '; see `fedsim run --help` and `fedsim config`'}")
