"""A little is enough, known as ALIE or LIE; and with its most damaging strength, as ByzFL's Optimal_ALittleIsEnough.

Baruch, Baruch, Goldberg: "A Little Is Enough: Circumventing Defenses For Distributed Learning", NeurIPS 2019,
https://arxiv.org/abs/1902.06156. Gonzalez, Guerraoui, Pinot, Rizk, Stephan, Taiani: "ByzFL: Research Framework for
Robust Federated Learning", 2025, https://arxiv.org/abs/2505.24802
"""

from collections.abc import Callable
from typing import Annotated, Literal

import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Float

from fedsim.attacks.honest import honest_mask, honest_mean, honest_std, identical_updates, shift_mean
from fedsim.attacks.search import MaxStrength, MinStrength, NumStrengths, Search, most_damaging
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import Traced
from fedsim.core.types import Array, PyTree, Scalar

Sign = Literal["plus", "minus"]
Deviation = Literal["population", "sample"]
Knowledge = Literal["all", "own"]


def alie(
    *,
    z: Annotated[
        Scalar | None,
        Traced(ge=0, le=1e30),
        "standard deviations from the mean; default: the largest z that is expected to stay undetected",
    ] = None,
    sign: Annotated[Sign, "mean + z std of the updates (the paper's), or mean - z std"] = "plus",
    deviation: Annotated[
        Deviation, "std with the number of honest clients h (the authors' code), or with h - 1"
    ] = "population",
    knowledge: Annotated[
        Knowledge, "mean and std of all honest updates, or of what the malicious clients would send (the authors' code)"
    ] = "all",
) -> Attack:
    """All malicious clients send mean + z std of the honest updates, coordinate-wise.

    With `knowledge` "own" it is the mean and std of the updates that the malicious clients have trained themselves, so
    they need not see those of others.

    Default z: m of the n valid clients are malicious, so they need s = floor(n / 2 + 1) - m honest clients for a
    majority, and z = Phi^-1((n - m - s) / (n - m)): as many honest clients are expected beyond it. z is 0, and they
    send the mean, if this is not positive (few clients); s is at least 1, for malicious clients that are a majority.

    The paper adds z std to parameters, as here to updates. The authors' code subtracts it from gradients, which is
    equivalent, as an update is minus a gradient. For programs that add it to gradients use "minus".
    Without honest clients they send zeros, unless `knowledge` is "own".

    >>> import jax, jax.numpy as jnp, fedsim
    >>> report = fedsim.CohortReport(*jnp.ones((3, 3), int), {"w": jnp.array([1.0, 3.0, 9.0])}, jnp.ones(3, bool))
    >>> context = fedsim.AttackContext(report, jnp.array([False, False, True]), variables=None, aggregate=None)
    >>> forged, _ = fedsim.attacks.alie(z=1.5).forge_updates((), context, jax.random.key(0))
    >>> forged["w"].tolist()  # mean 2, standard deviation 1; the server takes the malicious client's value only
    [3.5, 3.5, 3.5]
    """

    def forge(context: AttackContext) -> PyTree:
        strength = undetected_z(context) if z is None else z
        known = context if knowledge == "all" else context._replace(malicious=~context.malicious)
        std = honest_std(known, deviation == "sample")
        return shift_mean(honest_mean(known), strength if sign == "plus" else -strength, std)

    return identical_updates(forge)


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
        return lambda z: shift_mean(mean, z if sign == "plus" else -z, std)

    return most_damaging(make_forge, min_strength, max_strength, num_strengths, search)


def undetected_z(context: AttackContext) -> Float[Array, ""]:
    """The largest z that is expected to stay undetected among honest clients; at least 0, and finite."""
    num_valid = jnp.sum(context.report.valid)
    num_honest = jnp.sum(honest_mask(context))
    num_needed = jnp.maximum(num_valid // 2 + 1 - (num_valid - num_honest), 1)
    share = (num_honest - num_needed) / jnp.maximum(num_honest, 1)
    return jnp.where(share > 0.5, ndtri(jnp.clip(share, 0.5, 1 - 1e-6)), 0.0)
