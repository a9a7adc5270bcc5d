"""The version of fedsim."""

__version__ = "0.3.0"
