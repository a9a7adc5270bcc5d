"""States that an algorithm keeps for each client, on the host, while a device has those of the next cohorts only.

A thread reads the states of the next segment's clients while the devices compute the one before, and what a segment
leaves is written while they compute the next one. So what the thread has read may be out of date for clients of the
last two segments, whose states are kept in memory and replace it.
"""

import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeVar

import jax
import numpy as np

from fedsim.core.types import PyTree
from fedsim.engine import processes

T = TypeVar("T")


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
        self._computing: tuple[Sequence[np.ndarray], PyTree] | None = None
        """The clients of the last segment, and their states on the devices."""
        self._last: deque[tuple[Sequence[np.ndarray], PyTree]] = deque(maxlen=2)
        """Those of the segments before it, on the host."""
        self._is_written = True
        """Whether the last of these is in the file."""

    def start(self, initial: PyTree) -> None:
        """All clients get the `initial` [B, U, ...] states, which are all equal. Zeros take no space."""

        def fill(states: np.ndarray, initial: np.ndarray) -> None:
            if initial[:, 0].any():
                states[:] = initial[:, :1]

        jax.tree.map(fill, self._states, initial)

    def load(self, client_ids: Sequence[np.ndarray]) -> PyTree:
        """The states [B, U, ...] of `client_ids` in the file, with zeros after them; `update` makes them current.

        Another thread may call it as soon as the last segment but one is stored.
        """

        def gather(shape: jax.ShapeDtypeStruct, states: np.ndarray) -> np.ndarray:
            rows = np.empty(shape.shape, shape.dtype)
            for runs, ids in _by_device(len(rows), client_ids):
                rows[runs, : len(ids)] = states[runs, ids]
                rows[runs, len(ids) :] = 0
            return rows

        return jax.tree.map(gather, self._shapes, self._states)

    def update(self, client_ids: Sequence[np.ndarray], loaded: PyTree) -> None:
        """Puts what the last segments have left of `client_ids` into their `loaded` states."""
        self._receive()
        for last_ids, last_states in self._last:
            pairs = zip(last_ids, client_ids, strict=True)
            overlaps = [np.intersect1d(*pair, assume_unique=True, return_indices=True)[1:] for pair in pairs]
            for rows, last in zip(jax.tree.leaves(loaded), jax.tree.leaves(last_states), strict=True):
                for runs, (old, new) in _by_device(len(rows), overlaps):
                    rows[runs, new] = last[runs, old]

    def store(self, client_ids: Sequence[np.ndarray], states: PyTree) -> None:
        """Keeps the states [B, U, ...] of `client_ids`, which devices compute; writes those of the segment before."""
        self._write()
        self._computing = client_ids, states

    def _receive(self) -> None:
        """Waits for the last segment."""
        if self._computing is not None:
            client_ids, states = self._computing
            self._last.append((client_ids, processes.on_host(states)))
            self._computing, self._is_written = None, False

    def _write(self) -> None:
        """Writes the states that the last segment on the host has left."""
        if self._is_written:
            return
        client_ids, states = self._last[-1]

        def scatter(states: np.ndarray, rows: np.ndarray) -> None:
            for runs, ids in _by_device(len(rows), client_ids):
                states[runs, ids] = rows[runs, : len(ids)]

        jax.tree.map(scatter, self._states, states)
        self._has_trained[np.concatenate(client_ids)] = True
        self._is_written = True

    def save(self) -> PyTree:
        """The states [B, T, ...] of the clients that have trained, by ascending id."""
        self._receive()
        self._write()
        return jax.tree.map(lambda states: states[:, self._has_trained], self._states)

    def saved_like(self, num_clients: int) -> PyTree:
        """Arrays like those of `save` for `num_clients` clients."""
        return jax.tree.map(lambda a: np.empty((a.shape[0], num_clients, *a.shape[2:]), a.dtype), self._shapes)

    def restore(self, client_ids: np.ndarray, saved: PyTree) -> None:
        """The inverse of `save`, for the `client_ids` [T] that had trained."""
        self._has_trained[client_ids] = True

        def put(states: np.ndarray, saved: np.ndarray) -> None:
            states[:, self._has_trained] = saved

        jax.tree.map(put, self._states, saved)


def _by_device(num_runs: int, items: Sequence[T]) -> Iterator[tuple[slice, T]]:
    """The runs of each device, and its item."""
    size = num_runs // len(items)
    for device, item in enumerate(items):
        yield slice(device * size, (device + 1) * size), item
