"""What plug-ins promise and nothing else would notice: rules' weights that sum to 1, fields that corruptions change.

Planning tries both out on small synthetic or real data. The weights of every round are checked, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.components import traced_settings
from fedsim.config.roles import component, server_component
from fedsim.config.schema import Config
from fedsim.core import require
from fedsim.core.chain import run_rule
from fedsim.core.contracts import RootEvaluator
from fedsim.core.corrupt import CHANGEABLE
from fedsim.core.trees import mask_invalid, squared_norms
from fedsim.core.types import (
    Array,
    ClientData,
    CohortReport,
    FederatedDataset,
    HParams,
    Metrics,
    PyTree,
    RoundRecord,
    Variables,
)
from fedsim.engine import build, memory
from fedsim.engine.memory import tree_bytes
from fedsim.engine.model import cached_by_program, make_task, model_errors, model_shapes
from fedsim.errors import ConfigError

MAX_BYTES = 2**27  # of synthetic updates, or of a model; larger ones are not tried out
NUM_ROWS = 3  # of a batch
FAST_COMPILING: dict[str, Any] = {"xla_backend_optimization_level": 0}  # an option of the CPU
NUM_INVALID = 2  # clients of a synthetic cohort that do not answer
TOLERANCE = 1e-3  # of sums of weights
MAX_CLIENTS, MAX_EXAMPLES = 8, 16  # on which a corruption is tried out, and at most so many examples of each


def check_plugins(configs: Sequence[Config], dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if a plug-in model, rule, pre-aggregator or corruption of a group breaks its contract."""
    if ":" in configs[0].model.name:
        check_rows(configs[0], dataset)
    for config in {config.corruption.kind: config for config in configs}.values():
        if ":" in config.corruption.kind:
            _check_changes(config, dataset)
    if plugins := _plugins(configs[0]):
        _check_weights(configs, dataset, plugins)
    if ":" in (weighting := configs[0].server.weighting or ""):  # the rule that gets its weights may normalize them
        alone = [
            replace(c.server, aggregator=weighting, weighting=None, pre_aggregators=(), layerwise=False)
            for c in configs
        ]
        of_rules = [replace(c, server=server) for c, server in zip(configs, alone, strict=True)]
        _check_weights(of_rules, dataset, {weighting: "server.weighting"})


def _check_weights(configs: Sequence[Config], dataset: FederatedDataset, plugins: Mapping[str, str]) -> None:
    """Raises `ConfigError` if plug-ins of a group's runs give weights of synthetic updates that are none."""
    config = configs[0]
    if config.server.cohort_size * memory.tree_bytes(model_shapes(config, dataset)) > MAX_BYTES:
        return
    compute_weights = _weights_function(config, dataset)
    keys = traced_settings(config).keys() & dict(server_component(config)).keys()
    values_of = lambda traced: tuple(traced[key] for key in keys)
    for values in dict.fromkeys(values_of(traced_settings(config)) for config in configs):
        weights, valid = compute_weights(HParams(settings=dict(zip(keys, values, strict=True))))
        _require_weights(config, plugins, np.asarray(weights), np.asarray(valid), "with synthetic updates")


def check_round_weights(config: Config, record: RoundRecord, completed: int) -> None:
    """Raises `ConfigError` if a plug-in's weights break the contract in a round of `record` [S, rounds, ...].

    `completed` rounds were completed after the last of them. Weights that are not finite pass: such runs have diverged.
    """
    if not (plugins := _plugins(config)):
        return
    num_rounds = record.weights.shape[1]
    for position in range(num_rounds):
        weights, valid = (np.asarray(a)[:, position] for a in (record.weights, record.valid))
        is_finite = np.isfinite(weights).all(axis=1)
        when = f"in round {completed - num_rounds + 1 + position}"
        _require_weights(config, plugins, weights[is_finite], valid[is_finite], when)


def _plugins(config: Config) -> dict[str, str]:
    """The plug-ins among the run's rule, weighting and pre-aggregators, each with its key."""
    server = config.server
    keys = {server.aggregator: "aggregator", server.weighting or "": "weighting"}
    keys = dict.fromkeys(server.pre_aggregators, "pre_aggregators") | keys
    return {name: f"server.{key}" for name, key in keys.items() if ":" in name}


def _require_weights(
    config: Config, plugins: Mapping[str, str], weights: np.ndarray, valid: np.ndarray, when: str
) -> None:
    """Raises `ConfigError` if `weights` [S, K] are no weights of the clients that are `valid` [S, K]."""
    totals = weights.sum(axis=1, dtype=np.float64)
    wrong_totals = totals[(np.abs(totals - 1) > TOLERANCE) & (np.abs(totals) > TOLERANCE)]
    of_invalid = weights[~valid & (weights != 0)] if not config.server.pre_aggregators else weights[:0]
    for wrong, condition in (
        (weights[~np.isfinite(weights)], "be finite"),
        (weights[weights < -TOLERANCE], "not be negative"),
        (wrong_totals, "sum to 1, or to 0 to skip the round"),
        (of_invalid, "be 0 for clients that are not valid"),
    ):
        if wrong.size:
            raise ConfigError(
                f"{'/'.join(dict.fromkeys(plugins.values()))}: weights of {', '.join(plugins)} must {condition}, got "
                f"{wrong[0]:.6g} {when}; fedsim.testing has check_aggregator and check_pre_aggregator"
            )


