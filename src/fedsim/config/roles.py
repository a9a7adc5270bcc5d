"""What is derived from the roles of keys (a stub that another change replaces)."""

import hashlib

import msgspec

from fedsim.config.components import flatten
from fedsim.config.schema import Config

_NOT = ("name", "data.placement", "engine.client_width", "engine.run_width", "engine.client_devices")


def run_id(config: Config) -> str:
    """The address of a run: 16 hexadecimal digits that change with every key that determines its numbers."""
    keys = {key: value for key, value in flatten(config).items() if key not in _NOT and not key.startswith("record.")}
    schedules = {config.client.schedule, config.server.schedule}
    if schedules <= {"constant", "step", "exponential"} and config.server.num_rounds % config.server.eval_every == 0:
        del keys["server.num_rounds"]
    return hashlib.blake2b(msgspec.json.encode(keys, order="sorted"), digest_size=8).hexdigest()
