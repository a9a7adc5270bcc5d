"""`fedsim run --distributed`: one run on several processes, on one machine or many."""

import argparse

from fedsim.errors import ConfigError

OPTIONS = ("coordinator", "num_processes", "process_id")
NAMES = "--coordinator, --num-processes and --process-id"


def is_requested(options: argparse.Namespace) -> bool:
    """Whether this process is one of several. Raises `ConfigError` if options are wrong or missing."""
    given = [getattr(options, name) is not None for name in OPTIONS]
    if not any(given):
        return bool(options.distributed)
    if not all(given):
        raise ConfigError(f"--coordinator: must be used with all of {NAMES}, or use --distributed alone")
    host, _, port = options.coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--coordinator: must be HOST:PORT, got {options.coordinator}")
    if options.num_processes < 1:
        raise ConfigError(f"--num-processes: must be an integer >= 1, got {options.num_processes}")
    if not 0 <= options.process_id < options.num_processes:
        number = options.num_processes - 1
        raise ConfigError(f"--process-id: must be an integer from 0 to {number}, got {options.process_id}")
    return True
