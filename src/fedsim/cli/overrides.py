"""Keys of a configuration on the command line: `--key value` and `--sweep.key value ...`."""

from collections.abc import Sequence
from typing import Any

from fedsim.errors import ConfigError

SLURM = "slurm."  # options of a cluster look like keys, and are none
PLAIN_KEYS = ("name", "seed")  # without a section


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Arguments without `--key value` and `--sweep.key value ...`, and these as {"key": "value"}.

    An option counts as a key if it has a dot or is `name` or `seed`; `-` in it stands for `_`. Whether there is such a
    key is seen when the configuration is read, which may bring keys of its own.
    """
    rest: list[str] = []
    overrides: dict[str, Any] = {}
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        option, has_value, value = argument.partition("=")
        key = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or ("." not in key and key not in PLAIN_KEYS):
            rest.append(argument)
            continue
        prefix = "sweep." if key.startswith("sweep.") else ""
        target = key.removeprefix(prefix)
        if target.startswith(SLURM):
            prefix = ""
        values = [value] if has_value else []
        while pending and not values_end(pending[0]) and (prefix or not values):
            values.append(pending.pop(0))
        if not values:
            raise ConfigError(f"{option}: needs a value")
        if {target, f"sweep.{target}"} & overrides.keys():
            raise ConfigError(f"{option}: given twice; a key has one value, or --sweep and all its values at once")
        overrides[key] = values if prefix else values[0]
    return rest, overrides


def values_end(argument: str) -> bool:
    """Whether `argument` is no value of a sweep any more: the next option, or the configuration file."""
    return argument.startswith("--") or argument.endswith(".toml")
