"""Inner product manipulation with its most damaging strength, after ByzFL's Optimal_InnerProductManipulation.

Gonzalez, Guerraoui, Pinot, Rizk, Stephan, Taiani: "ByzFL: Research Framework for Robust Federated Learning", 2025,
https://arxiv.org/abs/2505.24802; the attack itself is in `fedsim.attacks.ipm`.
"""

from collections.abc import Callable

import jax

from fedsim.attacks.honest import honest_mean
from fedsim.attacks.search import MaxStrength, MinStrength, NumStrengths, Search, most_damaging
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.types import Array, PyTree


def optimal_ipm(
    *,
    min_strength: MinStrength = 0.01,
    max_strength: MaxStrength = 100.0,
    num_strengths: NumStrengths = 16,
    search: Search = "grid",
) -> Attack:
    """All malicious clients send -tau x the honest mean, with the tau that moves the aggregate farthest from that mean.

    Every tau is tried in every round against the server's pre-aggregators and rule. Without honest clients they send
    zeros. Raises `ValueError` if `min_strength` exceeds `max_strength`.
    """

    def make_forge(context: AttackContext) -> Callable[[Array], PyTree]:
        mean = honest_mean(context)
        return lambda tau: jax.tree.map(lambda m: -tau * m, mean)

    return most_damaging(make_forge, min_strength, max_strength, num_strengths, search)
