"""The random keys of a run. Add new ones at the end of a tuple: the keys before them stay as they are."""

from typing import NamedTuple

import jax

from fedsim.core.types import Array


class InitialKeys(NamedTuple):
    """The keys of a run before its first round."""

    params: Array
    rounds: Array
    report_attack: Array

    @classmethod
    def of(cls, key: Array) -> "InitialKeys":
        """The keys of the run with `key`."""
        return cls(*jax.random.split(key, len(cls._fields)))


class RoundKeys(NamedTuple):
    """The keys of a round."""

    cohort: Array
    training: Array
    dropout: Array
    aggregator: Array
    report_attack: Array
    update_attack: Array
    pre_aggregators: Array
    root: Array

    @classmethod
    def of(cls, key: Array, round: Array) -> "RoundKeys":
        """The keys of the round after `round` [] rounds, from `InitialKeys.rounds`."""
        return cls(*jax.random.split(jax.random.fold_in(key, round), len(cls._fields)))
