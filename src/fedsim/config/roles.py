"""What is equal between runs, from the roles of their keys."""

import hashlib
import inspect
from functools import cache

import msgspec

from fedsim.config.components import are_traced, factories, flatten, is_number, unflatten
from fedsim.config.fields import FIXED, settings_of
from fedsim.config.registry import Factory, find
from fedsim.config.schema import Config, Settings
from fedsim.config.sections import Role

LATER = {  # keys that are younger than ids, which contain them only if they have another value than these defaults
    "adagrad.initial": None,
    "adapter.alpha": None,
    "adapter.base": "",
    "adapter.factors": "both",
    "adapter.rank": None,
    "adapter.whole": (),
    "backdoor.phrase": (1, 2, 3),
    "client.optimizer": "sgd",
    "corruption.end_round": 0,
    "data.long_tail": 1.0,
    "dirichlet.by": "class",
    "dirichlet.num_classes": None,
    "extreme.num_sybils": 0,
    "extreme.sybil_class": 0,
    "flipping.to": "one",
    "huggingface.test_split": "test",
    "huggingface.train_split": "train",
    "krum.power": "second",
    "mlp.dropout_rate": 0.0,
    "multi_krum.power": "second",
    "optimal_alie.search": "grid",
    "optimal_ipm.search": "grid",
    "rfa.start": "mean",
    "scaffold.corrects": "gradient",
    "scaffold.weighting": "equal",
    "server.layerwise": False,
    "server.patience": 0,
    "server.stop_diverged": False,
    "sgd.weight_decay": 0.0,
    "table.text": "",
    "table.tokenizer": "",
    "table.window": 80,
}
NOT_IN_IDS = frozenset(field.name for field in FIXED.values() if field.role in (Role.RECORD, Role.ENGINE))
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def run_id(config: Config) -> str:
    """16 hexadecimal digits, equal if the canonical configurations are, but for what is saved, layouts and rounds."""
    values = flatten(config)
    is_extendable = not has_rates_of_rounds(config) and config.server.num_rounds % config.server.eval_every == 0
    left_out = (_WITHOUT_ROUNDS if is_extendable else NOT_IN_IDS) | {k for k, v in LATER.items() if values.get(k) == v}
    return hashlib.blake2b(_encode({k: v for k, v in values.items() if k not in left_out}), digest_size=8).hexdigest()


_WITHOUT_ROUNDS = NOT_IN_IDS | {"server.num_rounds"}


def part(config: Config, *roles: Role) -> Settings:
    """The keys of these roles with their values; numbers that are inputs of a program count as equal."""
    return component(config, *_keys(roles))


def component(config: Config, *keys: str) -> Settings:
    """These keys, as in `part`, and the settings of the components that they name."""
    is_traced = are_traced(factories(config), keys)
    values = ((key, value) for key, value in flatten(config).items() if key in is_traced)
    return tuple((key, 0 if is_traced[key] and is_number(value) else value) for key, value in values)


def server_component(config: Config) -> Settings:
    """What shapes the server of a run: runs with an equal one share a branch of a program."""
    return component(config, *_keys((Role.BRANCH,), "server"))


def attack_component(config: Config) -> Settings:
    """What shapes the attack of a run, as for servers."""
    return component(config, *_keys((Role.BRANCH,), "attack"))


def corruption_config(config: Config) -> Config:
    """What determines corrupted data and malicious clients, except keys and numbers; defaults for all else."""
    return _unflatten(component(config, *_keys((Role.TRACED,), "corruption", "attack")))


_unflatten = cache(lambda values: unflatten(dict(values)))


def data_choice(config: Config) -> Settings:
    """Everything that determines the examples of the run's clients: runs with equal choices share a data set."""
    return part(config, Role.DATA)


@cache
def _keys(roles: tuple[Role, ...], *sections: str) -> tuple[str, ...]:
    keys = [name for name, field in FIXED.items() if field.role in roles]
    return tuple(key for key in keys if not sections or FIXED[key].section in sections)


def has_rates_of_rounds(config: Config) -> bool:
    """Whether a learning rate depends on the number of rounds."""
    schedules = {"client.schedule": config.client.schedule, "server.schedule": config.server.schedule}
    return any(takes_rounds(find(key, name)) for key, name in schedules.items())


@cache
def takes_rounds(schedule: Factory) -> bool:
    """Whether the factory of a schedule takes the number of rounds, so that other rounds are another run."""
    settings = {field.name.rpartition(".")[2] for field in settings_of(schedule)}
    parameters = inspect.signature(schedule.make).parameters.values()
    is_required = lambda p: p.default is p.empty and p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)
    return any(p.name not in settings and is_required(p) for p in parameters)
