"""Faulty rules, at least one per clause, and the messages about them; `test_built_in.py` runs them."""

import jax
import jax.numpy as jnp

from fedsim import Aggregate, Aggregator
from fedsim.aggregators import fedavg
from fedsim.core.client import lockstep_max


def rule(change=lambda result, report: result, state=0.0, step=lambda state, report: state, alpha=lambda state: None):
    """FedAvg with changes: of its result, of the state before the first round and after each, of its weights."""

    def aggregate(now, report, key):
        result, _ = fedavg().aggregate((), report, key)
        return change(result, report), step(now, report)

    return Aggregator(lambda variables, num_examples, losses: jnp.asarray(state), aggregate, alpha)


def weights(compute):
    """A rule with the weights `compute(report)`."""

    def change(result, report):
        values = compute(report).astype(jnp.float32)
        update = jax.tree.map(lambda u: jnp.tensordot(values, u, axes=1), report.updates)
        return Aggregate(update, values)

    return rule(change)


def update(f):
    return rule(lambda result, report: result._replace(update=jax.tree.map(f, result.update, report.updates)))


def become_float_in_round_2(state, report):
    return (state + 1).astype(jnp.float32) if int(state) >= 1 else state + 1


def mean_loss(state, report):
    return jnp.sum(jnp.where(report.valid, report.losses, 0)) / jnp.sum(report.valid)


FAULTY = [
    ("state", rule(state=0.0, step=mean_loss), r"in round \d+ \(no valid clients\) the state must not become NaN"),
    (
        "state",
        rule(state=0, step=become_float_in_round_2),
        r"after round 2 the state must be int32\[\], got float32\[\]",
    ),
    ("shapes", update(lambda u, all_: u[None]), r"the update.*\['b'\] must be float32\[2\], got float32\[1, 2\]"),
    (
        "finite",
        weights(lambda r: r.valid * r.num_examples / jnp.sum(r.valid * r.num_examples)),
        "with no valid clients the update must be finite",
    ),
    ("weights", weights(lambda r: r.valid), "with typical clients the weights must sum to 1 or 0, got 7"),
    ("weights", weights(lambda r: jnp.where(jnp.arange(7) < 4, 1, -1)), "the weights must not be negative, got -1"),
    ("invalid", weights(lambda r: jnp.full(7, 1 / 7)), "the weights of invalid clients must be 0"),
    ("no_valid_clients", update(lambda u, all_: u + 0.1), "without valid clients the update must be 0"),
    ("client_weights", rule(state=jnp.ones(12), alpha=lambda state: state), "alpha must sum to 1 or 0, got 12"),
    (
        "info",
        rule(lambda result, report: result._replace(info={"weights": result.weights})),
        r"weights must be a scalar, got float32\[7\]",
    ),
    (
        "jit",
        weights(lambda r: r.valid / r.valid.sum() if bool(r.valid.any()) else r.valid),
        "TracerBoolConversionError",
    ),
    (
        "vmap",
        weights(lambda r: r.valid / jnp.maximum(lockstep_max(jnp.sum(r.valid)), 1)),
        "inside jax.vmap the result differs .*: by",
    ),
    (
        "trace",
        rule()._replace(init=lambda model, sizes, losses: jnp.float32(float(sizes[0]))),
        "ConcretizationTypeError",
    ),
    ("trace", rule(alpha=lambda state: None if float(state) == 0 else jnp.ones(12) / 12), "ConcretizationTypeError"),
    ("trace", rule()._replace(measure=lambda root, report: float(report.losses[0])), "ConcretizationTypeError"),
    (
        "order",
        update(lambda u, all_: all_[0]),
        "with typical clients the update must not depend on the order of the clients",
    ),
    (
        "observe_losses",
        rule()._replace(observe_losses=lambda state, report: report.losses),
        r"after the losses of typical clients the state must be float32\[\], got float32\[7\]",
    ),
    (
        "observe_losses",
        rule()._replace(observe_losses=lambda state, report: state + isinstance(state, jax.core.Tracer)),
        "inside jax.jit the state differs",
    ),
    (
        "gradient",
        update(lambda u, all_: jax.lax.while_loop(lambda v: jnp.sum(v**2) > 1, lambda v: v / 2, u)),
        "Reverse-mode differentiation does not work for lax.while_loop",
    ),
    (
        "gradient",
        update(lambda u, all_: u + jnp.sqrt(0 * jnp.sum(all_))),
        "with typical clients the derivative by the updates must be finite",
    ),
    (
        "identical",
        update(lambda u, all_: jnp.clip(u, -0.1, 0.1)),
        "the update must be that of the clients if all send the same one, but differs: by",
    ),
    (
        "identical",
        update(lambda u, all_: jnp.mean(all_, axis=0)),
        "the update must be that of the valid clients if all send the same one, but differs: by",
    ),
    (
        "identical",
        update(lambda u, all_: jnp.median(all_, axis=0)),
        "the update must be that of the valid clients if all send the same one, but differs: by",
    ),
]
