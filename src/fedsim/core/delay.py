"""Corruption in some rounds only: in others clients train on clean data and the attack does nothing."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsim.core.settings import MAX_INT
from fedsim.core.types import Array, ClientData, PyTree

EXAMPLE_FIELDS = ("x", "y")  # have a row for each example; the others have one for each client


class DelayedCorruption(NamedTuple):
    """The clients' data of which some rounds have no corruption; unchanged fields are held once."""

    clean: ClientData
    """The data without corruption."""
    changed: dict[str, Array]
    """The fields that differ with it, by name."""
    start: Array
    """[] int32, the first round (from 1) with corruption; 0 also corrupts the losses before the first round."""
    end: Array | int = MAX_INT
    """[] int32, the last one."""

    def is_active(self, number: Array | int) -> Array:
        """Whether there is corruption [] in the round `number`, from 1; 0: before the first round."""
        return (self.start <= number) & (number <= self.end)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SwitchedArray:
    """Reads rows of one of two arrays; selects only the rows that are read, never the whole."""

    clean: Array
    """[M, ...]."""
    corrupted: Array
    """[M, ...]."""
    active: Array
    """[] bool, whether to read `corrupted`."""

    def __getitem__(self, index: Any) -> Array:
        return jnp.where(self.active, self.corrupted[index], self.clean[index])


def current_data(data: ClientData | DelayedCorruption, number: Array | int) -> ClientData:
    """The clients' data in the round `number` [], from 1; 0: before the first round.

    Data without a delay are returned as they are.
    """
    if isinstance(data, ClientData):
        return data
    active = data.is_active(number)

    def select(name: str, corrupted: Array) -> Any:
        clean = getattr(data.clean, name)
        clean = jnp.zeros_like(corrupted) if clean is None else clean  # then no client is malicious
        is_by_example = name in EXAMPLE_FIELDS
        return SwitchedArray(clean, corrupted, active) if is_by_example else jnp.where(active, corrupted, clean)

    return data.clean._replace(**{name: select(name, corrupted) for name, corrupted in data.changed.items()})


def next_attack_state(data: ClientData | DelayedCorruption, number: Array | int, new: PyTree, old: PyTree) -> PyTree:
    """The attack's state after the round `number`: `new`, but `old` in rounds without corruption."""
    if isinstance(data, ClientData):
        return new
    return jax.tree.map(partial(jnp.where, data.is_active(number)), new, old)
