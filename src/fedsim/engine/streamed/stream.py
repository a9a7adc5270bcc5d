"""Client data that stay on the host: a thread gathers the examples of the next cohorts while the devices compute.

A cohort depends on the run's key, the round and the clients' numbers of examples only, so the host knows it ahead. The
examples of a segment's cohorts are copied into a buffer of fixed size, and `offsets` point into it. Client ids, keys
and states stay as they are, so the rows are those of a run whose data are on the devices, bit for bit.
"""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from fedsim.core.types import Array, ClientData
from fedsim.engine import build, processes
from fedsim.engine.families import Group
from fedsim.engine.inputs import RunInputs, SharedInputs, batch_positions, changed_fields
from fedsim.engine.layout import Layout
from fedsim.engine.streamed.corrupted import corrupt_buffers, corrupt_labels

T = TypeVar("T")


class Segment(NamedTuple):
    """Rounds of a batch of runs, whose inputs are on the devices."""

    num_rounds: int
    """Rounds that can be computed with these inputs."""
    shared: SharedInputs
    """With the examples of `client_ids`."""
    runs: RunInputs
    """The runs [B]."""
    client_ids: Sequence[np.ndarray]
    """The clients whose examples are there, in ascending order, for each group of devices."""


class ClientStream:
    """The examples of a group's cohorts, gathered on the host for the devices.

    Devices that compute the same runs have a buffer of `layout.buffer_examples` examples. `shared` and `batches` are
    the other inputs of the group's runs, on the devices; `by_run` is how the batches lie there. Of several processes,
    each gathers what its devices need; `local_batches` are the batches on its own host or device.
    """

    def __init__(
        self,
        group: Group,
        shared: SharedInputs,
        batches: Sequence[RunInputs],
        local_batches: Sequence[RunInputs],
        by_run: Sharding,
    ) -> None:
        configs, dataset, layout, max_rounds = group.configs, group.dataset, group.layout, group.max_rounds
        simulation = build.simulation(configs[0], dataset, layout)
        self._configs, self._layout, self._max_rounds, self._by_run = configs, layout, max_rounds, by_run
        self._spec, self.num_clients, self._shared, self._batches = dataset.spec, dataset.num_clients, shared, batches
        data, changed = dataset.train, changed_fields(configs)
        self.labels = corrupt_labels(configs, data, dataset.spec) if "y" in changed else None
        """The labels [M] of each run, on the host; None if none are corrupted."""
        self._is_noisy = "x" in changed
        self._x, self._y = np.asarray(data.x), np.asarray(data.y)
        self._sizes, self._offsets = np.asarray(data.num_examples), np.asarray(data.offsets)
        self._local_batches, self._is_local = local_batches, _local_parts(by_run, layout.run_devices)
        tile = lambda a: processes.put(np.tile(np.asarray(a), layout.run_devices), by_run)
        self._num_examples, self._benign = tile(self._sizes), tile(data.corrupted)

        @jax.jit
        def draw_cohorts(runs: RunInputs, num_examples: Array, start: Array) -> Array:
            clean = SharedInputs(data._replace(num_examples=num_examples), frozen=())
            draw = lambda run: simulation.cohorts(run.key, run.data(clean), start + jnp.arange(max_rounds))
            return jax.vmap(draw, out_axes=1)(runs)

        self._draw_cohorts = draw_cohorts

    def clients_before(self, batch: int, round_: int) -> np.ndarray:
        """The clients, in ascending order, that train in any run of a batch before `round_` rounds are completed."""
        starts = range(0, round_, self._max_rounds)
        cohorts = (self._cohorts(batch, start)[: round_ - start] for start in starts)
        return np.unique(np.concatenate([np.zeros(0, np.int32), *map(np.unique, cohorts)]))

    def segments(self, rounds: range) -> Iterator[Segment]:
        """The `rounds` (0: the first one): for each chunk and batch one or more segments."""
        for start in rounds[:: self._max_rounds]:
            for batch in range(len(self._batches)):
                cohorts = self._cohorts(batch, start)[: rounds.stop - start]
                while num_rounds := len(cohorts):
                    clients = self._by_device(cohorts)
                    while num_rounds > 1 and not all(map(self._fits, clients)):
                        num_rounds = -(-num_rounds // 2)
                        clients = self._by_device(cohorts[:num_rounds])
                    yield self._gather(batch, num_rounds, clients)
                    cohorts = cohorts[num_rounds:]

    def portions(self, batch: int) -> Iterator[tuple[np.ndarray, Segment]]:
        """All clients, largest first, in portions whose losses are computed together: their ids [P], and examples.

        The last client fills up the last portion.
        """
        order = np.argsort(-self._sizes, kind="stable").astype(np.int32)
        size = portion_size(self._sizes, self._layout)
        for start in range(0, len(order), size):
            client_ids = order[np.minimum(np.arange(start, start + size), len(order) - 1)]
            yield client_ids, self._gather(batch, 0, [np.unique(client_ids)] * self._layout.run_devices)

    def _cohorts(self, batch: int, start: int) -> np.ndarray:
        """The client ids [max_rounds, B, K] of the cohorts of the rounds after `start` rounds."""
        return np.asarray(self._draw_cohorts(self._local_batches[batch], self._sizes, np.int32(start)))

    def _by_device(self, cohorts: np.ndarray) -> list[np.ndarray]:
        """The clients of `cohorts` [T, B, K], in ascending order, for the devices that compute the same runs."""
        return [np.unique(client_ids) for client_ids in np.split(cohorts, self._layout.run_devices, axis=1)]

    def _fits(self, client_ids: np.ndarray) -> bool:
        """Whether a buffer holds these clients."""
        max_examples, max_clients = self._layout.buffer_examples, self._layout.buffer_clients or self.num_clients
        return len(client_ids) <= max_clients and self._sizes[client_ids].sum() <= max_examples

    def _gather(self, batch: int, num_rounds: int, client_ids: Sequence[np.ndarray]) -> Segment:
        """The inputs of `num_rounds` rounds with the examples of `client_ids`, of each buffer."""
        local_ids = [ids if is_local else ids[:0] for ids, is_local in zip(client_ids, self._is_local, strict=True)]
        positions = [self._positions(ids) for ids in local_ids]
        x, y = self._take(self._x, positions), self._take(self._y, positions)
        offsets = np.concatenate([self._by_client(ids, self._starts(ids)) for ids in local_ids])
        put = partial(processes.put, sharding=self._by_run)
        data = ClientData(put(x), put(y), put(offsets), self._num_examples, self._benign)
        rows = None
        if self._layout.buffer_clients:
            rows = put(np.concatenate([self._by_client(ids, np.arange(len(ids))) for ids in local_ids]))
        runs = self._batches[batch]
        runs = runs._replace(changes=runs.changes | put(self._corrupt(batch, local_ids, positions, x)))
        return Segment(num_rounds, self._shared._replace(train=data, state_rows=rows), runs, client_ids)

    def _corrupt(
        self, batch: int, client_ids: Sequence[np.ndarray], positions: Sequence[np.ndarray], x: np.ndarray
    ) -> dict[str, Array | np.ndarray]:
        """The labels and inputs [B, C, ...] that are corrupted, of the examples at `positions` of each buffer."""
        runs = self._local_batches[batch]
        changes: dict[str, Array | np.ndarray] = {}
        size, num_buffers = len(runs.key), len(positions)
        members = batch_positions(len(self._configs), size)[batch]
        if self.labels is not None:
            by_buffer = zip(np.split(members, num_buffers), positions, strict=True)
            labels = [self._take(self.labels[run], [rows]) for runs_, rows in by_buffer for run in runs_]
            changes["y"] = np.stack(labels)
        if self._is_noisy:
            owners = [np.repeat(ids, self._sizes[ids]) for ids in client_ids]
            pad = lambda a, value: np.pad(a, (0, self._layout.buffer_examples - len(a)), constant_values=value)
            changes["x"] = corrupt_buffers(
                [self._configs[run] for run in members],
                x.reshape(num_buffers, -1, *x.shape[1:]),
                np.stack([pad(a, 0) for a in positions]).astype(np.int32),
                np.stack([pad(a, self.num_clients) for a in owners]).astype(np.int32),
                runs.changes["corrupted"],
                self._spec,
            )
        return changes

    def _starts(self, client_ids: np.ndarray) -> np.ndarray:
        """The positions in a buffer of the first examples of `client_ids`."""
        sizes = self._sizes[client_ids]
        return np.cumsum(sizes) - sizes

    def _positions(self, client_ids: np.ndarray) -> np.ndarray:
        """The positions [m] of the examples of `client_ids` among those of all clients."""
        sizes = self._sizes[client_ids]
        return np.repeat(self._offsets[client_ids] - self._starts(client_ids), sizes) + np.arange(sizes.sum())

    def _by_client(self, client_ids: np.ndarray, values: np.ndarray) -> np.ndarray:
        """An array [N] int32 with `values` of `client_ids`, and zeros of all others."""
        array = np.zeros(self.num_clients, np.int32)
        array[client_ids] = values
        return array

    def _take(self, array: np.ndarray, positions: Sequence[np.ndarray]) -> np.ndarray:
        """A buffer for each of `positions`, one after another: these rows of `array`, then zeros."""
        buffers = np.zeros((len(positions), self._layout.buffer_examples, *array.shape[1:]), array.dtype)
        for buffer, rows in zip(buffers, positions, strict=True):
            np.take(array, rows, axis=0, out=buffer[: len(rows)], mode="clip")
        return buffers.reshape(-1, *array.shape[1:])


def portion_size(num_examples: np.ndarray, layout: Layout) -> int:
    """The clients P whose losses are computed together: as many whole waves as the buffer holds, or part of one."""
    largest_first = -np.sort(-num_examples)
    num_fitting = int(np.searchsorted(np.cumsum(largest_first), layout.buffer_examples, side="right"))
    wave = layout.client_width * layout.client_devices
    return min(num_fitting // wave * wave or num_fitting, len(num_examples))


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Yields the `items`; a thread prepares the next one while the caller works on the last one."""
    with ThreadPoolExecutor(1) as executor:
        upcoming = executor.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = executor.submit(next, items, None)
            yield item


def _local_parts(by_run: Sharding, num_parts: int) -> list[bool]:
    """Which of the `num_parts` parts of batches lie on devices of this process."""
    slices = by_run.addressable_devices_indices_map((num_parts,)).values()
    here = {part[0].indices(num_parts)[0] for part in slices if part}
    return [part in here for part in range(num_parts)]
