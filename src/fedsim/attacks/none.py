"""No attack."""

from fedsim.core.contracts import Attack


def none() -> Attack:
    """All clients report the truth."""
    return Attack()
