"""Sign flipping: the paper names attacks on the parameters as outside of ARFL's scope (Sec. 6)."""

from typing import Annotated

import jax

from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.types import Array, PyTree, Scalar


def sign_flip(*, scale: Annotated[Scalar, Traced(**POSITIVE), "multiplies minus the client's update"] = 1.0) -> Attack:
    """Malicious clients send -scale x their own update.

    >>> import jax, jax.numpy as jnp, fedsim
    >>> report = fedsim.CohortReport(*jnp.ones((3, 3), int), {"w": jnp.array([1.0, 3.0, 9.0])}, jnp.ones(3, bool))
    >>> context = fedsim.AttackContext(report, jnp.array([False, False, True]), variables=None, aggregate=None)
    >>> forged, _ = fedsim.attacks.sign_flip(scale=2.0).forge_updates((), context, jax.random.key(0))
    >>> forged["w"].tolist()  # the server takes the malicious client's value only
    [-2.0, -6.0, -18.0]
    """

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        return jax.tree.map(lambda u: (-scale * u).astype(u.dtype), context.report.updates), state

    return Attack(forge_updates=forge_updates)
