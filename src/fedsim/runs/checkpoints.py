"""Checkpoints of a group's runs, by Orbax: only the latest is kept, and it is written while the next rounds run."""

import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedsim.core.types import SimulationState
from fedsim.errors import RunFolderError
from fedsim.runs.files import has_checkpoint, write_error


class Checkpoints(AbstractContextManager["Checkpoints"]):
    """The states of a group's runs, batch by batch, in the folder `path`, at least `seconds` apart.

    A context manager, which waits at its end until everything is written. Orbax, which takes seconds to import, is
    first used for a checkpoint; short groups have none. Several processes each write their part: all of them make the
    same calls, and `decide` gives all of them the value of process 0. Methods raise `RunFolderError` if files are
    broken or cannot be written.
    """

    def __init__(
        self, path: Path, seconds: float, decide: Callable[[Callable[[], bool]], bool] = lambda choose: choose()
    ) -> None:
        self._path, self._seconds, self._last = path, seconds, time.monotonic()
        self._decide = decide

    @cached_property
    def _manager(self) -> Any:
        ocp = import_orbax()
        logging.getLogger("absl").addFilter(_is_not_of_orbax)
        if getattr(sys.unraisablehook, "func", None) is not _silence_closed_loops:
            sys.unraisablehook = partial(_silence_closed_loops, sys.unraisablehook)
        options = ocp.CheckpointManagerOptions(max_to_keep=1, create=True, cleanup_tmp_directories=True)
        try:
            return ocp.CheckpointManager(self._path.absolute(), options=options)
        except (OSError, ValueError) as error:
            raise write_error(self._path, error) from None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if "_manager" not in vars(self) or (error is not None and jax.process_count() > 1):
            return  # of several processes, the others may have ended, and closing waits for them
        try:
            self._manager.close()
        except (OSError, ValueError) as failure:
            if error is None:
                raise write_error(self._path, failure) from None

    def latest_round(self) -> int | None:
        """The round of the checkpoint; None if there is none."""
        return self._manager.latest_step() if has_checkpoint(self._path) else None

    def delete(self) -> None:
        """Deletes all checkpoints: Orbax saves none of a round before one that it has."""
        for step in self._manager.all_steps() if has_checkpoint(self._path) else ():
            self._manager.delete(step)

    def is_due(self) -> bool:
        """Whether `seconds` have passed since the last checkpoint, or the start."""
        return self._decide(lambda: time.monotonic() - self._last >= self._seconds)

    def restore(self, round_: int, like: Sequence[SimulationState]) -> list[SimulationState]:
        """The batches' states after `round_`, with the shapes and shardings of `like`; NumPy arrays stay NumPy."""
        ocp = import_orbax()
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

        def place(a: Any) -> Any:
            is_on_host = isinstance(a, np.ndarray)
            return a if is_on_host else jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding or here)

        def template(states: SimulationState) -> SimulationState:
            key_data = jax.eval_shape(jax.random.key_data, states.key)
            key: Any = jax.ShapeDtypeStruct(key_data.shape, key_data.dtype, sharding=states.key.sharding)
            return jax.tree.map(place, states._replace(key=key))

        try:
            templates = list(map(template, like))
            batches = self._manager.restore(round_, args=ocp.args.StandardRestore(_without_empty(templates)))
        except (OSError, ValueError, KeyError) as error:
            raise RunFolderError(f"{self._path}: broken: {error}; delete it") from None
        fill = lambda a, saved: np.zeros(a.shape, a.dtype) if saved is None else saved
        batches = jax.tree.map(fill, templates, batches)
        return [states._replace(key=jax.random.wrap_key_data(states.key)) for states in batches]

    def save(self, round_: int, batches: Sequence[SimulationState]) -> None:
        """Starts to write the batches' states, unless they are saved already."""
        ocp = import_orbax()
        if self._manager.latest_step() == round_:
            return
        plain = [states._replace(key=jax.random.key_data(states.key)) for states in batches]
        try:
            self._manager.save(round_, args=ocp.args.StandardSave(_without_empty(plain)))
        except (OSError, ValueError) as error:
            raise write_error(self._path, error) from None
        self._last = time.monotonic()


def _without_empty(tree: Any) -> Any:
    """The tree with None in the place of arrays without elements, which Orbax does not save."""
    return jax.tree.map(lambda a: a if math.prod(a.shape) else None, tree)


def import_orbax() -> Any:
    """`orbax.checkpoint`, which takes seconds; without the handler of all messages that absl adds."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    import orbax.checkpoint as ocp

    root.handlers[:] = handlers
    root.setLevel(level)
    return ocp


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    """Orbax logs the errors of its threads with tracebacks; its calls raise them as well."""
    return "orbax" not in record.pathname


def _silence_closed_loops(show: Callable[[Any], Any], unraisable: Any) -> None:
    """Drops what writes that end after a failed checkpoint find: that its event loop is closed."""
    if not (isinstance(unraisable.exc_value, RuntimeError) and "loop is closed" in str(unraisable.exc_value)):
        show(unraisable)
