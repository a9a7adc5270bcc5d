"""Limitations (Sec. 6; Sec. 5.2 on collusion): colluding clients, false losses, flipped updates."""

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.grid import Grid
from fedsim.report.cells import Cell, Results
from fedsim.report.names import AGGREGATORS, aggregator_name

COST = 5.0  # percentage points: a limit that is felt
HIGH = 0.7  # share of colluding clients that Sec. 5.2 speaks of
KEPT = 0.9  # of its share: a weight that is kept
ATTACKS = {"none": "", "fake_loss": "false losses", "sign_flip": "flipped updates"}
Case = tuple[str, float, str]  # corruption, fraction, attack


def cases(results: Results) -> list[Case]:
    """What the corrupted clients do, as it comes."""
    found = dict.fromkeys(_case(results, cell) for cell in results.cells)
    return [case for case in found if case[1] > 0]


def _case(results: Results, cell: Cell) -> Case:
    return cell.corruption, cell.fraction, select.config(results, cell)["attack.kind"]


def _cell(results: Results, rule: str, case: Case) -> Cell | None:
    return next((c for c in results.cells if c.aggregator == rule and _case(results, c) == case), None)


def claims(results: Results) -> list[Claim]:
    """Where the paper says that ARFL's reach ends."""
    return [*_collusion(results), *_fake_loss(results), *_sign_flip(results)]


def _collusion(results: Results) -> list[Claim]:
    shares = [case[1] for case in cases(results) if case[0] == "collusion"]
    text = "Collusion of {} % costs ARFL {} points more than shuffling", "Sec. 6: may bring risk"
    if not shares:
        return [not_run(text[0].format("the clients", f"{COST:g}"), text[1])]
    made = []
    for share in shares:
        said = text[0].format(f"{100 * share:g}", f"{COST:g}"), "Sec. 5.2: not handled" if share >= HIGH else text[1]
        cells = [_cell(results, "arfl", (kind, share, "none")) for kind in ("collusion", "shuffling")]
        if None in cells:
            made.append(not_run(*said))
            continue
        colluding, shuffled = (select.final(cell) for cell in cells if cell)
        told = f"{colluding:.2f} % with collusion, {shuffled:.2f} % with shuffling"
        made.append(claim(*said, told, colluding <= shuffled - COST))
    return made


def _fake_loss(results: Results) -> list[Claim]:
    weight = "Clients with false small losses get more weight than their share", "Sec. 6: they dominate"
    cost = "False losses cost ARFL accuracy", "Sec. 6"
    lying = next((case for case in cases(results) if case[2] == "fake_loss"), None)
    cell = _cell(results, "arfl", lying) if lying else None
    if cell is None or lying is None:
        return [not_run(*weight), not_run(*cost)]
    honest = _cell(results, "arfl", (*lying[:2], "none"))
    share, got = 100 * cell.fraction, select.late_corrupted_weight(cell)
    told = f"{got:.1f} % of the weight, {share:g} % of the clients"
    told += f"; {select.late_corrupted_weight(honest):.1f} % with true losses" if honest else ""
    made = [claim(*weight, told, got > share)]
    if honest is None:
        return [*made, not_run(*cost)]
    accuracy = select.final(cell), select.final(honest)
    told = f"{accuracy[0]:.2f} % with false losses, {accuracy[1]:.2f} % with true ones"
    return [*made, claim(*cost, told, accuracy[0] < accuracy[1])]


def _sign_flip(results: Results) -> list[Claim]:
    weight = (
        f"Clients with clean data that flip their updates keep {100 * KEPT:g} % of their share of the weight",
        "Sec. 6: not the method's aim",
    )
    better = "Under flipped updates ARFL is no better than FedAvg", "Sec. 6: not the method's aim"
    case = next((case for case in cases(results) if case[2] == "sign_flip"), None)
    cell = _cell(results, "arfl", case) if case else None
    if cell is None or case is None:
        return [not_run(*weight), not_run(*better)]
    got, share = select.late_corrupted_weight(cell), 100 * cell.fraction
    made = [claim(*weight, f"{got:.1f} % of the weight, {share:g} % of the clients", got >= KEPT * share)]
    others = {rule: other for rule in AGGREGATORS if rule != "arfl" and (other := _cell(results, rule, case))}
    if "fedavg" not in others:
        return [*made, not_run(*better)]
    accuracy = {rule: select.final(other) for rule, other in {"arfl": cell, **others}.items()}
    told = ", ".join(f"{aggregator_name(rule)} {value:.2f} %" for rule, value in accuracy.items())
    return [*made, claim(*better, told, accuracy["arfl"] <= accuracy["fedavg"])]


def tables(results: Results) -> list[Grid]:
    """Accuracy, and the weight of corrupted clients in the second half of the rounds: a row a case, a pair a rule."""
    rules = [rule for rule in AGGREGATORS if any(cell.aggregator == rule for cell in results.cells)]
    header = [text for rule in rules for text in (aggregator_name(rule), "their weight")]
    rows = []
    for case in cases(results):
        texts = [text for rule in rules for text in _texts(_cell(results, rule, case))]
        rows.append((_name(case), *texts))
    title = (
        "Final test accuracy (%), and the corrupted clients' share of the weight in the second half of the rounds (%)"
    )
    return [Grid(title, ("Corrupted clients", *header), tuple(rows))] if rows else []


def _name(case: Case) -> str:
    kind, share, attack = case
    what = " and ".join(filter(None, ["" if kind == "none" else kind, ATTACKS.get(attack, attack)]))
    return f"{100 * share:g} %: {what}"


def _texts(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return "", ""
    weight = select.late_corrupted_weight(cell)
    return f"{select.final(cell):.2f}", "" if np.isnan(weight) else f"{weight:.1f}"
