"""Errors that users can fix. The command line prints them as one line, without a traceback."""


class FedsimError(Exception):
    """Base class. The message is one line, `KEY: must be ..., got VALUE; remedy` where a key is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


def describe_os_error(error: OSError) -> str:
    """The file and what the system says of it, such as "runs/a: Read-only file system", without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


class ConfigError(FedsimError):
    """A configuration that cannot be run."""


class OverrideError(ConfigError):
    """A wrong value of an override, as opposed to one in the configuration file."""


class DataError(FedsimError):
    """Data that cannot be used."""


class RunFolderError(FedsimError):
    """A run folder that cannot be read or written."""


class ProcessError(FedsimError):
    """A process of a run that has ended, or cannot be reached."""
