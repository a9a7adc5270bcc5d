"""Which runs of a group still train: those that `server.patience` and `server.stop_diverged` have not stopped."""

import numpy as np
import polars as pl

from fedsim.config.sections import ServerConfig
from fedsim.runs.schemas import Columns


class Stopping:
    """The runs of a group that still train, after each evaluation."""

    def __init__(self, server: ServerConfig, num_runs: int) -> None:
        self._patience, self._stop_diverged = server.patience, server.stop_diverged
        self.is_active = np.ones(num_runs, bool)
        """[S] whether a run still trains; changed in place."""
        self._best, self._waited = np.full(num_runs, -np.inf), np.zeros(num_runs, int)

    def observe(self, rounds: Columns, runs: np.ndarray) -> None:
        """Stops runs, of those at the positions `runs`, by the rows [len(runs)] of an evaluation.

        Better is a higher validation accuracy, or a lower loss where there is no accuracy.
        """
        accuracy, loss = (np.asarray(rounds[f"validation_{name}"], float) for name in ("accuracy", "loss"))
        value = np.where(np.isfinite(accuracy), accuracy, -loss)
        is_better = value > self._best[runs]
        self._best[runs] = np.where(is_better, value, self._best[runs])
        self._waited[runs] = np.where(is_better, 0, self._waited[runs] + 1)
        if self._patience:
            self.is_active[runs] &= self._waited[runs] < self._patience
        if self._stop_diverged:
            self.is_active[runs] &= ~np.asarray(rounds["diverged"])

    def replay(self, rounds: pl.DataFrame) -> None:
        """Observes stored rows of all evaluations; a run has none after it was stopped."""
        for _, rows in rounds.sort("round", "run").group_by("round", maintain_order=True):
            self.observe(rows.to_dict(as_series=False), rows["run"].to_numpy())
