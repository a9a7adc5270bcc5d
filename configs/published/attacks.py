"""Attacks of published programs, as those programs define them."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from fedsim import Attack, AttackContext, Bounds
from fedsim.attacks import gaussian, honest_mask, honest_mean, honest_std
from fedsim.core.settings import Traced
from fedsim.trees import expand_like, gram_matrix, select_clients, squared_distances, squared_norms, sum_of_nearest

NumMalicious = Annotated[int, Bounds(ge=2), "clients that are malicious, drawn anew in each round"]
WARMUP_ROUNDS = 2  # without attack


class FlandersState(NamedTuple):
    """What FLANDERS' attackers keep between rounds."""

    round: Any
    """Completed rounds []."""
    reference: Any
    """The model that client 0 trained in the first round."""


def _flanders(num_malicious: int, forge: Callable[[AttackContext, Any, Any], Any]) -> Attack:
    """From the third round on, `num_malicious` clients, drawn anew in each, send `forge(context, reference, key)`.

    flwrlabs/flower, baselines/flanders/flanders/server.py: fit_round. To fedsim all clients must be malicious, since it
    is drawn here who is.
    """

    def init(variables: Any, num_examples: Any) -> FlandersState:
        del num_examples
        return FlandersState(jnp.int32(0), variables)

    def forge_updates(state: FlandersState, context: AttackContext, key: Any) -> tuple[Any, Any]:
        draw_key, forge_key = jax.random.split(key)
        valid, updates, ids = context.report.valid, context.report.updates, context.report.client_ids
        draws = jnp.where(valid, jax.random.uniform(draw_key, valid.shape), 1.0)
        drawn = valid & (jnp.argsort(jnp.argsort(draws)) < num_malicious) & (state.round >= WARMUP_ROUNDS)
        forged = forge(context._replace(malicious=drawn), state.reference, forge_key)
        sent = select_clients(drawn, jax.tree.map(lambda f, u: jnp.broadcast_to(f, u.shape), forged, updates), updates)
        trained = jax.tree.map(lambda w, u: w + u[jnp.argmin(ids)], context.variables, updates)
        reference = jax.tree.map(lambda new, old: jnp.where(state.round == 0, new, old), trained, state.reference)
        return sent, FlandersState(state.round + 1, reference)

    return Attack(init, forge_updates=forge_updates)


def flanders_gaussian(*, num_malicious: NumMalicious = 20, std: float = 10.0) -> Attack:
    """Their own model plus N(0, std^2): gaussian_attack."""
    noise = gaussian(std=std, center="update").forge_updates
    return _flanders(num_malicious, lambda context, reference, key: noise((), context, key)[0])


