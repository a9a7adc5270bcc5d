"""Plug-ins in one file, one of each kind that a configuration can name."""

from typing import Annotated, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import fedsim
from fedsim import Bounds, Scalar, Traced
from fedsim.aggregators import from_weights

# A rule with state, a traced setting and recorded info


class TrustState(NamedTuple):
    trust: jax.Array
    """[N] smoothed cosine similarity of a client's updates with the cohort's mean."""
    rounds: jax.Array
    """[] rounds so far."""


def trust(*, decay: Annotated[Scalar, Traced(ge=0, lt=1), "decay of the old trust"] = 0.5) -> fedsim.Aggregator:
    """Weights proportional to the smoothed cosine similarity with the mean update."""

    def init(variables, num_examples, losses):
        del variables, losses
        return TrustState(jnp.ones(num_examples.shape), jnp.int32(0))

    def compute_weights(state, report, key):
        del key
        flat = jnp.concatenate([u.reshape(u.shape[0], -1) for u in jax.tree.leaves(report.updates)], axis=1)
        mean = jnp.sum(jnp.where(report.valid[:, None], flat, 0), axis=0) / jnp.maximum(jnp.sum(report.valid), 1)
        norms = jnp.linalg.norm(flat, axis=1) * jnp.linalg.norm(mean)
        cosine = (flat @ mean) / jnp.where(norms > 0, norms, 1.0)
        new_trust = decay * state.trust[report.client_ids] + (1 - decay) * jnp.maximum(cosine, 0.01)
        weights = jnp.where(report.valid, new_trust, 0.0)
        total = jnp.sum(weights)
        kept = jnp.where(report.valid, new_trust, state.trust[report.client_ids])
        state = TrustState(state.trust.at[report.client_ids].set(kept), state.rounds + 1)
        return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), 0.0), state

    info = lambda state: {"mean_trust": jnp.mean(state.trust), "rounds": state.rounds}
    return from_weights(compute_weights, init, info=info)


# A pre-aggregator that averages pairs of clients


def pairs():
    """Each row is the mean of two consecutive clients: bucketing without a permutation."""

    def pre_aggregate(report, key):
        del key
        k = report.valid.size
        bucket = jnp.arange(k)[None] // 2 == jnp.arange(-(-k // 2))[:, None]  # [K', K]
        members = bucket & report.valid[None]
        mixing = members / jnp.maximum(jnp.sum(members, axis=1, keepdims=True), 1)
        first = jnp.argmax(members, axis=1)
        return report._replace(
            client_ids=report.client_ids[first],
            num_examples=jnp.sum(jnp.where(members, report.num_examples, 0), axis=1),
            losses=mixing @ jnp.where(jnp.isfinite(report.losses), report.losses, 0.0),
            updates=jax.tree.map(lambda u: jnp.tensordot(mixing, u, axes=1), report.updates),
            valid=jnp.any(members, axis=1),
            mixing=mixing,
        )

    return pre_aggregate


# An attack that searches its most damaging strength against the server's rule


def searching(
    *, max_strength: Annotated[Scalar, Traced(gt=0), "the largest strength that is tried"] = 8.0
) -> fedsim.Attack:
    """Malicious clients send minus the honest mean, scaled such that the aggregate moves farthest from it."""

    def forge_updates(state, context, key):
        del key
        report = context.report
        honest = report.valid & ~context.malicious
        weights = honest / jnp.maximum(jnp.sum(honest), 1)
        mean = jax.tree.map(lambda u: jnp.tensordot(weights, u, axes=1), report.updates.params)

        def forge(strength):
            malicious = lambda u: context.malicious.reshape(-1, *[1] * (u.ndim - 1))
            replace = lambda u, m: jnp.where(malicious(u), -strength * m[None], u)
            return report.updates._replace(params=jax.tree.map(replace, report.updates.params, mean))

        def damage(strength):
            update = context.aggregate(report._replace(updates=forge(strength))).update
            distances = jax.tree.map(lambda a, b: jnp.sum(jnp.square(a - b)), update.params, mean)
            return sum(jax.tree.leaves(distances))

        strengths = max_strength * jnp.arange(1, 5) / 4
        best = strengths[jnp.argmax(jax.vmap(damage)(strengths))]
        return forge(best), jnp.maximum(state, best)

    return fedsim.Attack(init=lambda variables, num_examples: jnp.float32(0), forge_updates=forge_updates)


# A local training algorithm, a corruption


