"""False losses, which the paper names as a limit of ARFL (Sec. 6): a client with a small loss gains weight."""

from typing import Annotated

from fedsim.core.contracts import Attack
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.types import Array, CohortReport, PyTree, Scalar


def fake_loss(
    *, scale: Annotated[Scalar, Traced(**POSITIVE), "multiplies the reported training loss"] = 0.01
) -> Attack:
    """Malicious clients report `scale` times their training loss."""

    def forge_report(state: PyTree, report: CohortReport, malicious: Array, key: Array) -> tuple[Array, Array]:
        del state, malicious, key
        return report.num_examples, scale * report.losses

    return Attack(forge_report=forge_report)
