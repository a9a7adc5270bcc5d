"""Sign flipping: the paper names attacks on the parameters as what ARFL is not made for (Sec. 6)."""

from typing import Annotated

import jax

from fedsim.core.settings import POSITIVE, Scalar, Traced
from fedsim.core.types import Array, Attack, PyTree, Round


def sign_flip(*, scale: Annotated[Scalar, Traced(**POSITIVE), "send minus this times the update"] = 1.0) -> Attack:
    """Corrupted clients send `-scale` times their update."""

    def send(state: PyTree, round_: Round, key: Array) -> tuple[PyTree, PyTree]:
        del key
        return jax.tree.map(lambda u: (-scale * u).astype(u.dtype), round_.report.updates), state

    return Attack(send=send)
