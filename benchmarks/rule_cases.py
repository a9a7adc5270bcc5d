"""fedsim's rules and pre-aggregators as `rules.py` measures them, and which peers have them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedsim import aggregators

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from rules_peer import radius, random_updates

__all__ = ["ALL", "CASES", "random_updates"]

ALL = ("byzfl", "byzpy")


class Case(NamedTuple):
    """A rule or a pre-aggregator."""

    make: Callable[[Any, int], Any]  # f, d -> Aggregator or PreAggregator
    is_rule: bool = True
    is_random: bool = False  # in fedsim or in the peer: results cannot be compared
    enumerates: bool = False  # subsets of K - f clients, with a static f
    peers: tuple[str, ...] = ALL


CASES = {
    "fedavg": Case(lambda f, d: aggregators.fedavg(), peers=("byzfl",)),
    "median": Case(lambda f, d: aggregators.median(), peers=("byzfl",)),  # ByzPy takes the lower of the middle two
    "trimmed_mean": Case(lambda f, d: aggregators.trimmed_mean(num_byzantine=f)),
    "meamed": Case(lambda f, d: aggregators.meamed(num_byzantine=f), peers=("byzfl",)),
    "krum": Case(lambda f, d: aggregators.krum(num_byzantine=f, neighbors="n-f-1")),
    "multi_krum": Case(lambda f, d: aggregators.multi_krum(num_byzantine=f, neighbors="n-f-1")),
    "bulyan": Case(lambda f, d: aggregators.bulyan(num_byzantine=f), peers=()),
    "rfa": Case(lambda f, d: aggregators.rfa(), peers=("byzfl",)),
    "dnc": Case(lambda f, d: aggregators.dnc(num_byzantine=f), peers=()),
    "cfl": Case(lambda f, d: aggregators.cfl(), peers=()),
    "centered_clipping": Case(lambda f, d: aggregators.centered_clipping(tau=radius(d))),
    "norm_clipping": Case(lambda f, d: aggregators.norm_clipping(threshold=radius(d)), peers=()),
    "caf": Case(lambda f, d: aggregators.caf(num_byzantine=f), is_random=True),
    "mda": Case(lambda f, d: aggregators.mda(num_byzantine=f), enumerates=True),
    "smea": Case(lambda f, d: aggregators.smea(num_byzantine=f), is_random=True, enumerates=True),
    "autogm": Case(lambda f, d: aggregators.autogm(), peers=()),
    "signguard": Case(lambda f, d: aggregators.signguard(), peers=()),
    "foolsgold": Case(lambda f, d: aggregators.foolsgold(), peers=()),
    "flame": Case(lambda f, d: aggregators.flame(), peers=()),
    "nnm": Case(lambda f, d: aggregators.nnm(num_byzantine=f), is_rule=False),
    "bucketing": Case(lambda f, d: aggregators.bucketing(size=2), is_rule=False, is_random=True),
    "clipping": Case(lambda f, d: aggregators.clipping(threshold=radius(d)), is_rule=False),
    "arc": Case(lambda f, d: aggregators.arc(num_byzantine=f), is_rule=False),
}
