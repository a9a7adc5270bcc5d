"""The settings of the grid in `byzfl_grid.py`, in the terms of fedsim and of ByzFL.

Where defaults differ, fedsim's keys choose ByzFL's variant (`docs/rules.md`, `docs/attacks.md`): Krum with n - f - 1
neighbors, equal weights, the sample standard deviation, added to gradients and thus subtracted from updates, and the
negated honest mean, which is IPM with tau 1. Two differences remain: ByzFL's geometric median starts at zero, fedsim's
at the mean; ByzFL searches the best strength step by step, fedsim tries the same number of strengths of a fixed grid.
"""

from typing import Any, NamedTuple

LEARNING_RATE = 0.1
NUM_STEPS, SMOOTHING = 3, 0.1  # ByzFL's defaults for its geometric median; distances are those of gradients
TAU, Z, NUM_STRENGTHS = 2.0, 1.5, 20  # ByzFL's defaults

Tables = dict[str, Any]


class Cell(NamedTuple):
    """A rule with its pre-aggregators, against an attack by f clients."""

    rule: str
    pre_aggregators: tuple[str, ...]
    attack: str
    f: int

    @property
    def name(self) -> str:
        """For example "nnm, median"."""
        return ", ".join((*self.pre_aggregators, self.rule))


RULES = ("trimmed_mean", "median", "multi_krum", "rfa")
PRE_AGGREGATORS = ("none", "nnm")
ATTACKS = ("alie", "ipm", "sign_flip", "optimal_alie")


def make_cells(pre_aggregators: list[str], rules: list[str], attacks: list[str], f: int) -> list[Cell]:
    """Each rule after each of `pre_aggregators` ("none": alone), against each attack."""
    stages = [() if name == "none" else (name,) for name in pre_aggregators]
    return [Cell(rule, before, attack, f) for before in stages for rule in rules for attack in attacks]


def fedsim_config(cell: Cell, num_steps: int = NUM_STEPS) -> Tables:
    """A cell as a sweep of fedsim; `num_steps` are the steps of the geometric median."""
    rules: dict[str, Tables] = {
        "multi_krum": {"multi_krum": {"neighbors": ["n-f-1"], "weighting": ["equal"]}},
        "rfa": {"rfa": {"num_iters": [num_steps], "eps": [LEARNING_RATE * SMOOTHING], "weighting": ["equal"]}},
    }
    variant = {"sign": ["minus"], "deviation": ["sample"]}
    attacks: dict[str, Tables] = {
        "alie": {"attack": {"kind": ["alie"]}, "alie": {"z": [Z], **variant}},
        "ipm": {"attack": {"kind": ["ipm"]}, "ipm": {"tau": [TAU]}},
        "sign_flip": {"attack": {"kind": ["ipm"]}, "ipm": {"tau": [1.0]}},
        "optimal_alie": {
            "attack": {"kind": ["optimal_alie"]},
            "optimal_alie": {
                "num_strengths": [NUM_STRENGTHS],
                "min_strength": [0.05],
                "max_strength": [40.0],
                **variant,
            },
        },
    }
    server = {"aggregator": [cell.rule], "pre_aggregators": [list(cell.pre_aggregators)]}
    return {"server": server, **rules.get(cell.rule, {}), **attacks[cell.attack]}


def byzfl_config(cell: Cell, num_steps: int = NUM_STEPS) -> Tables:
    """A cell as the parameters of ByzFL's classes."""
    tolerance = {"f": cell.f}
    rules: dict[str, Tables] = {
        "trimmed_mean": {"name": "TrMean", "parameters": tolerance},
        "median": {"name": "Median", "parameters": {}},
        "multi_krum": {"name": "MultiKrum", "parameters": tolerance},
        "rfa": {"name": "GeometricMedian", "parameters": {"nu": SMOOTHING, "T": num_steps}},
    }
    attacks: dict[str, Tables] = {
        "alie": {"name": "ALittleIsEnough", "parameters": {"tau": Z}},
        "ipm": {"name": "InnerProductManipulation", "parameters": {"tau": TAU}},
        "sign_flip": {"name": "SignFlipping", "parameters": {}},
        "optimal_alie": {"name": "Optimal_ALittleIsEnough", "parameters": {"evals": NUM_STRENGTHS}},
    }
    before = [{"name": name.upper(), "parameters": tolerance} for name in cell.pre_aggregators]
    return {"f": cell.f, "aggregator": rules[cell.rule], "pre_aggregators": before, "attack": attacks[cell.attack]}
