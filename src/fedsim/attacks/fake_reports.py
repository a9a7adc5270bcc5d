"""False reports of losses and numbers of examples, which rules that weight by them trust.

Losses: the paper names them as a limit of ARFL (Sec. 6), since a client with a small loss gains weight. Numbers of
examples: Wu, Jin, Hao, Yu: "Local Data Quantity-Aware Weighted Averaging for Federated Learning with Dishonest
Clients", 2025, https://arxiv.org/abs/2504.12577
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.core.contracts import Attack
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.types import Array, CohortReport, PyTree, Scalar


def fake_loss(
    *, scale: Annotated[Scalar, Traced(**POSITIVE), "multiplies the reported training loss"] = 0.01
) -> Attack:
    """Malicious clients report `scale` times their training loss."""

    def forge_report(state: PyTree, report: CohortReport, malicious: Array, key: Array) -> tuple[Array, Array]:
        return report.num_examples, scale * report.losses

    return Attack(forge_report=forge_report)


def fake_counts(
    *, factor: Annotated[Scalar, Traced(**POSITIVE), "multiplies the reported number of examples"] = 10.0
) -> Attack:
    """Malicious clients report `factor` times their number of examples, rounded, and at least 1.

    Reports are at most 2^30 over the number of reporting clients, so that their sum fits into int32. This affects all
    rules that weight by numbers of examples, such as FedAvg and ARFL (m_i is in alpha_i and in the average loss).
    """

    def forge_report(state: PyTree, report: CohortReport, malicious: Array, key: Array) -> tuple[Array, Array]:
        largest = float(2**30 // report.num_examples.size)
        forged = jnp.clip(jnp.round(factor * report.num_examples.astype(jnp.float32)), 1.0, largest)
        return jnp.where(report.num_examples > 0, forged.astype(report.num_examples.dtype), 0), report.losses

    return Attack(forge_report=forge_report)
