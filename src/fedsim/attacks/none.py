"""No attack: everybody reports the truth."""

from fedsim.core.types import Attack


def none() -> Attack:
    """Everybody is honest."""
    return Attack()
