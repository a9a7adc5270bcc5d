"""Checkpoints of a group's runs, by Orbax: only the latest is kept, and it is written while the next rounds run."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from fedsim.core.types import SimulationState
from fedsim.errors import RunFolderError


class Checkpoints:
    """The states of a group's runs, batch by batch, in the folder `path`, at least `seconds` apart.

    A context manager, which waits at its end until everything is written. Several processes each write their part: all
    of them make the same calls, and `decide` gives all of them the value of process 0. Methods raise `RunFolderError`
    if files are broken or cannot be written.
    """

    def __init__(
        self, path: Path, seconds: float, decide: Callable[[Callable[[], bool]], bool] = lambda choose: choose()
    ) -> None:
        import orbax.checkpoint as ocp

        self._ocp: Any = ocp
        self._path, self._seconds, self._last = path, seconds, time.monotonic()
        self._decide = decide
        options = ocp.CheckpointManagerOptions(max_to_keep=1, create=True, cleanup_tmp_directories=True)
        try:
            self._manager = ocp.CheckpointManager(path.absolute(), options=options)
        except (OSError, ValueError) as error:
            raise self._write_error(error) from None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and jax.process_count() > 1:
            return  # the others may have ended, and closing waits for them
        try:
            self._manager.close()
        except (OSError, ValueError) as failure:
            if error is None:
                raise self._write_error(failure) from None

    def latest_round(self) -> int | None:
        """The round of the checkpoint; None if there is none."""
        return self._manager.latest_step()

    def restore(self, round_: int, like: Sequence[SimulationState]) -> list[SimulationState]:
        """The batches' states after `round_`, with the shapes and shardings of `like`."""
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        place = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding or here)

        def template(states: SimulationState) -> SimulationState:
            key_data = jax.eval_shape(jax.random.key_data, states.key)
            key: Any = jax.ShapeDtypeStruct(key_data.shape, key_data.dtype, sharding=states.key.sharding)
            return jax.tree.map(place, states._replace(key=key))

        try:
            args = self._ocp.args.StandardRestore(list(map(template, like)))
            batches = self._manager.restore(round_, args=args)
        except (OSError, ValueError, KeyError) as error:
            raise RunFolderError(f"{self._path}: broken: {error}; delete it") from None
        return [states._replace(key=jax.random.wrap_key_data(states.key)) for states in batches]

    def save(self, round_: int, batches: Sequence[SimulationState], now: bool = False) -> None:
        """Starts to write the batches' states, unless they are saved already.

        Without `now`, also unless less than `seconds` have passed.
        """
        is_due = now or self._decide(lambda: time.monotonic() - self._last >= self._seconds)
        if not is_due or self.latest_round() == round_:
            return
        plain = [states._replace(key=jax.random.key_data(states.key)) for states in batches]
        try:
            self._manager.save(round_, args=self._ocp.args.StandardSave(plain))
        except (OSError, ValueError) as error:
            raise self._write_error(error) from None
        self._last = time.monotonic()

    def _write_error(self, error: Exception) -> RunFolderError:
        return RunFolderError(f"{self._path}: cannot be written: {error}")
