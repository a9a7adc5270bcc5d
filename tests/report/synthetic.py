"""Synthetic run folders of any runs: the accuracy of a run is a function of its configuration and round."""

import re
import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsim.config.components import flatten
from fedsim.config.resolve import schema
from fedsim.runs.folder import RunFolder
from fedsim.runs.groups import Record
from fedsim.runs.schemas import SCHEMAS

Run = dict[str, Any]
ENVIRONMENT = {"versions": {"fedsim": "0", "jax": "1"}, "device": {"kind": "cpu", "count": 2}, "source": {}}

RULES, SEEDS = ("arfl", "fedavg", "rfa"), (0, 1, 2, 3)
LAMS = (0.1, 1.0, 10.0)


def run(rule: str, fraction: float = 0.0, seed: int = 0, kind: str = "shuffling", **keys) -> Run:
    """The configuration of a run, as an index has it; `keys` are dotted."""
    values = {"server.aggregator": rule, "corruption.fraction": fraction, "corruption.kind": kind, "seed": seed}
    return flatten(schema().resolve(values | {"server.num_rounds": 20} | keys))


GRID = [run(rule, fraction, seed) for fraction in (0.0, 0.3, 0.5) for rule in RULES for seed in SEEDS]
SWEPT = [run("fedavg", 0.5, seed) for seed in (0, 1)]
SWEPT += [run("arfl", 0.5, seed, **{"arfl.lam": lam}) for lam in (10.0, 0.1, 1.0) for seed in (0, 1)]


def synthetic_accuracy(run: Run, t: int) -> float:
    """An accuracy that differs between runs and rounds; ARFL's is the highest and decreases least with the fraction."""
    fraction, rule = run["corruption.fraction"], run["server.aggregator"]
    slope = 0.1 if rule == "arfl" else 0.6
    noise = ((run["seed"] * 5 * len(rule) + int(100 * fraction)) % 11) / 200
    rate = run["client.learning_rate"] + np.log10(run.get("arfl.lam", 1.0)) / 50
    return float((0.3 + 0.4 * t / 20) * (1 - slope * fraction) + noise + rate)


def final(rule: str, fraction: float, seeds: Iterable[int] = SEEDS, **keys) -> np.ndarray:
    """The last accuracies in percent, by seed."""
    return np.asarray([100 * synthetic_accuracy(run(rule, fraction, seed, **keys), 20) for seed in seeds])


def write_folder(
    path: Path,
    runs: list[Run],
    rows: dict[str, list[Run]],
    *,
    ids: list[str] | None = None,
    num_clients: list[int] | None = None,
    config: str = "",
    data: str = "",
    files: dict[str, str] | None = None,
    is_complete: bool = True,
    change: Callable[[pl.DataFrame], pl.DataFrame] = lambda rounds: rounds,
) -> RunFolder:
    """A folder of `runs` with `rows` of each table, in which "run" is a position; runs of equal rounds are a group.

    Rows of rounds need no columns of keys; `change` replaces these rows.
    """
    folder = RunFolder(path)
    shutil.rmtree(path, ignore_errors=True)
    (path / "groups").mkdir(parents=True)
    ids = ids or [f"{position:08x}{zlib.crc32(repr(run).encode()):08x}" for position, run in enumerate(runs)]
    keys = {"aggregator": "server.aggregator", "corruption": "corruption.kind", "fraction": "corruption.fraction"}
    of_run = [{name: run[key] for name, key in {**keys, "seed": "seed"}.items()} for run in runs]
    rows = rows | {"rounds": [of_run[row["run"]] | {"diverged": False} | row for row in rows["rounds"]]}
    tables = {kind: pl.DataFrame(rows.get(kind, []), schema, strict=False) for kind, schema in SCHEMAS.items()}
    tables["rounds"] = change(tables["rounds"])
    tables = {kind: table.with_columns(pl.Series("run", ids).gather(table["run"])) for kind, table in tables.items()}
    for rounds in dict.fromkeys(run["server.num_rounds"] for run in runs):
        index = [
            {"id": key, "position": position, "num_clients": num_clients[position] if num_clients else 20} | run
            for position, (key, run) in enumerate(zip(ids, runs, strict=True))
            if run["server.num_rounds"] == rounds
        ]
        record = Record(0.0, index, {}, [ENVIRONMENT], data, files or {})
        group = folder.add_group("group", record)
        is_own = pl.col("run").is_in([run["id"] for run in index])
        group.write_rows(0, rounds, {kind: table.filter(is_own) for kind, table in tables.items()})
        if is_complete:
            group.mark_complete(rounds, {"seconds_compiling": 20.0, "seconds_running": 100.0}, False, False)
    if config:
        folder.write_text("configs/made.toml", config)
    return folder


def make_folder(
    path: Path,
    runs: list[Run],
    accuracy: Callable[[Run, int], float] = synthetic_accuracy,
    diverged: Callable[[Run], bool] = lambda run: False,
    alphas: Callable[[Run], Iterable[float]] | None = None,
    loss: Callable[[Run, int], float] | None = None,
    validation: Callable[[Run, int], float] | None = None,
    **about: Any,
) -> RunFolder:
    """A folder with rows after rounds 0, 10, ...; `alphas` are client weights; the loss is 1 - accuracy.

    `about` are options of `write_folder`.
    """
    rounds = [
        {
            "run": number,
            "round": t,
            "test_accuracy": accuracy(run, t),
            "test_loss": None if diverged(run) else loss(run, t) if loss else 1 - accuracy(run, t),
            "validation_accuracy": validation(run, t) if validation else None,
            "validation_loss": 1 - validation(run, t) if validation else None,
            "corrupted_weight": run["corruption.fraction"] / 2 if t else None,
            "diverged": diverged(run) and t == run["server.num_rounds"],
        }
        for number, run in enumerate(runs)
        for t in range(0, run["server.num_rounds"] + 1, 10)
    ]
    clients = [
        {"run": number, "round": t, "client_id": i, "num_examples": 10, "alpha": alpha / t, "corrupted": i == 0}
        for number, run in enumerate(runs)
        for t in ((10, run["server.num_rounds"]) if alphas else ())
        for i, alpha in enumerate(alphas(run) if run["server.aggregator"] == "arfl" else ())
    ]
    return write_folder(path, runs, {"rounds": rounds, "clients": clients}, **about)


def check_latex(latex: str) -> None:
    """Braces, environments and dollar signs are balanced, rows have all columns, and all text is ASCII."""
    bare = re.sub(r"\\[\\{}$&%#_]", "", latex.replace("%", "", 1))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert "%" not in bare
    begins, ends = (re.findall(rf"\\{word}{{(.*?)}}", latex) for word in ("begin", "end"))
    assert sorted(begins) == sorted(ends)
    for block in re.findall(r"\\begin{tabular}(.*?)\\end{tabular}", latex, re.DOTALL):
        width = len(re.match(r"{(.*?)}", block)[1])
        for line in block.splitlines()[1:]:
            if line.endswith(r"\\"):
                spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn{(\d+)}", line))
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + spans == width
    assert latex.isascii()
