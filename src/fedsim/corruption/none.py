"""No corruption."""

from fedsim.core.corrupt import Corruption


def none() -> Corruption:
    """Leaves the data clean; corrupted clients are marked nevertheless, for attacks."""
    return Corruption(lambda data, corrupted, spec, key: data)
