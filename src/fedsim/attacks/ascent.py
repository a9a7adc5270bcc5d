"""Gradient ascent on what malicious clients send, through the server's own stages, rule and step.

Adaptive attacks decide whether a defense holds: Tramer, Carlini, Brendel, Madry: "On Adaptive Attacks to Adversarial
Example Defenses", NeurIPS 2020, https://arxiv.org/abs/2002.08347. Steps that adapt, so that no strength has to be
chosen, are those of Croce, Hein: "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse
Parameter-free Attacks", ICML 2020, https://arxiv.org/abs/2003.01690.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.attacks.alie import Knowledge
from fedsim.attacks.gaussian import draw_noise
from fedsim.attacks.honest import (
    broadcast_update,
    cast_like_report,
    honest_deviations,
    honest_mask,
    honest_mean,
    honest_std,
    honest_weights,
    malicious_mask,
    shift_mean,
    to_float32,
)
from fedsim.attacks.min_max import min_max_update
from fedsim.attacks.search import aggregate_forged, aggregate_with, geometric_grid
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.selection import smooth_selection
from fedsim.core.settings import Bounds
from fedsim.core.trees import inner_products, nonzero, select_clients, squared_norm, squared_norms, weighted_sum
from fedsim.core.types import Aggregate, Array, PyTree, Scalar, Updates

STRENGTHS = 0.01, 100.0, 8  # along each line from the honest mean: the smallest, the largest, their number
EXTREME = 100.0  # standard deviations of the updates that are beyond all others in each coordinate
GROWTH = 2.0  # of the step after a better point
TEMPERATURES = 0.03, 30.0  # of selections, after a worse point
MAX_EXTRA = 1024  # random numbers beyond those of a step
SIZES = 0.001, 1.0  # of the step after a worse point, in units of the honest updates' distance from their mean

Objective = Callable[[Aggregate], Float[Array, ""]]
Outcome = Callable[[Updates, Scalar], tuple[Float[Array, ""], PyTree]]
"""Score and aggregated update of forged updates, with a temperature of selections."""


class AscentState(NamedTuple):
    """What the attackers keep between rounds."""

    sent: PyTree
    """What they sent last: the mean of their updates minus that of the honest ones, float32."""
    drift: PyTree
    """Sum over the rounds of the aggregate minus the honest mean, float32."""


class Point(NamedTuple):
    """Updates of the malicious clients, and how much damage they do."""

    forged: Updates
    """float32; only the rows of malicious clients count."""
    score: Float[Array, ""]
    gradient: Updates
    """Of the score."""
    slope: Float[Array, ""]
    """The gradient's norm."""
    update: PyTree
    """Of the aggregate."""


