"""False losses: the paper names them as a limit of ARFL (Sec. 6), since a client with a small loss gains weight."""

from typing import Annotated

from fedsim.core.settings import POSITIVE, Scalar, Traced
from fedsim.core.types import Array, Attack, CohortReport, PyTree


def fake_loss(*, scale: Annotated[Scalar, Traced(**POSITIVE), "report this times the training loss"] = 0.01) -> Attack:
    """Corrupted clients report `scale` times their training loss."""

    def say(state: PyTree, report: CohortReport, corrupted: Array, key: Array) -> tuple[Array, Array]:
        del state, corrupted, key
        return report.counts, scale * report.losses

    return Attack(say=say)
