"""What a user can mend: the command line shows these as one line, without a traceback."""


class FedsimError(Exception):
    """Any error whose message, always one line, says what is wrong and how to mend it."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


class ConfigError(FedsimError):
    """A configuration that cannot be run."""


class OverrideError(ConfigError):
    """A configuration in which the value of an override cannot be."""


class DataError(FedsimError):
    """Data that cannot be used."""


class RunFolderError(FedsimError):
    """A run folder that cannot be read or written."""
