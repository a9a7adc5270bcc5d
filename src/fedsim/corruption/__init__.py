"""Corruptions of clients' training data, one per file: the paper's ("Experimental Setup"), label noise and backdoors.

A `fedsim.core.contracts.Corruption` is a pure function `apply(key, data, corrupted [N], spec) -> data`, called on the
device once per run, before its first round. It declares the fields of `ClientData` that it changes, and validates
whether it applies to a kind of data. Test sets are never changed; a backdoor has a `trigger` that is applied to test
examples to measure its success. `fedsim.testing.check_corruption` checks a corruption against this contract.
"""

from fedsim.core.factories import check_factories
from fedsim.corruption.backdoor import backdoor
from fedsim.corruption.collusion import collusion
from fedsim.corruption.exclude import exclude
from fedsim.corruption.flipping import flipping
from fedsim.corruption.localized import localized
from fedsim.corruption.noisy import noisy
from fedsim.corruption.none import none
from fedsim.corruption.pairflip import pairflip
from fedsim.corruption.shift import shift
from fedsim.corruption.shuffling import shuffling
from fedsim.corruption.symmetric import symmetric
from fedsim.corruption.targeted import targeted

__all__ = [
    "backdoor",
    "collusion",
    "exclude",
    "flipping",
    "localized",
    "noisy",
    "none",
    "pairflip",
    "shift",
    "shuffling",
    "symmetric",
    "targeted",
]

check_factories(globals())