@cached_by_program(server_component)
def _weights_function(config: Config, dataset: FederatedDataset) -> Callable[[HParams], tuple[Array, Array]]:
    """A compiled function of the server's traced settings: the weights [2, K] of two cohorts, and who is valid [2, K].

    All clients of the first cohort answer, and not all of the second.
    """
    make_server, shapes = build.server(config), model_shapes(config, dataset)
    num_examples = np.asarray(dataset.train.num_examples)
    size, num_clients = config.server.cohort_size, len(num_examples)
    all_valid = jnp.arange(size) >= 0
    valid = jnp.stack([all_valid, all_valid & (jnp.arange(size) >= min(NUM_INVALID, size - 1))])

    @jax.jit
    def compute_weights(hparams: HParams, num_examples: Array) -> Array:
        server, keys = make_server(hparams), jax.random.split(jax.random.key(0), 3)
        variables = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        losses = jnp.exp(jax.random.normal(keys[0], (num_clients,)))
        state = server.init(variables, num_examples, losses)
        draw = lambda a: jax.random.normal(keys[1], (size, *a.shape)).astype(a.dtype)
        updates = jax.tree.map(draw, shapes)

        def weights_of(valid: Array) -> Array:
            reported = jnp.where(valid & (config.client.loss_at == "broadcast"), losses[:size], jnp.nan)
            ids = jnp.arange(size, dtype=jnp.int32)
            report = CohortReport(ids, num_examples[:size], reported, mask_invalid(updates, valid), valid)
            root = RootEvaluator(
                lambda updates: squared_norms(jax.tree.map(lambda u: u - 1, updates)),
                lambda: jax.tree.map(lambda a: jnp.full(a.shape, 0.25, a.dtype), shapes),
            )
            return run_rule(server, state, report, keys[2], root)[0].weights

        return jax.lax.map(weights_of, valid)

    return lambda hparams: (compute_weights(hparams, num_examples), valid)


@cached_by_program(lambda config: component(config, "corruption.kind"))
def _check_changes(config: Config, dataset: FederatedDataset) -> None:
    """Raises if the corruption of some clients' data changes fields that it does not declare, or the form of one.

    Also if it changes other clients, or gives a client more examples than it has, which are others'.
    """
    corruption = build.corruption(config)
    is_resized = "num_examples" in corruption.changed_fields  # then all examples of a client count
    data = _few_clients(dataset.train, dataset.max_num_examples if is_resized else MAX_EXAMPLES)
    if unknown := sorted(set(corruption.changed_fields) - set(CHANGEABLE)):
        raise ConfigError(
            f"corruption.kind: changed_fields of {config.corruption.kind} must be among {', '.join(CHANGEABLE)}, "
            f"got {', '.join(unknown)}"
        )
    is_corrupted = (jnp.arange(data.num_examples.size) % 2 == 0) & (data.num_examples > 0)
    after = jax.jit(corruption.apply, static_argnums=2)(data, is_corrupted, dataset.spec, jax.random.key(0))
    require.instance(after, ClientData, "the result of apply")
    for name, array in data._asdict().items():
        require.like(getattr(after, name), array, name)
    if "x" in corruption.changed_fields and not np.all(np.isfinite(np.asarray(after.x, np.float32))):
        raise ConfigError(f"corruption.kind: {config.corruption.kind} must keep x finite")
    for name in sorted({*ClientData._fields} - {*corruption.changed_fields, "corrupted"}):
        if not np.array_equal(getattr(after, name), getattr(data, name)):
            fields = ", ".join(f'"{field}"' for field in sorted({*corruption.changed_fields, name}))
            raise ConfigError(
                f"corruption.kind: {config.corruption.kind} must not change {name}, which is not among its "
                f"changed_fields; use changed_fields = frozenset({{{fields}}})"
            )
    sizes = np.asarray(data.num_examples)
    is_benign = {"num_examples": ~np.asarray(is_corrupted)}
    is_benign["x"] = is_benign["y"] = np.repeat(is_benign["num_examples"], sizes)
    for name, benign in is_benign.items():
        if not np.array_equal(np.asarray(getattr(after, name))[benign], np.asarray(getattr(data, name))[benign]):
            raise ConfigError(f"corruption.kind: {config.corruption.kind} must not change {name} of other clients")
    if np.any((after.num_examples > sizes) | (after.num_examples < 0)):
        raise ConfigError(
            f"corruption.kind: {config.corruption.kind} must not raise num_examples or make them negative"
        )


