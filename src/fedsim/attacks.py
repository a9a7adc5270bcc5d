"""What a lying client reports. An attack is `(report, corrupted[K]) -> report`; it sees what its clients would send.

The paper names both as limits of ARFL (section "Limitations"): a client that reports a false small loss gains weight,
and an attack on the parameters is not what the method is made for.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedsim.types import Array, CohortReport

Attack = Callable[[CohortReport, Array], CohortReport]


def none(scale: float = 1.0) -> Attack:
    """Everybody is honest."""
    del scale
    return honest


def honest(report: CohortReport, corrupted: Array) -> CohortReport:
    """The report as it is."""
    del corrupted
    return report


def fake_loss(scale: float = 0.01) -> Attack:
    """Corrupted clients report `scale` times their training loss."""

    def attack(report: CohortReport, corrupted: Array) -> CohortReport:
        return report._replace(losses=jnp.where(corrupted, scale * report.losses, report.losses))

    return attack


def sign_flip(scale: float = 1.0) -> Attack:
    """Corrupted clients send `-scale` times their update."""

    def attack(report: CohortReport, corrupted: Array) -> CohortReport:
        factor = jnp.where(corrupted, -scale, 1.0)
        flip = lambda u: u * factor.reshape(-1, *[1] * (u.ndim - 1)).astype(u.dtype)
        return report._replace(updates=jax.tree.map(flip, report.updates))

    return attack


ATTACKS: dict[str, Callable[..., Attack]] = {
    "none": none,
    "fake_loss": fake_loss,
    "sign_flip": sign_flip,
}
