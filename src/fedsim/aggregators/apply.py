"""A rule applied to plain arrays, without a simulation."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedsim.core.contracts import Aggregator, PreAggregator, RootEvaluator
from fedsim.core.reports import mask_nonfinite
from fedsim.core.server import make_server
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Variables


def apply(
    rule: Aggregator,
    updates: PyTree,
    *,
    pre_aggregators: Sequence[PreAggregator] = (),
    weighting: Aggregator | None = None,
    num_examples: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    valid: ArrayLike | None = None,
    root_losses: ArrayLike | None = None,
    root_update: PyTree | None = None,
    key: Array | None = None,
) -> Aggregate:
    """Aggregates `updates`, an array [K, d] or a pytree of arrays [K, ...], as in the rule's first round.

    Returns an `Aggregate`: `update` [d], or a pytree like one client's; `weights` [K] of the clients; and `info`, the
    scalars that the rule records. Clients are numbered 0 to K - 1, and clients with non-finite updates are invalid. May
    be called inside `jax.jit`.

    - `pre_aggregators` change the updates before the rule.
    - `weighting`: a rule whose weights take the place of the numbers of examples, as in `Method`.
    - `num_examples` [K]: 1 by default.
    - `losses` [K] at the broadcast model: `arfl` and other rules that use losses need them.
    - `valid` [K] bool: the clients that answered; all by default.
    - `root_losses` [K] on the server's root data, of the broadcast model plus each update: `zeno` and
      `arfl(source="root")` need them.
    - `root_update`, like one client's update: the server's own update, which `fltrust` needs.
    - `key` of the rules that draw random numbers; `jax.random.key(0)` by default.

    Raises `ValueError` if the shapes do not fit, or if the rule needs an argument that is missing.

    >>> import fedsim
    >>> updates = [[1.0, 0.0], [2.0, 1.0], [300.0, -50.0]]
    >>> result = fedsim.aggregators.apply(fedsim.aggregators.median(), updates)
    >>> result.update.tolist()
    [2.0, 0.0]
    >>> fedsim.aggregators.apply(fedsim.aggregators.krum(num_byzantine=1), updates).weights.tolist()
    [1.0, 0.0, 0.0]
    """
    tree = _to_arrays(updates)
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    if not shapes or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(f"updates: must be arrays [K, ...] of the same K clients, got shapes {shapes}")
    num_clients = shapes[0][0]
    uses_losses = any(part is not None and part.observe_losses is not None for part in (rule, weighting))
    if losses is None and uses_losses:
        raise ValueError("losses: must be an array [K] because the rule uses losses, got None")

    def as_vector(name: str, value: ArrayLike | None, default: float, size: int = num_clients) -> Array:
        array = jnp.full(size, default) if value is None else jnp.asarray(value)
        if array.shape != (size,):
            raise ValueError(f"{name}: must have shape ({size},), got {array.shape}")
        return array

    def get_root_losses(updates: PyTree) -> Array:
        if root_losses is None:
            raise ValueError("root_losses: must be an array [K] because the rule measures losses, got None")
        return as_vector("root_losses", root_losses, 0.0, len(jax.tree.leaves(updates)[0]))

    def get_root_update() -> PyTree:
        if root_update is None:
            raise ValueError("root_update: must be like one client's update because the rule uses it, got None")
        return _to_arrays(root_update)

    if num_examples is not None:
        _require_integers("num_examples", num_examples)
    report = CohortReport(
        client_ids=jnp.arange(num_clients),
        num_examples=as_vector("num_examples", num_examples, 1).astype(jnp.int32),
        losses=as_vector("losses", losses, jnp.nan).astype(jnp.float32),
        updates=tree,
        valid=as_vector("valid", valid, True).astype(bool),
    )
    masked = mask_nonfinite(report, require_finite_losses=False)
    if losses is None:
        masked = masked._replace(losses=report.losses)
    server = make_server(rule, pre_aggregators, weighting)
    state = server.init(jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), tree), masked.num_examples, masked.losses)
    key = jax.random.key(0) if key is None else key
    root = RootEvaluator(get_root_losses, get_root_update)
    result, _ = server.aggregate(masked, state, (key, key), lambda: root)
    return result if isinstance(updates, Variables) else result._replace(update=result.update.params)


def _require_integers(name: str, values: ArrayLike) -> None:
    """Raises `ValueError` if some of `values` are not whole; traced numbers pass."""
    if any(isinstance(value, jax.core.Tracer) for value in jax.tree.leaves(values)):
        return
    array = np.asarray(values)
    with np.errstate(invalid="ignore"):  # infinity has no remainder
        is_fraction = np.mod(array, 1) != 0
    if np.any(is_fraction):
        raise ValueError(f"{name}: must be integers, got {array[is_fraction][0]:g}")


def _to_arrays(updates: PyTree) -> Variables:
    """`updates` as `Variables` of arrays; only statistics may be integers."""
    if isinstance(updates, Variables):
        return jax.tree.map(jnp.asarray, updates)
    if all(jnp.ndim(leaf) == 0 for leaf in jax.tree.leaves(updates)):  # nested lists of numbers
        return Variables(jnp.asarray(updates, jnp.float32))

    def to_floats(leaf: ArrayLike) -> Array:
        dtype = jnp.asarray(leaf).dtype
        least = jnp.float16 if jnp.issubdtype(dtype, jnp.floating) else jnp.float32
        return jnp.asarray(leaf, jnp.promote_types(dtype, least))

    return Variables(jax.tree.map(to_floats, updates))
