"""The clients: their own data, how many are corrupted or malicious, whether there are enough, and f."""

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from fedsim.config.components import factories
from fedsim.config.fields import Field, settings_of
from fedsim.config.registry import did_you_mean, nearest, split_names
from fedsim.config.schema import Config, is_byzantine_count
from fedsim.errors import ConfigError, expand_user

WITH_CLIENTS = ("femnist", "leaf", "shakespeare")  # data sets whose examples belong to clients
MAX_SHOWN = 10  # names in a message
CLIENT_IDS = "client_ids.npy"  # in a folder or an .npz file of arrays


def has_clients(values: Mapping[str, Any]) -> bool:
    """Whether the examples of the run with `values` by dotted key belong to clients, as far as is known."""
    name = str(values.get("data.name", ""))
    if name == "arrays" and values.get("arrays.path"):
        path = expand_user(str(values["arrays.path"]))
        if path.is_dir():
            return (path / CLIENT_IDS).exists()
        try:
            with zipfile.ZipFile(path) as file:
                return CLIENT_IDS in file.namelist()
        except (OSError, zipfile.BadZipFile):  # found when the data are loaded
            return False
    if name == "images":
        return "client" in str(values.get("images.levels"))  # which is not checked yet
    return name in WITH_CLIENTS or bool(values.get(f"{name.rpartition(':')[2]}.client"))


def lists_names(config: Config) -> bool:
    """Whether the run lists a client by its name."""
    return any(isinstance(client, str) for client in (*config.corruption.clients, *config.attack.clients))


def position_notes(config: Config, names: Sequence[str]) -> Iterator[str]:
    """A remark for each list of clients by number in which one is the name of another client."""
    for key, listed in (("corruption.clients", config.corruption.clients), ("attack.clients", config.attack.clients)):
        is_ambiguous = lambda number: number < len(names) and names[number] != str(number) and str(number) in names
        for number in list(filter(is_ambiguous, numbers_of(listed)))[:1]:
            yield (
                f'{key}: {number} is the position of client "{names[number]}"; for the client of the name {number}, '
                "put it in quotes"
            )


def number_clients(config: Config, names: Sequence[str]) -> Config:
    """`config` with the numbers of listed clients in place of their `names`. Raises `ConfigError` for other names."""
    numbers = {name: number for number, name in enumerate(names)}
    changes: dict[str, Any] = {}
    for section in ("corruption", "attack"):
        listed = getattr(config, section)
        for name in (client for client in listed.clients if isinstance(client, str) and client not in numbers):
            remedy = did_you_mean(nearest(name, names)) or f"; the clients are {', '.join(names[:MAX_SHOWN])}"
            remedy = remedy if names else "; these clients have numbers only"
            raise ConfigError(f"{section}.clients: unknown client {name!r}{remedy}")
        in_list = [numbers.get(client, client) for client in listed.clients]
        clients, kind = sort_clients(in_list, f"{section}.kind", listed.kind)
        changes |= {section: replace(listed, clients=clients, kind=kind)} if clients != listed.clients else {}
    return replace(config, **changes) if changes else config


def sort_clients(clients: Sequence[int | str], key: str, kind: str) -> tuple[tuple[int | str, ...], str]:
    """The listed clients sorted, numbers first; and of several kinds under `key`, one each in turn, those in order."""
    kinds = list(islice(cycle(split_names(key, kind)), len(clients)))
    pairs = sorted(zip(clients, kinds, strict=True), key=lambda pair: (isinstance(pair[0], str), pair[0]))
    in_order = [kind for _, kind in pairs]
    return tuple(client for client, _ in pairs), kind if in_order == kinds else "+".join(in_order)


def numbers_of(clients: Sequence[int | str]) -> tuple[int, ...]:
    """The listed clients by number; those by name have got theirs by `number_clients`."""
    return tuple(client for client in clients if isinstance(client, int))


