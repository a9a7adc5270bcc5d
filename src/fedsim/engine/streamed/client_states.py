"""States that an algorithm keeps for each client, on the host, while a device has those of the next cohorts only."""

import tempfile
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from fedsim.core.types import PyTree


class ClientStates:
    """The states [B, N, ...] of a batch of runs in a temporary file. Only pages in use are in memory.

    `shapes` are those of the states [B, U, ...] that a program gets. The runs are spread evenly over devices, which
    have the states of other clients: `client_ids` are lists of at most U ids for each device.
    """

    def __init__(self, shapes: PyTree, num_clients: int) -> None:
        def allocate(a: jax.ShapeDtypeStruct) -> np.ndarray:
            with tempfile.TemporaryFile() as file:
                return np.memmap(file, a.dtype, "w+", shape=(a.shape[0], num_clients, *a.shape[2:]))

        self._shapes, self._states = shapes, jax.tree.map(allocate, shapes)
        self._has_trained = np.zeros(num_clients, bool)

    def start(self, initial: PyTree) -> None:
        """All clients get the `initial` [B, U, ...] states, which are all equal. Zeros take no space."""
        for states, rows in _arrays(self._states, initial):
            if rows[:, 0].any():
                states[:] = rows[:, :1]

    def load(self, client_ids: Sequence[np.ndarray]) -> PyTree:
        """The states [B, U, ...] of `client_ids`, with zeros after them."""
        states = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self._shapes)
        for ids, of_device, kept in _by_device(client_ids, states, self._states):
            of_device[:, : len(ids)] = kept[:, ids]
        return states

    def store(self, client_ids: Sequence[np.ndarray], states: PyTree) -> None:
        """Keeps the states [B, U, ...] of `client_ids`, which have trained."""
        for ids, of_device, kept in _by_device(client_ids, states, self._states):
            kept[:, ids] = of_device[:, : len(ids)]
        self._has_trained[np.concatenate(client_ids)] = True

    def save(self) -> PyTree:
        """The states [B, T, ...] of the clients that have trained, by ascending id."""
        return jax.tree.map(lambda states: states[:, self._has_trained], self._states)

    def saved_like(self, num_clients: int) -> PyTree:
        """Arrays like those of `save` for `num_clients` clients."""
        return jax.tree.map(lambda a: np.empty((a.shape[0], num_clients, *a.shape[2:]), a.dtype), self._shapes)

    def restore(self, client_ids: np.ndarray, saved: PyTree) -> None:
        """The inverse of `save`, for the `client_ids` [T] that had trained."""
        self._has_trained[client_ids] = True
        for states, rows in _arrays(self._states, saved):
            states[:, self._has_trained] = rows


def _arrays(*trees: PyTree) -> Iterator[tuple[np.ndarray, ...]]:
    """Tuples of an array of each of `trees`, whose structures are equal."""
    return zip(*map(jax.tree.leaves, trees), strict=True)


def _by_device(client_ids: Sequence[np.ndarray], *trees: PyTree) -> Iterator[tuple[np.ndarray, ...]]:
    """The ids of each device, and views of its runs in an array [B, ...] of each of `trees`, array by array."""
    for arrays in _arrays(*trees):
        yield from zip(client_ids, *(np.split(a, len(client_ids)) for a in arrays), strict=True)