def ascent(
    *,
    objective: Annotated[
        Literal["distance", "drift", "loss"],
        "what is maximized: the aggregate's distance from the honest mean, its shift along those of earlier rounds, or "
        "the honest clients' loss after the server's step",
    ] = "distance",
    num_steps: Annotated[int, Bounds(ge=1, le=1000), "steps from each start"] = 10,
    knowledge: Annotated[Knowledge, "whether they know all updates, or take their own ones for those of all"] = "all",
) -> Attack:
    """Malicious clients send the most damaging updates that gradient ascent finds, each its own.

    The gradient of the objective goes through the pre-aggregators and the rule, for "loss" also through the server's
    step and the model, on a batch of each honest client. Steps have the gradient's direction, or a random one where it
    is zero. They double after each better point. After a worse one they go back, and the gradient is computed again,
    with selections of a random temperature in rules that choose clients by scores, so that it also tells how to be
    chosen. From then on lengths are random after worse points, and half of the steps have a random part. Ascent starts
    from the best points of the lines mean + z std, mean - z std and mean - z mean (ALIE, IPM, the sign flip), from the
    most damaging copy of an honest update (mimic), from Min-Max, from values that are extreme in the worse direction of
    each coordinate, and from what was sent in the round before; it goes on from the best for three times as many steps.
    Without honest clients they send zeros.
    """

    def init(variables: PyTree, num_examples: Array) -> PyTree:
        zeros = jax.tree.map(lambda w: jnp.zeros(w.shape, jnp.float32), variables)
        return AscentState(zeros, zeros)

    def forge_updates(state: AscentState, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        known = context if knowledge == "all" else own_view(context)
        loss_key, climb_key, noise_key = jax.random.split(key, 3)
        bank = _draw_bank(noise_key, known)
        maximized = _objective(objective, state, known, loss_key)

        def outcome(forged: Updates, temperature: Scalar) -> tuple[Array, PyTree]:
            with smooth_selection(temperature):
                aggregate = aggregate_forged(cast_like_report(forged, known), known)
            return maximized(aggregate), aggregate.update

        starts = _starts(state, maximized, known)
        num_starts = len(jax.tree.leaves(starts)[0])

        def climb(i: Array, best: Point) -> Point:
            """The better one of `best` and the point that ascent from start i reaches, or from `best` at the end."""
            is_last = i == num_starts
            of_start = jax.tree.map(lambda a: a[jnp.minimum(i, num_starts - 1)], starts)
            start = to_float32(broadcast_update(of_start, known))
            start = jax.tree.map(partial(jnp.where, is_last), best.forged, start)
            steps = jnp.where(is_last, 3 * num_steps, num_steps)
            top = _climb(outcome, start, steps, known, jax.random.fold_in(climb_key, i), bank, i * (num_steps + 1))
            return jax.tree.map(partial(jnp.where, top.score > best.score), top, best)

        best = jax.lax.fori_loop(0, num_starts + 1, climb, _unevaluated(to_float32(known.report.updates)))
        forged = jax.tree.map(lambda u: jnp.where(jnp.any(honest_mask(known)), u, 0.0), best.forged)
        return cast_like_report(forged, context), _next_state(state, best, known)

    return Attack(init, forge_updates=forge_updates)


def own_view(context: AttackContext) -> AttackContext:
    """The context of attackers that see their own reports alone: in place of honest ones, in turn."""
    own, rows = malicious_mask(context), jnp.arange(context.malicious.size)
    nth_own = jnp.argsort(~own)[jnp.cumsum(~own) % jnp.maximum(jnp.sum(own), 1)]
    source = jnp.where(own, rows, nth_own)
    report = context.report
    updates = jax.tree.map(lambda u: u[source], report.updates)
    report = report._replace(updates=updates, losses=report.losses[source], num_examples=report.num_examples[source])
    next_loss = context.next_loss
    of_own = None if next_loss is None else lambda aggregate, mask, key: next_loss(aggregate, own, key)
    return context._replace(report=report, next_loss=of_own)


def _objective(name: str, state: AscentState, context: AttackContext, key: Array) -> Objective:
    """What is maximized, of an aggregate; minus infinity where it is not finite."""
    mean, next_loss = honest_mean(context), context.next_loss
    if name == "loss" and next_loss is None:
        raise ValueError("objective: must be distance or drift outside of a round, which has losses, got loss")

    def objective(aggregate: Aggregate) -> Array:
        shift = _minus(aggregate.update, mean)
        if name == "loss" and next_loss is not None:
            value = next_loss(aggregate, honest_mask(context), key)
        else:
            value = squared_norm(shift)
        if name == "drift":  # in the first round there is none, and the distance counts
            along = inner_products(jax.tree.map(lambda a: a[None], shift), state.drift)[0]
            value = jnp.where(squared_norm(state.drift) > 0, along, value)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    return objective


def _starts(state: AscentState, objective: Objective, context: AttackContext) -> Updates:
    """Updates [S, ...] from which to ascend, each sent by all malicious clients alike."""
    mean, std = honest_mean(context), honest_std(context)
    minus = lambda tree: jax.tree.map(jnp.negative, tree)

    def try_out(update: PyTree) -> tuple[Array, Array]:
        """The damage of `update`, and whether it reaches the aggregate."""
        aggregate = aggregate_with(update, context)
        return objective(aggregate), jnp.vdot(aggregate.weights, malicious_mask(context)) > 0

    row = lambda updates, i: jax.tree.map(lambda u: u[i], updates)
    along = lambda direction: jax.vmap(shift_mean, (None, 0, None))(mean, geometric_grid(*STRENGTHS), direction)
    means = broadcast_update(mean, context)  # in place of updates that are not honest
    copies = to_float32(select_clients(honest_mask(context), context.report.updates, means))
    tried = [*map(along, (std, minus(std), minus(mean))), copies]
    sizes = [len(jax.tree.leaves(updates)[0]) for updates in tried]
    candidates = _join(tried, jnp.concatenate)
    damages, reaches = jax.lax.map(try_out, candidates)
    of_reaching = jnp.where(reaches | ~jnp.any(reaches), damages, -jnp.inf)
    parts = jnp.split(of_reaching, list(accumulate(sizes))[:-1])
    extremes = _join([shift_mean(mean, z, std) for z in (-EXTREME, EXTREME)], jnp.stack)
    aggregated = jax.lax.map(lambda u: aggregate_with(u, context).update, extremes)
    distances = jax.tree.map(lambda u, m: jnp.abs(u.astype(jnp.float32) - m[None]), aggregated, mean)
    starts = [
        *(row(updates, jnp.argmax(part)) for updates, part in zip(tried, parts, strict=True)),
        row(candidates, jnp.argmax(damages)),
        min_max_update(context, "unit"),
        jax.tree.map(lambda d, u: jnp.where(d[0] > d[1], u[0], u[1]), distances, extremes),
        shift_mean(mean, 1.0, state.sent),
    ]
    return _join(starts, jnp.stack)


def _join(updates: list[PyTree], join: Callable[[tuple[Array, ...]], Array]) -> Updates:
    return jax.tree.map(lambda *leaves: join(leaves), *updates)


def _climb(
    outcome: Outcome,
    start: Updates,
    num_steps: Array,
    context: AttackContext,
    key: Array,
    bank: PyTree,
    first_step: Array,
) -> Point:
    """The best point of `num_steps` steps from `start`; `first_step` is the number of steps of other climbs."""
    own = malicious_mask(context)
    spread = jnp.sqrt(jnp.vdot(honest_weights(context), squared_norms(honest_deviations(context))))
    radius = jnp.sqrt(jnp.sum(own)) * jnp.where(spread > 0, spread, jnp.sqrt(squared_norm(honest_mean(context))))

    def step(t: Array, carry: tuple[Point, Array, Array, Array]) -> tuple[Point, Array, Array, Array]:
        best, size, temperature, looks_again = carry
        temperature_key, size_key, noise_key, share_key = jax.random.split(jax.random.fold_in(key, t), 4)
        redrawn = jnp.where(t > 0, _log_uniform(temperature_key, *TEMPERATURES), jnp.inf)  # first without any
        temperature = jnp.where(looks_again, redrawn, temperature)
        factors = own * draw_noise(noise_key, context.report.client_ids, own)
        noise = _window(bank, first_step + t, factors, best.forged)
        share = jnp.where(temperature < jnp.inf, jnp.maximum(0.0, jax.random.uniform(share_key, minval=-1.0)), 0.0)
        share = jnp.where(best.slope > 0, share, 1.0)
        of_gradient, of_noise = (1 - share) / nonzero(best.slope), share / nonzero(jnp.sqrt(squared_norm(noise)))
        direction = jax.tree.map(lambda g, n: of_gradient * g + of_noise * n, best.gradient, noise)
        length = jnp.where(looks_again, 0.0, size) / nonzero(jnp.sqrt(squared_norm(direction)))
        forged = jax.tree.map(lambda u, d: u + length * d, best.forged, direction)
        new = _evaluate(outcome, forged, temperature)
        is_better = new.score > best.score
        best = jax.tree.map(lambda a, b: jnp.where(is_better | looks_again, a, b), new, best)
        size = jnp.where(is_better & ~looks_again, GROWTH * size, size)
        size = jnp.where(looks_again & (t > 0), radius * _log_uniform(size_key, *SIZES), size)
        return best, size, temperature, ~is_better & ~looks_again

    carry = _unevaluated(start), radius, jnp.float32(jnp.inf), jnp.bool_(True)
    return jax.lax.fori_loop(0, num_steps + 1, step, carry)[0]


def _unevaluated(forged: Updates) -> Point:
    """A point that has not been evaluated."""
    zeros = jax.tree.map(jnp.zeros_like, forged)
    return Point(forged, jnp.float32(-jnp.inf), zeros, jnp.float32(0), jax.tree.map(lambda u: u[0], zeros))


def _log_uniform(key: Array, low: float, high: float) -> Array:
    return jnp.exp(jax.random.uniform(key, (), minval=math.log(low), maxval=math.log(high)))


def _draw_bank(key: Array, context: AttackContext) -> PyTree:
    """For each leaf [K, ...] of the updates random numbers [K, n], more than it has: each step takes a part."""
    longer = jax.tree.map(lambda u: jnp.zeros((len(u), u[0].size + _extra(u))), context.report.updates)
    return draw_noise(key, context.report.client_ids, longer)


def _window(bank: PyTree, step: Array, factors: Float[Array, " K"], like: Updates) -> Updates:
    """Random numbers of a step: a part of the bank times `factors`, since drawing new ones takes longer than a rule.

    The parts of two steps are as good as independent, although they overlap: each number stands at another place.
    """

    def leaf(numbers: Array, u: Array) -> Array:
        part = jax.lax.dynamic_slice_in_dim(numbers, step % (_extra(u) + 1), u[0].size, axis=1)
        return (factors[:, None] * part).reshape(u.shape)

    return jax.tree.map(leaf, bank, like)


def _extra(u: Array) -> int:
    return min(u[0].size, MAX_EXTRA)


def _evaluate(outcome: Outcome, forged: Updates, temperature: Scalar) -> Point:
    """The point, with zeros where its gradient is not finite, as Adam's is where updates were always zero."""
    (score, update), gradient = jax.value_and_grad(outcome, has_aux=True)(forged, temperature)
    gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradient)
    return Point(forged, score, gradient, jnp.sqrt(squared_norm(gradient)), to_float32(update))


def _next_state(state: AscentState, sent: Point, context: AttackContext) -> AscentState:
    own, mean = malicious_mask(context), honest_mean(context)
    shares = own / jnp.maximum(jnp.sum(own), 1).astype(jnp.float32)
    mean_sent = _minus(weighted_sum(shares, sent.forged), mean)
    is_known = jnp.any(own) & jnp.any(honest_mask(context)) & (sent.score > -jnp.inf)
    new = AscentState(mean_sent, jax.tree.map(jnp.add, state.drift, _minus(sent.update, mean)))
    return jax.tree.map(lambda a, b: jnp.where(is_known & jnp.isfinite(a), a, b), new, state)


def _minus(update: PyTree, mean: PyTree) -> PyTree:
    return jax.tree.map(lambda a, m: a.astype(jnp.float32) - m, update, mean)
