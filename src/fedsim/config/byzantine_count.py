"""f, the number of Byzantine clients that rules and pre-aggregators assume."""

import math

import numpy as np

from fedsim.config.clients import ROUNDING_ERROR, corrupted_share
from fedsim.config.components import factories
from fedsim.config.fields import Field, settings_of
from fedsim.config.schema import Config, is_byzantine_count
from fedsim.errors import ConfigError


def configured_f(config: Config, field: Field) -> int | None:
    """The f that `server.num_byzantine` gives to the setting `field`; None if it gives none.

    "corrupted" and "malicious" give that share of a cohort, rounded up, but at most what the rule's limits allow for K
    clients; pre-aggregators that merge clients, such as bucketing, leave fewer rows. Raises `ConfigError` if the share
    is not known, since natural clients are counted when the data are loaded.
    """
    f = config.server.num_byzantine
    if f is None or not is_byzantine_count(field.name):
        return None
    if isinstance(f, int):
        return f
    if config.data.partition == "natural" and (config.corruption.clients or config.attack.clients):
        raise ConfigError(
            f"server.num_byzantine: must be a number if clients of a natural partition are listed, got {f}; or use "
            "corruption.fraction and attack.fraction instead of lists"
        )
    size, num_clients = config.server.cohort_size, config.data.num_clients
    corrupted, attack = corrupted_share(config, num_clients), config.attack
    malicious = len(attack.clients) / num_clients or attack.fraction or 0.0
    if f == "corrupted":
        share = min(corrupted + malicious, 1.0)
    else:
        share = malicious if config.has_malicious_set or attack.kind == "none" else corrupted
    number = math.ceil(share * size - ROUNDING_ERROR)
    return min([number, *(max(limit.largest(size), 0) for limit in field.limits if limit.is_required)])


def assumed_f(config: Config, num_valid: np.ndarray) -> np.ndarray | None:
    """The f of rounds in which `num_valid` [...] clients answered; None if no rule or pre-aggregator takes an f.

    It is the setting or, by default, (n - 3) // 2, but at most what n clients allow (docs/rules.md), and the smallest
    if several components take an f. n counts all clients, also those that a pre-aggregator merges.
    """
    values, counts = dict(config.settings), []
    for factory in factories(config):
        if factory.key not in ("server.aggregator", "server.pre_aggregators"):
            continue
        for field in (field for field in settings_of(factory) if is_byzantine_count(field.name)):
            setting = values[field.name]
            f = (num_valid - 3) // 2 if setting is None else np.full_like(num_valid, setting)
            largest = [limit.largest(num_valid) for limit in field.limits if limit.is_required]
            counts.append(np.maximum(np.min([f, *largest], axis=0), 0))
    return np.min(counts, axis=0) if counts else None
