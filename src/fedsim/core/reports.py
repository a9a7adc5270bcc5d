"""Forged reports and updates, and masking of non-finite values, on a report's way to the server."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Bool

from fedsim.core import require
from fedsim.core.contracts import Attack, AttackContext, NextLoss
from fedsim.core.trees import mask_invalid, select_clients, squared_norms
from fedsim.core.types import Aggregate, Array, ClientData, ClientSlice, CohortReport, PyTree, Variables

FORGED_UPDATES = "an attack's (forged updates, next state)"
MAX_SQUARED_NORM = 1e34  # of an update: sums over a cohort stay within float32


def malicious_clients(data: ClientData) -> Bool[Array, " N"]:
    """The clients that forge reports: those of a set of their own, or else all with corrupted data."""
    return data.corrupted if data.malicious is None else data.malicious


def make_report(
    data: ClientData,
    clients: ClientSlice,
    attack: Attack,
    attack_state: PyTree,
    key: Array,
    require_finite_losses: bool,
    valid: Array,
    updates: PyTree,
    losses: Array | None,
) -> CohortReport:
    """The clients' reports, forged where the attack does so, and masked; losses that are not measured (yet) are NaN."""
    measured = jnp.full(clients.client_id.shape, jnp.nan) if losses is None else losses
    report = CohortReport(clients.client_id, clients.num_examples, measured, updates, valid)
    report = apply_report_attack(attack, attack_state, report, data, key)
    if losses is None:
        return mask_nonfinite_updates(report._replace(losses=jnp.full_like(report.losses, jnp.nan)))
    return mask_nonfinite(report, require_finite_losses)


def forged_report(result: Any, shape: tuple[int, ...], prefix: str = "") -> tuple[Array, Array]:
    """Requires what `Attack.forge_report` returns for clients [K]: integers and losses of this shape."""
    num_examples, losses = require.pair(result, "an attack's (forged num_examples, forged losses)")
    require.shape(num_examples, shape, f"{prefix}forged num_examples")
    require.shape(losses, shape, f"{prefix}forged losses")
    require.integers(num_examples, "forged num_examples")
    return num_examples, losses


def apply_report_attack(
    attack: Attack, state: PyTree, report: CohortReport, data: ClientData, key: Array
) -> CohortReport:
    """The report with the losses and numbers of examples that malicious clients forge."""
    if attack.forge_report is None:
        return report
    malicious = malicious_clients(data)[report.client_ids]
    forged = attack.forge_report(state, report._replace(updates=()), malicious, key)
    num_examples, losses = forged_report(forged, malicious.shape)
    num_examples = jnp.maximum(num_examples, 0).astype(report.num_examples.dtype)  # no rule expects negative weights
    return report._replace(
        num_examples=jnp.where(malicious, num_examples, report.num_examples),
        losses=jnp.where(malicious, losses, report.losses),
    )


def apply_update_attack(
    attack: Attack,
    state: PyTree,
    report: CohortReport,
    data: ClientData,
    variables: Variables,
    aggregate: Callable[[CohortReport], tuple[Aggregate, PyTree]],
    next_loss: NextLoss,
    key: Array,
) -> tuple[CohortReport, PyTree]:
    """The report with the updates that malicious clients forge, and the attack's next state.

    The attack knows the broadcast `variables` and may try reports out on the server's `aggregate` and `next_loss`.
    """
    if attack.forge_updates is None:
        return report, state
    malicious = malicious_clients(data)[report.client_ids]
    try_out = lambda candidate: aggregate(mask_nonfinite_updates(candidate))[0]
    context = AttackContext(report, malicious, variables, try_out, next_loss)
    forged, next_state = require.pair(attack.forge_updates(state, context, key), FORGED_UPDATES)
    require.like(forged, report.updates, "the forged updates")
    require.like(next_state, state, "an attack's state")
    updates = select_clients(malicious & report.valid, forged, report.updates)
    return mask_nonfinite_updates(report._replace(updates=updates)), next_state


def mask_nonfinite(report: CohortReport, require_finite_losses: bool) -> CohortReport:
    """Marks clients with non-finite values as invalid and zeroes their updates: 0 x NaN is NaN, so weights do not.

    An update whose inner products would overflow counts as non-finite. Losses become inf where they are not finite, and
    NaN for invalid clients; with `require_finite_losses` they make a client invalid, too.
    """
    losses = jnp.where(jnp.isfinite(report.losses), report.losses, jnp.inf)
    losses = jnp.where(report.valid, losses, jnp.nan)
    valid = report.valid & jnp.isfinite(report.losses) if require_finite_losses else report.valid
    return mask_nonfinite_updates(report._replace(losses=losses, valid=valid))


def mask_nonfinite_updates(report: CohortReport) -> CohortReport:
    """`mask_nonfinite` for a report whose losses are masked already."""
    finite = report.valid
    if jax.tree.leaves(report.updates):
        finite &= squared_norms(report.updates) < MAX_SQUARED_NORM
    return report._replace(updates=mask_invalid(report.updates, finite), valid=finite)
