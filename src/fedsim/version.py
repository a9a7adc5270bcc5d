"""The version of fedsim."""

__version__ = "0.4.0"
