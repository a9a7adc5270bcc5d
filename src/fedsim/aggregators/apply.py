"""A rule applied to plain arrays, without a simulation."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedsim.aggregators.arrays import stack_clients, to_array, to_variables, to_vector
from fedsim.core.chain import ChainKeys, chain, is_pre_aggregator, run_rule
from fedsim.core.contracts import Aggregator, PreAggregator, RootEvaluator
from fedsim.core.draws import check_key
from fedsim.core.factories import Built
from fedsim.core.reports import mask_nonfinite, mask_nonfinite_updates
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Variables

MAX_PROGRAMS = 128
"""Compiled programs that are kept: each holds some of the system's limited number of memory maps."""


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
    scalars that the rule records. Clients are numbered 0 to K - 1, and clients with non-finite updates, or with norms
    from 1e17 on, are invalid. A list of K equal pytrees, one for each client, works, too.

    May be called inside `jax.jit`. Outside, it compiles once for each combination of rule, settings and shapes; numbers
    that a sweep may vary, such as `lam`, share a program.

    - `pre_aggregators` change the updates before the rule.
    - `weighting`: a rule whose weights take the place of the numbers of examples, as in `Method`.
    - `num_examples` [K]: 1 by default; their sum is below 2^31.
    - `losses` [K] at the broadcast model: `arfl` and other rules that use losses need them.
    - `valid` [K] bool: the clients that answered; all by default.
    - `root_losses` [K] on the server's root data, of the broadcast model plus each update: `zeno` and
      `arfl(source="root")` need them.
    - `root_update`, like one client's update: the server's own update, which `fltrust` needs.
    - `key` of the rules that draw random numbers; `jax.random.key(0)` by default.

    Raises `ValueError` if an argument has a wrong shape, type or value, or is missing although the rule needs it.

    >>> import fedsim
    >>> updates = [[1.0, 0.0], [2.0, 1.0], [300.0, -50.0]]
    >>> result = fedsim.aggregators.apply(fedsim.aggregators.median(), updates)
    >>> result.update.tolist()
    [2.0, 0.0]
    >>> fedsim.aggregators.apply(fedsim.aggregators.krum(num_byzantine=1), updates).weights.tolist()
    [1.0, 0.0, 0.0]
    """
    _check_parts(rule, pre_aggregators, weighting)
    stages = [*([] if weighting is None else [weighting]), *pre_aggregators, rule]
    if losses is None and any(part is not None and part.observe_losses is not None for part in (rule, weighting)):
        raise ValueError("losses: must be an array [K] because the rule uses losses, got None")
    tree = to_variables("updates", stack_clients(updates))
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    if not shapes or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(f"updates: must be arrays [K, ...] of the same K clients, got shapes {shapes}")
    if not sum(map(math.prod, shapes)):
        raise ValueError(f"updates: must have at least one client and one parameter, got shapes {shapes}")
    vectors = {"num_examples": num_examples, "losses": losses, "valid": valid}
    vectors = {name: to_vector(name, value, shapes[0][0]) for name, value in vectors.items() if value is not None}
    root: dict[str, Any] = {} if root_losses is None else {"root_losses": to_array("root_losses", root_losses)}
    root |= {} if root_update is None else {"root_update": to_variables("root_update", root_update)}
    parts, traced = zip(*map(_describe, stages), strict=True)
    arguments = traced, tree, vectors, root, jax.random.key(0) if key is None else check_key(key)
    leaves, structure = jax.tree.flatten(arguments)
    kinds = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    try:
        has_plugin = any(settings is None for _, settings in parts)
        if has_plugin and any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            raise TypeError("not to be kept: it may have captured traced values")
        program = _program(parts, structure, kinds)
    except TypeError:  # or a plug-in cannot be hashed
        program = _program.__wrapped__(parts, structure, kinds)
    result = program(*arguments)
    return result if isinstance(updates, Variables) else result._replace(update=result.update.params)


_Part: TypeAlias = tuple[Any, tuple[tuple[str, Any], ...] | None]
"""A factory, and the settings that shape a program; or a plug-in, and None."""


def _describe(part: Any) -> tuple[_Part, dict[str, Any]]:
    """A rule or pre-aggregator as a part of a program, and those of its settings that are arguments of the program."""
    built = Built.of(part)
    if built is None:
        return (part, None), {}
    return (built.make, tuple(built.fixed.items())), built.traced


@lru_cache(MAX_PROGRAMS)
def _program(parts: tuple[_Part, ...], structure: Any, shapes: Any) -> Callable[..., Aggregate]:
    """The compiled `_aggregate` for arguments of one structure, with one set of shapes, so that it can be freed."""
    return jax.jit(partial(_aggregate, parts))


def _aggregate(
    parts: tuple[_Part, ...],
    traced: tuple[dict[str, Any], ...],
    updates: Variables,
    vectors: dict[str, Array],
    root: dict[str, Any],
    key: Array,
) -> Aggregate:
    stages = [
        make if fixed is None else make(**dict(fixed), **settings)
        for (make, fixed), settings in zip(parts, traced, strict=True)
    ]
    tree = jax.tree.map(jnp.asarray, updates)
    num_clients = len(jax.tree.leaves(tree)[0])

    def get_root_losses(updates: PyTree) -> Array:
        if "root_losses" not in root:
            raise ValueError("root_losses: must be an array [K] because the rule measures losses, got None")
        return jnp.asarray(to_vector("root_losses", root["root_losses"], len(jax.tree.leaves(updates)[0])))

    def get_root_update() -> PyTree:
        if "root_update" not in root:
            raise ValueError("root_update: must be like one client's update because the rule uses it, got None")
        expected = jax.tree.map(lambda u: u.shape[1:], tree.params)
        if (actual := jax.tree.map(np.shape, root["root_update"].params)) != expected:
            raise ValueError(f"root_update: must have the shapes of one client's update, {expected}, got {actual}")
        return jax.tree.map(jnp.asarray, root["root_update"])

    report = CohortReport(
        client_ids=jnp.arange(num_clients),
        num_examples=jnp.asarray(vectors.get("num_examples", jnp.ones(num_clients)), jnp.int32),
        losses=jnp.asarray(vectors.get("losses", jnp.full(num_clients, jnp.nan)), jnp.float32),
        updates=tree,
        valid=jnp.asarray(vectors.get("valid", jnp.ones(num_clients)), bool),
    )
    masked = mask_nonfinite(report, False) if "losses" in vectors else mask_nonfinite_updates(report)
    server = chain(*stages)
    state = server.init(jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), tree), masked.num_examples, masked.losses)
    return run_rule(server, state, masked, ChainKeys(key, key), RootEvaluator(get_root_losses, get_root_update))[0]


def _check_parts(rule: Any, pre_aggregators: Any, weighting: Any) -> None:
    for name, value in (("rule", rule), ("weighting", weighting)):
        if not isinstance(value, Aggregator) and not (name == "weighting" and value is None):
            raise ValueError(f"{name}: must be a rule, such as fedsim.aggregators.median(), got {value!r}")
    is_list = isinstance(pre_aggregators, Sequence)
    for value in pre_aggregators if is_list else [None]:
        if not is_pre_aggregator(value):
            got = value if is_list else pre_aggregators
            raise ValueError(f"pre_aggregators: must be a list such as [fedsim.aggregators.nnm()], got {got!r}")
