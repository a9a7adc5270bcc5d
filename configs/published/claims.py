"""Published tables beside runs: each setting is a cell, named as in tables.json, which has the published numbers.

`report.claims` of the configurations names these functions. A cell that was not run is not listed. Settings that differ
from a configuration's own in any key are listed with that key, and without a published number.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

import fedsim
from fedsim import Claim
from fedsim.config.components import flatten
from fedsim.config.roles import NOT_IN_IDS
from fedsim.report.final import LAST, Final
from fedsim.report.keys import Run, configuration, with_labels
from fedsim.report.metric import ACCURACY, BACKDOOR
from fedsim.report.names import aggregator_name
from fedsim.report.results import Results
from fedsim.report.settings import Setting

FOLDER = Path(__file__).parent
TABLES = json.loads((FOLDER / "tables.json").read_text(encoding="utf-8"))
ATTACKS = {"mimic": "mimic", "ipm": "IPM", "alie": "ALIE", "sign_flip": "sign flip"}
ALGORITHMS = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD", "fedprox": "FedProx", "fednova": "FedNova"}
BUCKETING_ROUNDS = 600
WORST_OF = 3  # attacks
Numbers = np.ndarray  # over seeds [P], in percent


def bucketing(results: Results) -> list[Claim]:
    """T1: the mean of the last five evaluations, or the last one after fewer rounds."""

    def cell(run: Run, setting: Setting) -> str:
        bucket = f" with bucketing of {run['bucketing.size']}" if run["server.pre_aggregators"] else ""
        corruption = "no attack" if setting.corruption == "none" else "label flip"
        threat = corruption if setting.attack == "none" else ATTACKS.get(setting.attack, setting.attack)
        data = "IID" if run["data.partition"] == "iid" or run.get("similarity.gamma") == 1 else "non-IID"
        beta = run.get("worker_momentum.beta", 0)
        momentum = f", momentum {beta:g}" if beta else ""
        return f"{aggregator_name(setting.aggregator)}{bucket}, {threat}, {data}{momentum}"

    claims = []
    for name, setting in _cells(results, "bucketing", cell):
        is_part = setting.rounds[-1] < BUCKETING_ROUNDS
        numbers = results.numbers(setting, ACCURACY, LAST if is_part else Final("mean", 5))
        claims.append(_claim("bucketing", name + f", after {setting.rounds[-1]} rounds" * is_part, numbers))
    return claims


def foolsgold(results: Results) -> list[Claim]:
    """T2: the final accuracy, and the attack rate if it was recorded."""

    def cell(run: Run, setting: Setting) -> str:
        num_clients = run["data.num_clients"]
        num_sybils = round(setting.scenario.share * num_clients)
        trimmed = run.get("trimmed_mean.num_byzantine")
        percent = {num_clients // 10: 10, num_clients // 5: 20}
        share = "" if trimmed is None else f" of {percent.get(trimmed)} %"
        return f"{aggregator_name(setting.aggregator)}{share}, {num_sybils} sybil{'s' * (num_sybils != 1)}"

    claims = []
    for name, setting in _cells(results, "foolsgold", cell):
        claims.append(_claim("foolsgold", f"{name}: accuracy", results.numbers(setting)))
        if setting in results.with_backdoor:
            claims.append(_claim("foolsgold", f"{name}: attack rate", results.numbers(setting, BACKDOOR)))
    return claims


def heatmaps(results: Results) -> list[Claim]:
    """T3: the worst attack, by the mean over seeds."""

    def cell(run: Run, setting: Setting) -> str:
        f = round(setting.scenario.share * run["data.num_clients"])
        return f"{aggregator_name(setting.aggregator)}, gamma {run['similarity.gamma']:g}, f {f}"

    attacks: dict[str, dict[str, Numbers]] = {}
    for name, setting in _cells(results, "heatmaps", cell):
        attacks.setdefault(name, {})[setting.attack] = results.numbers(setting)
    of_all = lambda name: name if len(attacks[name]) == WORST_OF else f"{name}, {' and '.join(attacks[name])} alone"
    return [_claim("heatmaps", of_all(name), min(of.values(), key=np.nanmean)) for name, of in attacks.items()]


def niid_bench(results: Results) -> list[Claim]:
    """T4: the best accuracy over the rounds."""
    num_classes = lambda number: "1 class a client" if number == 1 else f"{number} classes a client"

    def cell(run: Run, setting: Setting) -> str:
        data = {
            "iid": "IID",
            "dirichlet": f"Dirichlet {run.get('dirichlet.alpha')}",
            "label_quantity": num_classes(run.get("label_quantity.num_classes")),
        }
        return f"{ALGORITHMS[run['client.algorithm']]}, {data[run['data.partition']]}"

    best = lambda curve: max(curve.values())
    return [
        _claim("niid-bench", name, _of_curves(results, setting, best))
        for name, setting in _cells(results, "niid-bench", cell)
    ]


def readme(results: Results) -> list[Claim]:
    """T7: the accuracy after 10 and after 50 rounds."""

    def cell(run: Run, setting: Setting) -> str:
        data = "IID" if run["data.partition"] == "iid" else "non-IID"
        return f"{run['model.name'].removeprefix('readme_').upper()}, {data}"

    return [
        _claim("readme", f"{name}, after {number} rounds", _of_curves(results, setting, itemgetter(number)))
        for name, setting in _cells(results, "readme", cell)
        for number in (10, 50)
        if number in setting.rounds
    ]


def _claim(table: str, name: str, numbers: Numbers | None) -> Claim:
    """The numbers beside the published one, if there is one."""
    return Claim(name, numbers, unit="points", kind="published", reference=TABLES[table]["cells"].get(name))


def _cells(results: Results, table: str, cell: Callable[[Run, Setting], str]) -> Iterator[tuple[str, Setting]]:
    """The settings with their names: that of `cell`, and keys with values that the configuration does not have."""
    values = _values(table)
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        other = [f"{key} = {value}" for key, value in run.items() if key in values and value not in values[key]]
        yield ", ".join([cell(run, setting), *other]), setting


@cache
def _values(table: str) -> Mapping[str, list[Any]]:
    """All values that the runs of a configuration have, by key; without keys that are no part of a setting."""
    experiment = fedsim.load(FOLDER / f"{table}.toml")
    runs = with_labels([configuration(flatten(run)) for run in experiment.runs()])
    keys = set().union(*runs) - {*NOT_IN_IDS, "seed", "data.seed", "server.num_rounds"}
    return {key: [run[key] for run in runs if key in run] for key in keys}


def _of_curves(results: Results, setting: Setting, number: Callable[[dict[int, float]], float]) -> Numbers:
    """A number of each run's accuracies (percent) by round."""
    rows = results.table.select("run", "round", "test_accuracy").drop_nulls()
    curves: dict[int, dict[int, float]] = {run: {} for run in setting.runs}
    for run, round_, accuracy in rows.filter(rows["run"].is_in(setting.runs)).iter_rows():
        curves[run][round_] = 100 * accuracy
    return results.per_unit(setting, [number(curves[run]) for run in setting.runs])
