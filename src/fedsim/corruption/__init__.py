"""Corruptions of clients' training data: the paper's ("Experimental Setup"), label noise and backdoors.

A `fedsim.Corruption` is a pure function `apply(data, corrupted [N], spec, key) -> data`, called on the
device once per run, before its first round. It declares the fields of `ClientData` that it changes, and validates
whether it applies to a kind of data. Test sets are never changed; what aims at a target class has a `trigger` that is
applied to test examples to measure its success, and labels that depend on the model are chosen by a changed task.
`fedsim.testing.check_corruption` checks a corruption against this contract.
"""

from fedsim.corruption.none import none as none
from fedsim.corruption.shuffling import shuffling as shuffling
from fedsim.corruption.flipping import flipping as flipping
from fedsim.corruption.noisy import noisy as noisy
from fedsim.corruption.shift import shift as shift
from fedsim.corruption.flipping import collusion as collusion
from fedsim.corruption.exclude import exclude as exclude
from fedsim.corruption.label_noise import symmetric as symmetric
from fedsim.corruption.label_noise import pairflip as pairflip
from fedsim.corruption.targeted import targeted as targeted
from fedsim.corruption.furthest_flipping import furthest_flipping as furthest_flipping
from fedsim.corruption.label_noise import localized as localized
from fedsim.corruption.backdoor import backdoor as backdoor
from fedsim.core.corrupt import *  # noqa: F403
from fedsim.core.draws import draw_rows, split_rows  # noqa: F401
from fedsim.core.factories import check_factories

check_factories(globals())
