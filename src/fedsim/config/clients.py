"""Whether the data have clients of their own, how many are corrupted and malicious, and whether there are enough."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsim.config.schema import Config
from fedsim.errors import ConfigError

ROUNDING_ERROR = 1e-6  # of a fraction of the clients: 0.29 x 100 is 28.999999999999996
WITH_CLIENTS = ("femnist", "leaf", "shakespeare")  # data sets whose examples belong to clients
CLIENT_IDS = "client_ids.npy"  # in a folder or an .npz file of arrays


def has_clients(values: Mapping[str, Any]) -> bool:
    """Whether the examples of the run with `values` by dotted key belong to clients, as far as is known."""
    name = str(values.get("data.name", ""))
    if name == "arrays" and values.get("arrays.path"):
        path = Path(values["arrays.path"]).expanduser()
        if path.is_dir():
            return (path / CLIENT_IDS).exists()
        try:
            with zipfile.ZipFile(path) as file:
                return CLIENT_IDS in file.namelist()
        except (OSError, zipfile.BadZipFile):  # found when the data are loaded
            return False
    return name in WITH_CLIENTS or bool(values.get(f"{name.rpartition(':')[2]}.client"))


def check_clients(config: Config, num_clients: int) -> None:
    """Raises `ConfigError` if the cohort or the corrupted clients exceed `num_clients`."""
    size, width, corruption = config.server.cohort_size, config.engine.client_width, config.corruption
    if size > num_clients:
        raise ConfigError(f"server.cohort_size: must be at most the number of clients ({num_clients}), got {size}")
    if corruption.kind == "exclude" and num_corrupted(config, num_clients) == num_clients:
        raise ConfigError("corruption.fraction: must leave clients that are not excluded, got all; lower it")
    for key, ids in (("corruption.clients", corruption.clients), ("attack.clients", config.attack.clients)):
        if max(ids, default=0) >= num_clients:
            raise ConfigError(f"{key}: must be ids from 0 to {num_clients - 1}, got {max(ids)}")
    if width != "auto" and width > size:
        raise ConfigError(f"engine.client_width: must be at most server.cohort_size ({size}), got {width}")


def corrupted_share(config: Config, num_clients: int) -> float:
    """The share of the clients that is corrupted, as configured."""
    return len(config.corruption.clients) / num_clients or config.corruption.fraction


def num_corrupted(config: Config, num_clients: int) -> int:
    """The number of corrupted clients among `num_clients`."""
    share = config.corruption.fraction * num_clients
    whole = round(share) if config.corruption.rounding == "nearest" else int(share + ROUNDING_ERROR)
    return len(set(config.corruption.clients)) or whole


def num_malicious(config: Config, num_clients: int) -> int:
    """The number of malicious clients among `num_clients`."""
    if not config.has_malicious_set:
        return num_corrupted(config, num_clients)
    return len(set(config.attack.clients)) or round((config.attack.fraction or 0.0) * num_clients)
