"""No corruption; who is corrupted is marked all the same, for attacks."""

from fedsim.core.types import Corruption


def none() -> Corruption:
    """Leaves every example as it is."""
    return Corruption(lambda key, data, corrupted, spec: data)