def check_clients(config: Config, num_clients: int) -> None:
    """Raises `ConfigError` if the cohort or the listed clients exceed `num_clients`, or if one is listed twice.

    Names are left to `number_clients`, which needs the data.
    """
    size, width, corruption = config.server.cohort_size, config.engine.client_width, config.corruption
    if size > num_clients:
        raise ConfigError(f"server.cohort_size: must be at most the number of clients ({num_clients}), got {size}")
    for key, ids in (("corruption.clients", corruption.clients), ("attack.clients", config.attack.clients)):
        if (largest := max(numbers_of(ids), default=0)) >= num_clients:
            raise ConfigError(f"{key}: must be numbers from 0 to {num_clients - 1}, or names in quotes, got {largest}")
        if len(set(ids)) < len(ids):
            raise ConfigError(f"{key}: must be different clients, got {next(i for i in ids if ids.count(i) > 1)} twice")
    if corruption.kind == "exclude" and num_corrupted(config, num_clients) == num_clients:
        key, remedy = ("clients", "leave some out") if corruption.clients else ("fraction", "lower it")
        raise ConfigError(f"corruption.{key}: must leave clients that are not excluded, got all; {remedy}")
    if width != "auto" and width > size:
        raise ConfigError(f"engine.client_width: must be at most server.cohort_size ({size}), got {width}")


def share_of(number: int, fraction: float) -> float:
    """`fraction` of `number`, without the error of floats: 0.29 x 100 is 28.999999999999996."""
    return round(fraction * number, 5)


def corrupted_share(config: Config, num_clients: int) -> float:
    """The share of the clients that is corrupted, as configured."""
    return len(config.corruption.clients) / num_clients or config.corruption.fraction


def num_corrupted(config: Config, num_clients: int) -> int:
    """The number of corrupted clients among `num_clients`."""
    share = share_of(num_clients, config.corruption.fraction)
    return len(config.corruption.clients) or (round(share) if config.corruption.rounding == "nearest" else int(share))


def num_malicious(config: Config, num_clients: int) -> int:
    """The number of malicious clients among `num_clients`."""
    if not config.has_malicious_set:
        return num_corrupted(config, num_clients)
    return len(config.attack.clients) or round(share_of(num_clients, config.attack.fraction or 0.0))


def configured_f(config: Config, field: Field) -> int:
    """The f that `server.num_byzantine`, which is set, gives to the setting `field` of a rule or a pre-aggregator.

    "corrupted" and "malicious" give that share of a cohort, rounded up, but at most what the rule's limits allow for K
    clients; pre-aggregators that merge clients, such as bucketing, leave fewer rows. Raises `ConfigError` if the share
    is not known, since natural clients are counted when the data are loaded.
    """
    f = config.server.num_byzantine
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
    number = math.ceil(share_of(size, share))
    return min([number, *(max(limit.largest(size), 0) for limit in field.limits if limit.is_required)])


def assumed_f(config: Config, num_valid: np.ndarray) -> np.ndarray | None:
    """The f of rounds in which `num_valid` [...] clients answered; None if no rule or pre-aggregator takes an f.

    It is the setting or, by default, (n - 3) // 2 (of the whole cohort if the setting is static), but at most what n
    clients allow (docs/rules.md), and the smallest if several components take an f. n counts all clients, also those
    that a pre-aggregator merges.
    """
    values, counts = dict(config.settings), []
    for factory in factories(config):
        if factory.key not in ("server.aggregator", "server.pre_aggregators"):
            continue
        for field in (field for field in settings_of(factory) if is_byzantine_count(field.name)):
            setting = values[field.name]
            n = num_valid if field.is_traced else np.full_like(num_valid, config.server.cohort_size)
            f = (n - 3) // 2 if setting is None else np.full_like(num_valid, setting)
            largest = [limit.largest(num_valid) for limit in field.limits if limit.is_required]
            counts.append(np.maximum(np.min([f, *largest], axis=0), 0))
    return np.min(counts, axis=0) if counts else None
