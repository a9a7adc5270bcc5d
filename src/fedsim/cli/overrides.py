"""Keys of a configuration on the command line: `--key value ...` and `--sweep.key value ...`."""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

from fedsim.config.values import KEYS, Sweep, Word, option_of
from fedsim.errors import ConfigError

SLURM = "slurm."  # prefix of the options of a cluster, which look like keys
PLAIN_KEYS = ("name", "seed", "adversary")  # keys without a section
TRACKERS = ("tensorboard", "wandb")
HINTS = {  # of options that do not exist
    "--resume": "an unfinished run resumes when the same command is run again",
    "--extend": "runs and rounds that the folder lacks are added without it",
    "--budget": "it is called --preset now",
    "--tensorboard": "use --log tensorboard",
    "--config": "the configuration is the first argument: fedsim run CONFIG",
    "--sweep": "it takes the key, as in --sweep.seed 0 1 2",
    "--lam": "use --arfl.lam or --autogm.lam",
}


def split_overrides(arguments: Sequence[str], flags: Collection[str] = ()) -> tuple[list[str], dict[str, Any]]:
    """Splits arguments into options and overrides {key: value}: a word, a list of words, or a `Sweep` of words.

    An option is a key if it has a dot, or is in `PLAIN_KEYS` or `KEYS`; `-` stands for `_`. Unknown
    keys are found later, since plug-ins define keys, too. `flags` are the options of `fedsim run` without a value. If
    no configuration is given otherwise, the last of several values at the end is the configuration.
    """
    rest: list[str] = []
    overrides: dict[str, Any] = {}
    pending = list(arguments)
    # Neither the next option nor the configuration file.
    is_value = lambda argument: not argument.startswith("--") and not argument.endswith(".toml")
    while pending:
        argument = pending.pop(0)
        option, has_value, value = argument.partition("=")
        key = full_key(option)
        if key is None:
            is_tracker = argument in TRACKERS and rest[-2:-1] == ["--log"]
            rest += ["--log", argument] if is_tracker else [argument]
            continue
        target = key.removeprefix("sweep.")
        is_swept = target != key
        values = [value] if has_value else []
        while pending and is_value(pending[0]) and (is_swept or not has_value):
            values.append(pending.pop(0))
        if not pending and len(values) > 1 and rest[:1] == ["run"] and not _has_configuration(rest, flags):
            rest.append(values.pop())
        if not values:
            remedy = "" if target.startswith(SLURM) else '; default is its default, "[]" an empty list'
            raise ConfigError(f"{option}: must be followed by a value{remedy}")
        if is_swept:  # 1,2,3 is 1 2 3, but [1, 2] is one value
            parts = lambda value: [value] if value.startswith("[") else value.strip(",").split(",")
            values = [part for value in values for part in parts(value)]
        if target.startswith(SLURM) and len(values) > 1:
            raise ConfigError(f"{option}: must be one value, got {' '.join(values)}")
        if target in overrides:
            remedy = "; give all values of a sweep at once" if is_swept else ""
            if is_swept != isinstance(overrides[target], Sweep):
                remedy = "; give either one value or a sweep"
            raise ConfigError(f"{option}: is given twice{remedy}")
        words = tuple(map(Word, values))
        overrides[target] = Sweep(words) if is_swept else words[0] if len(words) == 1 else list(words)
    return rest, overrides


def _has_configuration(arguments: Sequence[str], flags: Collection[str]) -> bool:
    """Whether one of the `arguments` of `run` is neither an option nor its value."""
    takes_value = lambda argument: argument.startswith("--") and "=" not in argument and argument not in flags
    return any(not after.startswith("--") and not takes_value(before) for before, after in pairwise(arguments))


def full_key(option: str) -> str | None:
    """The key that an option sets, after "sweep." if it sweeps it; None if the option is not a key."""
    name = option.removeprefix("--").replace("-", "_")
    target = name.removeprefix("sweep.")
    if not option.startswith("--") or ("." not in name and name not in (*PLAIN_KEYS, *KEYS)):
        return None
    prefix = name.removesuffix(target) if not target.startswith(SLURM) else ""
    return prefix + KEYS.get(target, target)


def no_option(argument: str, known: Iterable[str]) -> ConfigError:
    """The error for an argument that is neither a key nor one of the `known` options."""
    from fedsim.config.registry import did_you_mean, nearest
    from fedsim.config.resolve import schema

    option = argument.partition("=")[0]
    if not option.startswith("-"):
        return ConfigError(
            f"CONFIG: must be one configuration, got {argument}, too; to run several values, use --sweep.KEY"
        )
    if option in HINTS:
        return ConfigError(f"{option}: no such option; {HINTS[option]}")
    name = option.removeprefix("--").replace("-", "_")
    keys = [key for key in schema().fields if key.rpartition(".")[2] == name]
    key = keys[0] if keys else schema().nearest(name)
    match = nearest(option, [*known, *map(option_of, KEYS)]) or (key and option_of(key))
    return ConfigError(
        f"unknown option {option}{did_you_mean(match) or '; see `fedsim run --help` and `fedsim config`'}"
    )