def flanders_lie(*, num_malicious: NumMalicious = 20) -> Attack:
    """mean - z sqrt(std) over all clients, with z = Phi((n - m - s) / (n - m)) of n clients, m of them malicious.

    lie_attack. ALIE has the inverse of Phi and std.
    """

    def forge(context: AttackContext, reference: Any, key: Any) -> Any:
        del reference, key
        n, m = jnp.sum(context.report.valid), num_malicious
        z = ndtr((n - m - (n // 2 + 1 - m)) / (n - m))
        mean, std = _of_everyone(context)
        return jax.tree.map(lambda center, spread: center - z * jnp.sqrt(spread), mean, std)

    return _flanders(num_malicious, forge)


def flanders_min_max(*, num_malicious: NumMalicious = 20) -> Attack:
    """mean - gamma std over all clients: minmax_attack.

    Its search halves the step before it has taken it whole: it tries 2.5 to 7.5 only, and sends 6 if none of them is
    near enough, which is so in practice.
    """

    def forge(context: AttackContext, reference: Any, key: Any) -> Any:
        del reference, key
        mean, std = _of_everyone(context)
        honest = honest_mask(context)
        distances = squared_distances(gram_matrix(context.report.updates))
        diameter = jnp.max(jnp.where(honest[:, None] & honest[None], distances, 0))
        sent = lambda gamma: jax.tree.map(lambda center, spread: center - gamma * spread, mean, std)

        def is_near(gamma: Any) -> Any:
            away = squared_norms(jax.tree.map(lambda u, c: u - c[None], context.report.updates, sent(gamma)))
            return jnp.max(jnp.where(honest, away, 0)) < diameter

        def halve(_: int, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            gamma, step, best = carry
            near = is_near(gamma)
            return gamma + jnp.where(near, step, -step), step / 2, jnp.where(near, gamma, best)

        start = jnp.float32(5.0), jnp.float32(1.25), jnp.float32(6.0)
        return sent(jax.lax.fori_loop(0, 18, halve, start)[2])  # until the step is 1e-5

    return _flanders(num_malicious, forge)


def flanders_opt(*, num_malicious: NumMalicious = 20) -> Attack:
    """w - lambda sign(w), with w the model that client 0 trained in the first round: fang_attack.

    lambda is halved until Krum, whatever the server's rule, would choose a malicious client. Fang's attack shifts the
    broadcast model against the sign of the honest mean.
    """

    def forge(context: AttackContext, reference: Any, key: Any) -> Any:
        del key
        updates, valid = context.report.updates, context.report.valid
        from_reference = jax.tree.map(lambda w, u, r: u + (w - r)[None], context.variables, updates, reference)
        leaves = jax.tree.leaves(from_reference)
        n, honest = jnp.sum(valid), honest_mask(context)
        score = lambda x: sum_of_nearest(squared_distances(gram_matrix(x)), valid, n - num_malicious - 2)
        smallest = jnp.min(jnp.where(honest, score(from_reference), jnp.inf))
        smallest = smallest / ((n - 2) * (num_malicious - 1) * jnp.sqrt(len(leaves)))
        lengths = sum(jnp.sqrt(squared_norms(leaf)) for leaf in leaves)
        largest = jnp.max(jnp.where(honest, jnp.square(lengths), 0)) / jnp.sqrt(len(leaves))

        def is_chosen(scale: Any) -> Any:
            shifted = lambda u, r: jnp.where(expand_like(context.malicious, u), -scale * jnp.sign(r)[None], u)
            scores = jnp.where(valid, score(jax.tree.map(shifted, from_reference, reference)), jnp.inf)
            return context.malicious[jnp.argmin(scores)]

        goes_on = lambda scale: (scale > 1e-5) & ~is_chosen(scale)
        scale = jax.lax.while_loop(goes_on, lambda scale: scale / 2, jnp.minimum(smallest + largest, 999.0))
        return jax.tree.map(lambda w, r: r - scale * jnp.sign(r) - w, context.variables, reference)

    return _flanders(num_malicious, forge)


def _of_everyone(context: AttackContext) -> tuple[Any, Any]:
    """Mean and standard deviation of all clients' updates, also of malicious ones."""
    everyone = context._replace(malicious=jnp.zeros_like(context.malicious))
    return honest_mean(everyone), honest_std(everyone)


def no_momentum(
    *,
    beta: Annotated[float, Traced(ge=0, lt=1), "decay of the clients' momentum"] = 0.9,
    scale: Annotated[float, Traced(), "multiplies the update; -1 flips its sign"] = 1.0,
) -> Attack:
    """Malicious clients send scale x their update without momentum, for worker momentum: scale (m_t - beta m_(t-1)).

    epfml/byzantine-robust-noniid-optimizer, codes/worker.py: honest workers alone are `MomentumWorker`s. All
    clients must take part in each round.
    """

    def init(variables: Any, num_examples: Any) -> Any:
        return jax.tree.map(lambda w: jnp.zeros((len(num_examples), *w.shape), w.dtype), variables)

    def forge(state: Any, context: AttackContext, key: Any) -> tuple[Any, Any]:
        del key
        ids, updates = context.report.client_ids, context.report.updates
        forged = jax.tree.map(lambda m, last: scale * (m - beta * last[ids]), updates, state)
        return forged, jax.tree.map(lambda m, last: last.at[ids].set(m), updates, state)

    return Attack(init, forge_updates=forge)