def my_scaffold() -> fedsim.Algorithm:
    """SCAFFOLD, option II."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return zeros, zeros

    def train(local, client_state, server_state):
        correct = lambda gradient, params: jax.tree.map(
            lambda g, c_k, c: g - c_k + c, gradient, client_state, server_state
        )
        trained = local.sgd(correct)
        scale = 1 / jnp.maximum(jnp.maximum(local.num_steps, 1) * local.learning_rate, 1e-30)  # a schedule may end at 0
        new = lambda c_k, c, x, y: c_k - c + scale * (x - y)
        control = jax.tree.map(new, client_state, server_state, local.start.params, trained.params)
        return fedsim.LocalResult(trained, control, jax.tree.map(jnp.subtract, control, client_state))

    def update_server_state(server_state, messages, valid, num_clients):
        del valid
        return jax.tree.map(lambda c, changes: c + jnp.sum(changes, axis=0) / num_clients, server_state, messages)

    return fedsim.Algorithm(init, train, update_server_state)


def personal() -> fedsim.Algorithm:
    """Training that is pulled to the client's model of its last round, at first the initial model."""

    def train(local, client_state, server_state):
        pull = lambda gradient, params: jax.tree.map(lambda g, p, c: g + 0.5 * (p - c), gradient, params, client_state)
        trained = local.sgd(pull)
        return fedsim.LocalResult(trained, trained.params, ())

    return fedsim.Algorithm(lambda params: (params, ()), train, lambda server_state, messages, valid, num_clients: ())


def blank(*, value: Annotated[float, Bounds(ge=0, le=1), "value of the inputs"] = 0.0) -> fedsim.Corruption:
    """All inputs of a corrupted client become `value`."""

    def apply(data, corrupted, spec, key):
        del key, spec
        owner = jnp.searchsorted(data.offsets, jnp.arange(data.y.shape[0]), side="right") - 1
        corrupted_mask = corrupted[owner].reshape(-1, *[1] * (data.x.ndim - 1))
        return data._replace(x=jnp.where(corrupted_mask, jnp.asarray(value, data.x.dtype), data.x))

    return fedsim.Corruption(apply, frozenset({"x"}))


# A model with batch statistics, a regression task with a frozen array, a data set of each kind


class Normed(nn.Module):
    num_classes: int

    @nn.compact
    def __call__(self, x, train=False, mask=None):
        x = nn.Dense(8)(x)
        mask = None if mask is None else mask[:, None]
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x, mask=mask)
        return nn.Dense(self.num_classes)(nn.relu(x))


def normed(spec: fedsim.DataSpec) -> Normed:
    return Normed(spec.num_outputs)


def features(spec: fedsim.DataSpec, *, width: Annotated[int, Bounds(ge=1), "number of features"] = 6) -> fedsim.Task:
    """Linear regression on frozen random features."""
    projection = np.random.default_rng(0).normal(size=(*spec.shape, width)).astype(np.float32)

    def make_task(frozen) -> fedsim.Task:
        def errors(params, x, y):
            return jnp.square(jnp.tanh(x @ frozen) @ params["w"] - y) / 2

        def init(key):
            return {"w": 0.1 * jax.random.normal(key, (width,))}

        def loss(params, x, y, mask, key):
            del key
            return jnp.sum(jnp.where(mask, errors(params, x, y), 0)) / jnp.maximum(jnp.sum(mask), 1)

        def metrics(params, x, y, mask):
            total = jnp.sum(jnp.where(mask, errors(params, x, y), 0))
            return fedsim.Metrics(total, jnp.float32(jnp.nan), jnp.sum(mask))

        return fedsim.stateless(init, loss, metrics)

    return fedsim.with_frozen(make_task, projection)


def blobs(
    seed: int, *, spread: Annotated[float, Bounds(gt=0), "standard deviation of each class"] = 1.0
) -> fedsim.RawDataset:
    """Three classes in the plane."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 160)
    x = (3 * np.eye(3, 2)[y] + spread * rng.normal(size=(160, 2))).astype(np.float32)
    return fedsim.RawDataset("blobs", x[:120], y[:120], x[120:], y[120:], 3, "vector")


def slopes(seed: int) -> fedsim.RawDataset:
    """A regression."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(160, 2)).astype(np.float32)
    y = np.sin(x[:, 0]).astype(np.float32)
    return fedsim.RawDataset("slopes", x[:120], y[:120], x[120:], y[120:], 0, "vector")


def halves(raw: fedsim.RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """The first client has half of the examples, the others have the rest."""
    owner = rng.integers(1, num_clients, len(raw.y))
    owner[: len(raw.y) // 2] = 0
    owner[-num_clients:] = np.arange(num_clients)  # all clients have examples
    return owner