def _few_clients(data: ClientData, max_examples: int) -> ClientData:
    """`data` with the first examples of the first clients only; the others have none."""
    sizes = np.minimum(np.asarray(data.num_examples), max_examples)
    sizes[MAX_CLIENTS:] = 0
    firsts = zip(np.asarray(data.offsets)[:MAX_CLIENTS], sizes[:MAX_CLIENTS], strict=True)
    positions = np.concatenate([np.arange(start, start + size) for start, size in firsts])
    few = (np.asarray(data.x)[positions], np.asarray(data.y)[positions], np.cumsum(sizes, dtype=np.int32) - sizes)
    return ClientData(*map(jnp.asarray, (*few, sizes, np.zeros(len(sizes), bool))))


def check_rows(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if an example's results depend on padding, or in evaluation on the rest of its batch.

    In training, only if there is padding. Parameters are random numbers, because initial ones may be zero.
    """
    task, shapes, name = make_task(config, dataset), model_shapes(config, dataset), config.model.name
    size = min(config.client.batch_size, dataset.max_num_examples)
    has_padding = np.any(np.asarray(dataset.train.num_examples) % size)
    positions = np.linspace(0, len(dataset.train.y) - 1, 2 * NUM_ROWS).astype(int).reshape(2, NUM_ROWS)
    alone, (batch, others) = np.eye(NUM_ROWS, dtype=bool), positions
    moved, padded = np.r_[others[:1], batch[:1], others[2:]], np.r_[batch[:-1], others[-1:]]
    masks = np.stack([*alone, alone[1], np.ones(NUM_ROWS, bool), np.ones(NUM_ROWS, bool)])
    rows = np.stack([batch] * NUM_ROWS + [moved, batch, padded])
    x, is_other = np.asarray(dataset.train.x[rows]), np.arange(NUM_ROWS) != 1
    x[NUM_ROWS, is_other] = x[NUM_ROWS, is_other] / 2  # as the examples of a data set may have about the same mean
    batches = (x, np.asarray(dataset.train.y[rows]), masks)

    def compute(frozen: PyTree, variables: Variables, batches: PyTree) -> tuple[PyTree, Metrics]:
        bound, in_training = task if task.bind is None else task.bind(frozen), jnp.arange(NUM_ROWS) < NUM_ROWS - 1

        def compute_batch(batch: PyTree) -> tuple[PyTree, Metrics]:  # one program: mostly the same twice, so fast
            x, y, mask = batch
            loss = bound.loss(variables, x, y, in_training, jax.random.key(0))
            return (loss if has_padding else ()), bound.metrics(variables, x, y, mask)

        return jax.lax.map(compute_batch, batches)

    options = FAST_COMPILING if jax.default_backend() == "cpu" else None
    program = jax.jit(compute, compiler_options=options)
    with model_errors(config):
        jax.eval_shape(program, task.frozen, shapes, batches)
        if tree_bytes(shapes) > MAX_BYTES:
            return
        results = program(task.frozen, _draw(shapes), batches)
    losses, metrics = jax.tree.map(np.asarray, results)
    if not _is_close(*(jax.tree.map(lambda a, i=i: a[i], losses) for i in (-2, -1))):
        raise ConfigError(
            f"model.name: {name} reads padding in training: client.batch_size = {size} does not divide the clients' "
            "examples, and its loss or statistics change with what fills a batch; leave out examples where the "
            "argument `mask` [B] is False"
        )
    if not np.array_equal(metrics.num_examples, masks.sum(axis=1)):
        raise ConfigError(f"model.name: {name}: metrics must count the examples where mask is True, and no others")
    sums = np.stack([metrics.loss_sum, metrics.num_correct, *jax.tree.leaves(metrics.named)])
    if not _is_close((sums[:, -2], sums[:, 0]), (sums[:, :NUM_ROWS].sum(axis=1), sums[:, NUM_ROWS])):
        raise ConfigError(
            f"model.name: {name} gives an example another result in evaluation if the rest of its batch changes; use "
            "running statistics, no dropout, and sums over the examples where mask is True"
        )


def _draw(shapes: Variables) -> Variables:
    """Random parameters, and positive statistics, some of which may be variances."""
    rng = np.random.default_rng(0)

    def draw(shape: jax.ShapeDtypeStruct) -> Any:
        if not jnp.issubdtype(shape.dtype, jnp.floating):
            return jnp.zeros(shape.shape, shape.dtype)
        scale = np.sqrt(max(1, np.prod(shape.shape[:-1])))
        return (rng.standard_normal(shape.shape, np.float32) / scale).astype(shape.dtype)

    params, statistics = jax.tree.map(draw, tuple(shapes))
    return Variables(params, jax.tree.map(lambda a: abs(a) + (a != 0) / 2, statistics))


def _is_close(actual: PyTree, expected: PyTree) -> bool:
    pairs = zip(*(map(np.asarray, jax.tree.leaves(tree)) for tree in (actual, expected)), strict=True)
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in pairs)
