"""ARFL: auto-weighted robust federated learning.

Li, Ngai, Ye, Voigt: "Auto-weighted Robust Federated Learning with Corrupted Data Sources", ACM TIST 2022,
https://arxiv.org/abs/2101.05880
"""

from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp

from fedsim.aggregators.arfl_weights import arfl_weights, lam_for_clients, lam_for_effective
from fedsim.aggregators.weighting import from_weights, normalize
from fedsim.core.contracts import Aggregator, RootEvaluator
from fedsim.core.settings import POSITIVE, Limit, OnlyIf, Traced
from fedsim.core.types import Array, CohortReport, PyTree, Scalar

TARGET_LIMIT = Limit("target <= N", lambda n: n, of="clients")


class ArflState(NamedTuple):
    """Each client's last reported loss, and the weights that follow (`fedsim.aggregators.arfl_weights`)."""

    num_examples: Array
    """[N] int32."""
    losses: Array
    """[N] last loss, smoothed if `smoothing` is set; a client whose loss is not finite has weight 0."""
    alpha: Array
    """[N] weights that sum to 1; all 0 if no loss is finite."""
    num_selected: Array
    """[] int32, p: clients with a positive weight."""
    average_loss: Array
    """[] the p-average loss."""
    threshold: Array
    """[] loss from which a client's weight is zero."""
    lam: Array | None = None
    """[] `lam` that reaches the target; None if it is fixed."""


def arfl(
    *,
    lam: Annotated[
        Scalar | Literal["auto"],
        Traced(**POSITIVE),
        "lambda in units of M, the number of training examples of all clients; auto: what reaches the target",
    ] = 1.0,
    target: Annotated[
        Scalar | None,
        Traced(ge=1),
        TARGET_LIMIT,
        OnlyIf("lam", "auto"),
        "number of clients that target_of counts; default: more than half",
    ] = None,
    target_of: Annotated[
        Literal["clients", "effective"],
        OnlyIf("lam", "auto"),
        "clients with a positive weight, or their effective number, n / (M_n sum_i alpha_i^2 / m_i)",
    ] = "clients",
    smoothing: Annotated[
        Scalar | None, Traced(ge=0, lt=1), "weight of the old loss in exponential smoothing; default: no smoothing"
    ] = None,
    source: Annotated[
        Literal["clients", "root"], "losses are reported by clients, or measured by the server on its root data"
    ] = "clients",
) -> Aggregator:
    """ARFL with lambda = `lam` * M, where M is the number of training examples of all clients (Algorithm 1).

    A round's weights are the cohort's alpha, normalized; then the cohort's new losses and numbers of examples replace
    the old ones, and alpha is recomputed for all clients. Losses that are measured after the server step
    (`client.loss_at = "aggregated"`) replace the old ones then. `lam` may be traced. If it is large, this is FedAvg; if
    it is small, only the client with the lowest loss counts.

    Beyond the paper:

    - `lam` "auto": whenever alpha is computed, lambda is the one that gives `target` clients a positive weight, or an
      effective number of `target` clients (`fedsim.aggregators.arfl_weights`). Default: floor(n / 2) + 1 of the n
      clients whose loss is known. The other clients have no weight, corrupted or not.
    - `smoothing` s: the stored loss is s times the old one plus 1 - s times the new one, so that a single low loss is
      not enough.
    - `source` "root": a client's loss is that of the broadcast model plus its update on the server's root data, and it
      replaces the old one before the round's weights are computed. Clients do not report losses, so they cannot forge
      them. A client that has not been in a cohort yet has no loss and no weight. The paper leaves this to future work.
    """

    def compute_state(num_examples: Array, losses: Array) -> ArflState:
        if not isinstance(lam, str):
            return ArflState(num_examples, losses, *arfl_weights(losses, num_examples, lam))
        majority = jnp.sum(jnp.isfinite(losses) & (num_examples > 0)) // 2 + 1
        lam_for_target = lam_for_clients if target_of == "clients" else lam_for_effective
        auto_lam = lam_for_target(losses, num_examples, majority if target is None else target)
        return ArflState(num_examples, losses, *arfl_weights(losses, num_examples, auto_lam), auto_lam)

    def init(variables: PyTree, num_examples: Array, losses: Array) -> ArflState:
        TARGET_LIMIT.check("target", target, num_examples.size)
        return compute_state(num_examples, losses if source == "clients" else jnp.full_like(losses, jnp.inf))

    def compute_weights(state: ArflState, report: CohortReport) -> tuple[Array, ArflState]:
        if source == "root":
            report = report._replace(losses=jnp.where(report.valid, report.measurements, jnp.nan))
            state = observe_losses(state, report)
        is_usable = report.valid & ~jnp.isinf(report.losses)  # NaN is not reported yet: the last loss still counts
        weights = normalize(jnp.where(is_usable, state.alpha[report.client_ids], 0.0))
        return weights, state if source == "root" else observe_losses(state, report)

    def observe_losses(state: ArflState, report: CohortReport) -> ArflState:
        last, new = state.losses[report.client_ids], report.losses
        if smoothing is not None:
            is_smoothed = jnp.isfinite(last) & jnp.isfinite(new)
            new = jnp.where(is_smoothed, smoothing * last + (1 - smoothing) * new, new)
        ids, answered = report.client_ids, ~jnp.isnan(new)
        losses = state.losses.at[ids].set(jnp.where(answered, new, last))
        num_examples = jnp.where(answered, report.num_examples, state.num_examples[ids])
        return compute_state(state.num_examples.at[ids].set(num_examples), losses)

    def measure(root: RootEvaluator, report: CohortReport) -> Array:
        losses = root.losses(report.updates)
        return jnp.where(jnp.isfinite(losses), losses, jnp.inf)

    return from_weights(
        compute_weights,
        init,
        lambda state: state.alpha,
        lambda state: {} if state.lam is None else {"lam": state.lam},
        observe_losses=observe_losses if source == "clients" else None,
        measure=measure if source == "root" else None,
    )
