"""Inner product manipulation, known as IPM, FoE (fall of empires) or empire; and with its most damaging strength.

Xie, Koyejo, Gupta: "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation", UAI 2019,
https://arxiv.org/abs/1903.03936. The strength is as in ByzFL's Optimal_InnerProductManipulation: Gonzalez, Guerraoui,
Pinot, Rizk, Stephan, Taiani: "ByzFL: Research Framework for Robust Federated Learning", 2025,
https://arxiv.org/abs/2505.24802
"""

from collections.abc import Callable
from typing import Annotated

import jax

from fedsim.attacks.honest import honest_mean, identical_updates
from fedsim.attacks.search import MaxStrength, MinStrength, NumStrengths, Search, most_damaging
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.types import Array, PyTree, Scalar


def ipm(*, tau: Annotated[Scalar, Traced(**POSITIVE), "multiplies minus the honest mean"] = 0.5) -> Attack:
    """All malicious clients send -tau x the mean of the honest updates (`tau` is the paper's epsilon).

    A small tau is hard to tell from honest updates and slows or reverses what a median or Krum selects; a large one
    reverses a mean. The paper uses 0.1 and 0.5 against robust rules, and 10 and 100. Without honest clients they send
    zeros.

    >>> import jax, jax.numpy as jnp, fedsim
    >>> report = fedsim.CohortReport(*jnp.ones((3, 3), int), {"w": jnp.array([1.0, 3.0, 9.0])}, jnp.ones(3, bool))
    >>> context = fedsim.AttackContext(report, jnp.array([False, False, True]), variables=None, aggregate=None)
    >>> forged, _ = fedsim.attacks.ipm(tau=0.5).forge_updates((), context, jax.random.key(0))
    >>> forged["w"].tolist()  # honest mean 2; the server takes the malicious client's value only
    [-1.0, -1.0, -1.0]
    """
    return identical_updates(lambda context: jax.tree.map(lambda m: -tau * m, honest_mean(context)))


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
