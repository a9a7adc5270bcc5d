"""Artificial run folders of the paper's results."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim import report
from fedsim.config.components import flatten
from fedsim.config.resolve import schema
from fedsim.report.claims import Claim
from fedsim.report.results import Results
from tests.report.synthetic import write_folder

COUNTS, CORRUPTED = np.asarray([10, 20, 30, 40]), np.asarray([False, False, False, True])
ROW = dict[str, Any]
LAMS = {0.1: [1, 0, 0, 0], 1.0: [0.2, 0.3, 0.5, 0], 3.2: [0.3, 0.3, 0.2, 0.2], 10.0: [0.1, 0.2, 0.3, 0.4]}


def rule(name: str, kind: str = "none", share: float = 0.0, **keys) -> ROW:
    """Keys of a run."""
    return {"server.aggregator": name, "corruption.kind": kind, "corruption.fraction": share} | keys


def run(keys: ROW, accuracy: Sequence[float], clients: Iterable[ROW] = (), loss=None, weight: float = 0.0) -> ROW:
    """A run: its keys, test accuracies (percent, a round apart from round 0), and rows of clients."""
    return {"keys": keys, "accuracy": accuracy, "clients": list(clients), "loss": loss, "weight": weight}


def alphas(round_: int, alpha, losses=(), accuracy=(), num_examples=COUNTS, corrupted=CORRUPTED) -> list[ROW]:
    """Rows of all clients in an evaluated round."""
    or_none = lambda values, client: float(values[client]) if len(values) else None
    return [
        {
            "round": round_,
            "client_id": client,
            "num_examples": int(num_examples[client]),
            "loss": or_none(losses, client),
            "alpha": float(alpha[client]),
            "corrupted": bool(corrupted[client]),
            "test_accuracy": or_none(accuracy, client),
        }
        for client in range(len(num_examples))
    ]


def lambda_runs(accuracies: Sequence[float] = (40, 70, 60, 50)) -> list[ROW]:
    """ARFL over lambda, client 3 corrupted."""
    keys = rule("arfl", "shuffling", **{"corruption.clients": [3]})
    return [
        run(keys | {"arfl.lam": lam}, [10, accuracy], alphas(1, alpha))
        for (lam, alpha), accuracy in zip(LAMS.items(), accuracies, strict=True)
    ]


def read(path: Path, name: str, runs: Sequence[ROW]) -> Results:
    """Makes a folder of runs below `path` and reads it."""
    configs = [flatten(schema().resolve({"name": name} | run_["keys"])) for run_ in runs]
    rounds = [
        {
            "run": number,
            "round": t,
            "test_accuracy": accuracy / 100,
            "test_loss": run_["loss"][t] if run_["loss"] else 1.0,
            "corrupted_weight": None if t == 0 else run_["weight"],
        }
        for number, run_ in enumerate(runs)
        for t, accuracy in enumerate(run_["accuracy"])
    ]
    clients = [{"run": number} | row for number, run_ in enumerate(runs) for row in run_["clients"]]
    rows = {"rounds": rounds, "clients": clients}
    return report.load(write_folder(path / name, configs, rows, config=f'name = "{name}"'))


def verdicts(claims: Iterable[Claim]) -> list[str]:
    """The verdict of each claim; of one without an interval, that of its mean."""
    words = {True: "holds", False: "fails"}
    return [
        words[c.numbers[0].mean() >= 0] if c.verdict == "open" and c.kind == "direction" else c.verdict for c in claims
    ]
