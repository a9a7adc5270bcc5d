"""A little is enough with its most damaging strength, after ByzFL's Optimal_ALittleIsEnough.

Gonzalez, Guerraoui, Pinot, Rizk, Stephan, Taiani: "ByzFL: Research Framework for Robust Federated Learning", 2025,
https://arxiv.org/abs/2505.24802; the attack itself is in `fedsim.attacks.alie`.
"""

from collections.abc import Callable
from typing import Annotated

from fedsim.attacks.alie import Deviation, Sign, shift_mean
from fedsim.attacks.honest import honest_mean, honest_std
from fedsim.attacks.search import MaxStrength, MinStrength, NumStrengths, Search, most_damaging
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.types import Array, PyTree


def optimal_alie(
    *,
    min_strength: MinStrength = 0.01,
    max_strength: MaxStrength = 100.0,
    num_strengths: NumStrengths = 16,
    search: Search = "grid",
    sign: Annotated[Sign, "mean + z std of the updates, or mean - z std"] = "plus",
    deviation: Annotated[Deviation, "std with the number of honest clients h, or with h - 1"] = "population",
) -> Attack:
    """All malicious clients send mean + z std of the honest updates, with the most damaging z.

    Every z is tried in every round against the server's pre-aggregators and rule; the most damaging one moves the
    aggregate farthest from the honest mean. Without honest clients they send zeros. Raises `ValueError` if
    `min_strength` exceeds `max_strength`.
    """

    def make_forge(context: AttackContext) -> Callable[[Array], PyTree]:
        mean, std = honest_mean(context), honest_std(context, deviation == "sample")
        return lambda z: shift_mean(mean, std, z, sign)

    return most_damaging(make_forge, min_strength, max_strength, num_strengths, search)
