"""Non-finite updates: a sanity check of the server, as in ByzFL (https://github.com/LPD-EPFL/byzfl)."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.types import Array, PyTree


def inf(*, value: Annotated[Literal["inf", "nan"], "the value of all coordinates"] = "inf") -> Attack:
    """All coordinates of the malicious clients' updates are infinite; integers are unchanged.

    The server rejects non-finite updates: such clients are invalid in the round, as if they had dropped out. So every
    rule sees the honest clients only, and a cohort without honest clients makes a skipped round.
    """

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        fill = lambda u: u if jnp.issubdtype(u.dtype, jnp.integer) else jnp.full_like(u, float(value))
        return jax.tree.map(fill, context.report.updates), state

    return Attack(forge_updates=forge_updates)
