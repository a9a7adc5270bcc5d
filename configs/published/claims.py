"""Published tables beside runs: each setting is a cell, named as in tables.json, which has the published numbers.

`report.claims` of the configurations names these functions. A cell that was not run is not listed. Settings that differ
from a configuration's own in any key are listed with that key, and without a published number.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

import fedsim
from fedsim import Claim
from fedsim.report.cells import cells
from fedsim.report.final import Final
from fedsim.report.keys import Run
from fedsim.report.names import aggregator_name
from fedsim.report.results import Results
from fedsim.report.settings import Setting

FOLDER = Path(__file__).parent
TABLES = json.loads((FOLDER / "tables.json").read_text(encoding="utf-8"))
ATTACKS = {"mimic": "mimic", "ipm": "IPM", "alie": "ALIE", "sign_flip": "sign flip", "no_momentum": "sign flip"}
ALGORITHMS = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD", "fedprox": "FedProx", "fednova": "FedNova"}
WORST_OF = 3  # attacks
FOOLSGOLD_ROUNDS = 2000  # inferred: nearly all published numbers are within seed noise of these
PAPER_ROUNDS = 3000  # of its text
MIN_GAP = 5  # points, for the sign of a single published run
LAST_FIVE = Final("mean", 5)
Numbers = np.ndarray  # over seeds [P], in percent
Drawn = tuple[tuple[tuple[int, int], ...], Numbers]  # with the split and seed of each run


def bucketing(results: Results) -> list[Claim]:
    """T1: the mean of the last five evaluations, or the last one after fewer rounds."""

    def cell(run: Run, setting: Setting) -> str:
        size = {"bucketing": f"bucketing of {run.get('bucketing.size')}"}
        before = [size.get(name, name) for name in run["server.pre_aggregators"]]
        bucket = f" with {' and '.join(before)}" if before else ""
        corruption = {"none": "no attack", "flipping": "label flip"}.get(setting.corruption, setting.corruption)
        of_data = setting.corruption != "none" or setting.attack == "none"
        threat = corruption if of_data else ATTACKS.get(setting.attack, setting.attack)
        data = "IID" if run["data.partition"] == "iid" or run.get("similarity.gamma") == 1 else "non-IID"
        beta = run.get("worker_momentum.beta", 0)
        momentum = f", momentum {beta:g}" if beta else ""
        return f"{aggregator_name(setting.aggregator)}{bucket}, {threat}, {data}{momentum}"

    def last(name: str, setting: Setting) -> Numbers:  # `Results.numbers` has NaN for seeds that others have
        number = 1 if name.endswith(" rounds") else 5
        of_runs = curves(results, setting)
        return results.per_unit(setting, [100 * np.mean([*curve.values()][-number:]) for curve in of_runs])

    return [_claim("bucketing", name, last(name, setting)) for name, setting in _cells(results, "bucketing", cell)]


def foolsgold(results: Results) -> list[Claim]:
    """T2: accuracy and attack rate after the inferred number of rounds, and a count after the paper's."""

    def cell(run: Run, setting: Setting) -> str:
        num_clients = run["data.num_clients"]
        num_sybils = round(setting.scenario.share * num_clients)
        trimmed = run.get("trimmed_mean.num_byzantine")
        cut = {num_clients // 10: "10 %", num_clients // 5: "20 %"}
        share = "" if trimmed is None else f" of {cut.get(trimmed, trimmed)}"
        return f"{aggregator_name(setting.aggregator)}{share}, {num_sybils} sybil{'s' * (num_sybils != 1)}"

    published, as_in_paper = [], []
    for name, setting in _cells(results, "foolsgold", cell):
        name = name.partition(", after")[0]
        shown = FOOLSGOLD_ROUNDS if FOOLSGOLD_ROUNDS in setting.rounds else setting.rounds[-1]
        after = "" if shown == FOOLSGOLD_ROUNDS else f", after {shown} rounds"
        columns = [("accuracy", "test_accuracy"), ("attack rate", "backdoor_success")]
        for what, column in columns if setting in results.with_backdoor else columns[:1]:
            compared = {shown, PAPER_ROUNDS} & {*setting.rounds}
            numbers = {rounds: _after(results, setting, rounds, column) for rounds in compared}
            published.append(_claim("foolsgold", f"{name}{after}: {what}", numbers[shown]))
            if PAPER_ROUNDS in numbers:
                as_in_paper.append(_claim("foolsgold", f"{name}: {what}", numbers[PAPER_ROUNDS]))
    if not as_in_paper:
        return published
    compared = [claim.holds for claim in as_in_paper if claim.comparison]
    text = "After the 3,000 rounds of the paper's text: numbers that agree or are near"
    return [Claim(text, measured=f"{sum(compared)} of {len(compared)}"), *published]


def heatmaps(results: Results) -> list[Claim]:
    """T3: the worst attack, after the rounds whose mean over seeds is best, as in ByzFL's `test_heatmap`."""

    def cell(run: Run, setting: Setting) -> str:
        f = round(setting.scenario.share * run["data.num_clients"])
        return f"{aggregator_name(setting.aggregator)}, gamma {run.get('similarity.gamma', 1):g}, f {f}"

    def best(setting: Setting) -> Numbers:
        return max((_after(results, setting, rounds) for rounds in setting.rounds), key=_rank)

    attacks: dict[str, dict[str, Numbers]] = {}
    for name, setting in _cells(results, "heatmaps", cell):
        attacks.setdefault(name, {})[setting.attack] = best(setting)
    of_all = lambda name: name if len(attacks[name]) == WORST_OF else f"{name}, {' and '.join(attacks[name])} alone"
    return [_claim("heatmaps", of_all(name), min(of.values(), key=_rank)) for name, of in attacks.items()]


def niid_bench(results: Results) -> list[Claim]:
    """T4: the best accuracy over the rounds; of FedProx, that of each run's best mu."""

    def cell(run: Run, setting: Setting) -> str:
        number = run.get("niid_classes.num_classes")
        data = {
            "niid_iid": "IID",
            "niid_dirichlet": f"Dirichlet {run.get('niid_dirichlet.alpha')}",
            "niid_classes": "1 class a client" if number == 1 else f"{number} classes a client",
        }
        algorithm, partition = run["client.algorithm"], run["data.partition"]
        return f"{ALGORITHMS.get(algorithm, algorithm)}, {data.get(partition, partition)}"

    best: dict[str, dict[tuple[int, int], float]] = {}
    for name, setting in _cells(results, "niid-bench", cell):
        for draw, accuracy in zip(setting.draws, _best(results, setting, 1), strict=True):
            of_draws = best.setdefault(name, {})
            of_draws[draw] = np.fmax(of_draws.get(draw, np.nan), accuracy)
    return [_claim("niid-bench", name, np.asarray([*of_draws.values()])) for name, of_draws in best.items()]


def readme(results: Results) -> list[Claim]:
    """T7: the accuracy after 10 and after 50 rounds."""

    def cell(run: Run, setting: Setting) -> str:
        data = "IID" if run["data.partition"] == "iid" else "non-IID"
        return f"{run['model.name'].removeprefix('readme_').upper()}, {data}"

    return [
        _claim("readme", f"{name.partition(', after')[0]}, after {rounds} rounds", _after(results, setting, rounds))
        for name, setting in _cells(results, "readme", cell)
        for rounds in (10, 50)
        if rounds in setting.rounds
    ]


# Tables and curves of which signs are compared


def flanders(results: Results) -> list[Claim]:
    """T6: which rules are above or below FedAvg, by the best accuracy from the third round on."""
    attacks = {
        "flanders_gaussian": "Gaussian",
        "flanders_lie": "LIE",
        "flanders_opt": "OPT",
        "flanders_min_max": "Min-Max",
        "none": "no attack",
    }
    cell = lambda run, setting: f"{aggregator_name(setting.aggregator)}, {attacks.get(setting.attack, setting.attack)}"
    best = lambda setting: (setting.draws, results.per_unit(setting, _best(results, setting, 3)))
    numbers = {name: best(setting) for name, setting in _cells(results, "flanders", cell)}
    published = {name: mean for name, (mean, *_) in TABLES["flanders"]["cells"].items()}
    claims = []
    for name in numbers:
        rule, _, attack = name.partition(", ")
        keys = [f"{of}, {attack}".partition(", after")[0] for of in (rule, "FedAvg")]  # also after fewer rounds
        of_fedavg = numbers.get(f"FedAvg, {attack}")
        gap = published[keys[0]] - published[keys[1]] if set(keys) <= published.keys() else 0
        if of_fedavg is not None and abs(gap) >= MIN_GAP:
            text = f"{rule} is {'above' if gap > 0 else 'below'} FedAvg, {attack}"
            claims.append(_sign(text, np.sign(gap), numbers[name], of_fedavg, f"{gap:+g} points"))
    return claims


def label_poisoning(results: Results) -> list[Claim]:
    """T5: where each node has one class, the mean is above every rule; other accuracies are for comparison."""
    data = {"iid": "IID", "lpa_dirichlet": "Dirichlet 1", "label_quantity": "One class a node"}
    labels = {"flipping": "9 - y", "furthest_flipping": "furthest label"}
    of = lambda names, name: names.get(name, name)
    cell = lambda run, setting: f"{of(data, run['data.partition'])}, {of(labels, setting.corruption)}"
    compared = tuple(f"{data['label_quantity']}, {label}" for label in labels.values())
    scenarios: dict[str, dict[str, Drawn]] = {}
    for name, setting in _cells(results, "label-poisoning", cell):
        rule = aggregator_name(setting.aggregator)
        scenarios.setdefault(name, {})[rule] = setting.draws, results.numbers(setting, final=LAST_FIVE)
    claims = []
    for name, numbers in scenarios.items():
        if "FedAvg" in numbers and name.startswith(compared):
            others = [(rule, values) for rule, values in numbers.items() if rule != "FedAvg"]
            text, mean = f"{name}: the mean is above {{}}", numbers["FedAvg"]
            claims += [_sign(text.format(rule), 1, mean, values, "Fig. 1, 2") for rule, values in others]
        else:
            shown = [f"{rule} {np.nanmean(values):.2f} %" for rule, (_, values) in numbers.items()]
            claims.append(Claim(f"{name}: accuracies", measured=", ".join(shown)))
    return claims


def fedprox(results: Results) -> list[Claim]:
    """T9: on heterogeneous data FedAvg's loss is above that of mu = 1, and fluctuates more; on IID data it is below."""
    numbers: dict[tuple[str, float], tuple[Drawn, Drawn]] = {}
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        if "synthetic.iid" not in run:
            continue
        data = "IID" if run["synthetic.iid"] else f"beta {run['synthetic.beta']:g}"
        of_runs = curves(results, setting, "test_loss")
        late = [[loss for t, loss in curve.items() if t >= setting.rounds[-1] / 2] for curve in of_runs]
        means, steps = (
            [np.mean(losses) for losses in late],
            [np.std(np.diff(losses)) if losses[1:] else np.nan for losses in late],
        )
        mean, step = ((setting.draws, results.per_unit(setting, of_runs)) for of_runs in (means, steps))
        numbers[data, run.get("fedprox.mu", 0.0)] = mean, step
    claims = []
    for data in (data for data, mu in numbers if mu == 0 and (data, 1.0) in numbers):
        (loss, steps), (loss_1, steps_1) = numbers[data, 0.0], numbers[data, 1.0]
        above, sign = ("below", -1) if data == "IID" else ("above", 1)
        text = f"{data}: FedAvg's mean loss in the second half of the rounds is {above} that of mu = 1"
        claims.append(_sign(text, sign, loss, loss_1, "Fig. 2", "nats"))
        if data != "IID":
            text = f"{data}: FedAvg's loss fluctuates more there (standard deviation of its steps)"
            claims.append(_sign(text, 1, steps, steps_1, "Fig. 2", "nats"))
    return claims


def _sign(text: str, sign: int, drawn: Drawn, others: Drawn, published: str, unit: str = "points") -> Claim:
    """Numbers are above others (sign 1), or below them (-1); not run where these are of other seeds, or of none."""
    (draws, first), (other_draws, second) = drawn, others
    if set(draws) != set(other_draws) or not np.isfinite(first - second).any():
        return Claim(text, published=published)
    form, suffix = (".2f", " %") if unit == "points" else (".3f", "")
    measured = f"{np.nanmean(first):{form}} and {np.nanmean(second):{form}}{suffix}"
    return Claim(text, sign * (first - second), published, measured, unit)


# What the functions share


def _claim(table: str, name: str, numbers: Numbers | None) -> Claim:
    """The numbers beside the published one, if there is one."""
    reference = (TABLES[table]["cells"] | TABLES[table].get("early", {})).get(name)
    reference = reference and (*reference, TABLES[table]["rounding"])
    return Claim(name, numbers, unit="points", kind="published", reference=reference)


def _cells(results: Results, table: str, name: Callable[[Run, Setting], str]) -> Iterator[tuple[str, Setting]]:
    """The settings by the names of their cells; those that differ from the configuration's have other names."""
    return cells(results, fedsim.load(FOLDER / f"{table}.toml"), name)


def _best(results: Results, setting: Setting, first: int) -> list[float]:
    """Each run's best accuracy (percent) from the round `first` on."""
    late = [[100 * value for t, value in curve.items() if t >= first] for curve in curves(results, setting)]
    return [np.fmax.reduce(values, initial=np.nan) for values in late]


def _rank(numbers: Numbers) -> float:
    """Their mean, below all others if one has diverged."""
    return float(np.nan_to_num(numbers.mean(), nan=-np.inf))


def _after(results: Results, setting: Setting, rounds: int, column: str = "test_accuracy") -> Numbers:
    """Each run's accuracy, or another share, (percent) after a number of rounds."""
    return results.per_unit(setting, [100 * curve[rounds] for curve in curves(results, setting, column)])


def curves(results: Results, setting: Setting, column: str = "test_accuracy") -> list[dict[int, float]]:
    """What each run of the setting recorded in a column of `Results.table`, by round; NaN for null."""
    rows = results.table.select("run", "round", pl.col(column).fill_null(math.nan))
    rows = rows.filter(pl.col("run").is_in(setting.runs)).sort("round")
    return [dict(rows.filter(pl.col("run") == run).drop("run").iter_rows()) for run in setting.runs]
