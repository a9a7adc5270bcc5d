"""The computable terms of Theorem 1's bound, and Eq. 6 with its optimum (Theorem 2), over rounds."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement, check_all
from fedsim.paper.client_history import read_history
from fedsim.paper.settings import find_settings
from fedsim.paper.theory import BoundTerms, compute_terms
from fedsim.report import style
from fedsim.report.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_RECORDED = 'the losses between evaluations were not recorded; use record.clients = "all"'
TOLERANCE = 1e-4
"""Of float32 weights; weights of few examples at a large lambda are the least precise."""


class RunTerms(NamedTuple):
    """A run of the lambda sweep."""

    lam: float
    """In units of M."""
    terms: BoundTerms


TermsBySeed = dict[int, list[RunTerms]]


def terms_by_seed(results: Results) -> TermsBySeed:
    """Terms of ARFL's runs by seed, without runs that lack a round in which all clients' last losses are known."""
    seeds: TermsBySeed = {}
    for setting in find_settings(results, {"server.aggregator": "arfl"}):
        for seed, run in zip(setting.seeds, setting.runs, strict=True):
            history = read_history(results, run)
            if history is not None and setting.lam and (terms := compute_terms(history, setting.lam)) is not None:
                seeds.setdefault(seed, []).append(RunTerms(setting.lam, terms))
    return seeds


def claims(results: Results) -> list[Claim]:
    """Theorem 2, checked in each recorded round."""
    seeds = terms_by_seed(results)
    if not seeds and any(run.get("record.clients") == "evaluated" for run in results.runs):
        return [Claim(statement.text, statement.published, NOT_RECORDED, None) for statement in STATEMENTS]
    return check_all(STATEMENTS, seeds or None)


def _are_minimum(seeds: TermsBySeed) -> Measurement:
    differences = np.asarray([max(run.terms.difference.max() for run in sweep) for sweep in seeds.values()])
    return Measurement(f"{differences.max():.1e}, {_num_rounds(seeds)} rounds", differences <= TOLERANCE)


def _are_zero_from_threshold(seeds: TermsBySeed) -> Measurement:
    num_agreeing = sum(int(run.terms.agrees.sum()) for sweep in seeds.values() for run in sweep)
    agrees = [all(run.terms.agrees.all() for run in sweep) for sweep in seeds.values()]
    return Measurement(f"in {num_agreeing} of {_num_rounds(seeds)} rounds", agrees)


def _num_rounds(seeds: TermsBySeed) -> int:
    return sum(len(run.terms.rounds) for sweep in seeds.values() for run in sweep)


def _objective_falls(seeds: TermsBySeed) -> Measurement | None:
    objectives: dict[float, list[np.ndarray]] = {}  # by lambda: first and last of each seed
    for sweep in seeds.values():
        for run in sweep:
            objectives.setdefault(run.lam, []).append(run.terms.objective[[0, -1]])
    if any(len(run.terms.rounds) < 2 for sweep in seeds.values() for run in sweep):
        return None
    means = {lam: np.mean(ends, axis=0) for lam, ends in objectives.items()}
    texts = [f"λ = {lam:g} M: {start:.3f} to {end:.3f}" for lam, (start, end) in means.items()]
    fall = lambda sweep: min(run.terms.objective[0] - run.terms.objective[-1] for run in sweep)
    return Measurement("; ".join(texts), [fall(sweep) for sweep in seeds.values()], "nats")


STATEMENTS = (
    Statement(f"The weights minimize Eq. 6 for the reported losses, within {TOLERANCE:g}", "Theorem 2", _are_minimum),
    Statement(
        "A client has no weight if and only if its loss reaches the threshold λ/M_p + p-average",
        "Sec. 4.3",
        _are_zero_from_threshold,
    ),
    Statement(
        "The objective of Eq. 6 is lower at the end than at the start",
        "Sec. 4.4: alternating minimization",
        _objective_falls,
    ),
)


def figures(results: Results) -> dict[str, "Figure"]:
    """Four panels of the first seed: objective and risk; norm of the weights; p; threshold and p-average loss."""
    sweep = next(iter(terms_by_seed(results).values()), [])
    if not sweep:
        return {}
    figure, panels = style.panels(4, share_y=False)
    objective, norm, num_weighted, threshold = panels
    handles: dict[str, Any] = {}
    for position, (lam, terms) in enumerate(sweep[: style.MAX_LINES]):
        color = style.COLORS[position % len(style.COLORS)]
        handles[f"λ = {lam:g} M"] = objective.plot(terms.rounds, terms.objective, color=color)[0]
        objective.plot(terms.rounds, terms.risk, "--", color=color)
        norm.plot(terms.rounds, terms.norm, color=color)
        num_weighted.plot(terms.rounds, terms.num_weighted, color=color)
        threshold.plot(terms.rounds, terms.threshold, color=color)
        threshold.plot(terms.rounds, terms.average_loss, "--", color=color)
    objective.set_title("Objective (Eq. 6), and risk Σαᵢℒᵢ (dashed)")
    norm.set_title("√(Σαᵢ²/mᵢ)")
    num_weighted.set_title("p, clients with weight")
    num_weighted.set_ylim(bottom=0)
    threshold.set_title("Threshold, and p-average loss (dashed)")
    for panel in panels:
        style.over_rounds(panel)
    for panel in (objective, threshold):
        panel.set_yscale("log")
        panel.set_ylabel("nats")
    return {"bound": style.finish(figure, [], "", handles)}
