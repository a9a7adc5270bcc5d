"""Functions of a cohort's updates, pytrees [K, ...], for rules, attacks and corruptions of any model."""

from fedsim.core.trees import *  # noqa: F403
