"""What is equal between runs, from the roles of their keys."""

import hashlib
import inspect
from functools import cache

import msgspec

from fedsim.config.components import flatten
from fedsim.config.fields import FIXED, settings_of
from fedsim.config.registry import Factory, find
from fedsim.config.schema import Config, Role

_NOT_IN_IDS = frozenset(field.name for field in FIXED.values() if field.role in (Role.RECORD, Role.ENGINE))
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def run_id(config: Config) -> str:
    """16 hexadecimal digits, equal for runs with the same numbers; more rounds of a run may have the same."""
    values = flatten(config)
    has_rates_of_rounds = any(takes_rounds(find(key, values[key])) for key in ("client.schedule", "server.schedule"))
    is_extendable = not has_rates_of_rounds and config.server.num_rounds % config.server.eval_every == 0
    left_out = _WITHOUT_ROUNDS if is_extendable else _NOT_IN_IDS
    return hashlib.blake2b(_encode({k: v for k, v in values.items() if k not in left_out}), digest_size=8).hexdigest()


_WITHOUT_ROUNDS = _NOT_IN_IDS | {"server.num_rounds"}


@cache
def takes_rounds(schedule: Factory) -> bool:
    """Whether the factory of a schedule takes the number of rounds, so that other rounds are another run."""
    settings = {field.name.rpartition(".")[2] for field in settings_of(schedule)}
    parameters = inspect.signature(schedule.make).parameters.values()
    return any(p.name not in settings and p.kind is not p.KEYWORD_ONLY for p in parameters)
