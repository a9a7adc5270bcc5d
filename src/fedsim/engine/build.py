"""The parts of a configuration's simulation, and the whole."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import jax
import optax

from fedsim.config.components import traced_settings
from fedsim.config.roles import server_component, takes_rounds
from fedsim.config.schema import Config
from fedsim.core import require
from fedsim.core.chain import Chain, chain
from fedsim.core.contracts import Aggregator, Algorithm, Attack, ClientOptimizer, Task
from fedsim.core.corrupt import Corruption, mix
from fedsim.core.layerwise import layerwise
from fedsim.core.method import Method, MethodFunction, client_sgd
from fedsim.core.options import CohortOptions, LossOptions, TrainingOptions
from fedsim.core.rule_trace import RuleTrace, trace_rule
from fedsim.core.simulation import Simulation
from fedsim.core.types import Array, DataSpec, FederatedDataset, HParams, Scalar
from fedsim.engine import factories
from fedsim.engine.layout import Layout
from fedsim.engine.model import cached_by_program, make_task, model_shapes
from fedsim.errors import ConfigError


def corruption(config: Config) -> Corruption:
    """The corruption of the run's clients."""
    built = [factories.build(config, factory.key, factory.name) for factory in factories.corruptions_of(config)]
    return mix(*built) if len(built) > 1 else built[0]


def change_task(config: Config) -> Callable[[Task, DataSpec], Task] | None:
    """How the run's corruption changes the task of its clients; None if it does not."""
    return corruption(config).change_task


def task(config: Config, dataset: FederatedDataset, backend: str | None = None) -> Task:
    """The task of the run's clients: `make_task`, as its corruption changes it."""
    plain, change = make_task(config, dataset, backend), change_task(config)
    return plain if change is None else change(plain, dataset.spec)


def schedule(config: Config, hparams: HParams, round: Array) -> HParams:
    """`hparams` with the learning rates of the round after `round` [] completed ones, inside the trace."""

    def rate_of(key: str, name: str, learning_rate: Scalar) -> Scalar:
        rounds = (config.server.num_rounds,) if takes_rounds(factories.find(key, name)) else ()
        rate: Scalar = factories.build_traced(config, key, name, hparams, *rounds)(learning_rate, round)
        require.shape(rate, (), f"the rate of {key}")
        return rate

    return hparams._replace(
        learning_rate=rate_of("client.schedule", config.client.schedule, hparams.learning_rate),
        server_learning_rate=rate_of("server.schedule", config.server.schedule, hparams.server_learning_rate),
    )


def server(config: Config) -> Callable[[HParams], Chain]:
    """Builds the chain of the run's weighting, pre-aggregators and rule, inside the trace."""
    server, key = config.server, "server.pre_aggregators"
    stages = [_build_rule(config, "server.weighting", server.weighting)] if server.weighting else []
    stages += [partial(factories.build_traced, config, key, name) for name in server.pre_aggregators]
    rule = _build_rule(config, "server.aggregator", server.aggregator)
    last = (lambda hparams: layerwise(rule(hparams))) if server.layerwise else rule
    return lambda hparams: chain(*(make(hparams) for make in [*stages, last]))


@cached_by_program(server_component)
def trace_server(config: Config, dataset: FederatedDataset) -> RuleTrace:
    """What tracing the server of a run shows."""
    rule = server(config)(hparams(config))
    return trace_rule(rule, model_shapes(config, dataset), dataset.num_clients, config.server.cohort_size)


def attack(config: Config) -> Callable[[HParams], Attack]:
    """Builds the run's attack, inside the trace."""
    return partial(factories.build_traced, config, "attack.kind", config.attack.kind)


def client_optimizer(config: Config, hparams: HParams) -> ClientOptimizer:
    """The optimizer of local training, inside the trace."""
    name, clip, rate = config.client.optimizer, config.client.clip, hparams.learning_rate
    if name == "sgd":
        return client_sgd(hparams, clip)
    clipping = [] if clip is None else [optax.clip(clip)]
    optimizer = factories.build_traced(config, "client.optimizer", name, hparams, rate)
    return ClientOptimizer(optax.chain(*clipping, optimizer), rate)


def has_own_models(config: Config) -> bool:
    """Whether the run's clients have models of their own: those of the algorithm, or the model after local steps."""
    algorithm: Algorithm = factories.build_traced(config, "client.algorithm", config.client.algorithm, hparams(config))
    return bool(config.record.local_steps) or algorithm.personal is not None


def method(config: Config) -> MethodFunction:
    """Training, attack and aggregation of a round."""
    make_server, make_attack, build_traced = server(config), attack(config), partial(factories.build_traced, config)

    def make(hparams: HParams, round: Array) -> Method:
        hparams = schedule(config, hparams, round)
        rate = hparams.server_learning_rate
        return Method(
            aggregator=make_server(hparams),
            client_optimizer=client_optimizer(config, hparams),
            algorithm=build_traced("client.algorithm", config.client.algorithm, hparams),
            attack=make_attack(hparams),
            server_optimizer=build_traced("server.optimizer", config.server.optimizer, hparams, rate),
        )

    return make


def _build_rule(config: Config, key: str, name: str) -> Callable[[HParams], Aggregator]:
    """Builds the rule, whose `ValueError`s at tracing become `ConfigError`s with the key; those of plug-ins stay."""

    @contextmanager
    def errors() -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise ConfigError(f"{key}: {name}: {error}") from error

    def make_rule(hparams: HParams) -> Aggregator:
        rule: Aggregator = factories.build_traced(config, key, name, hparams)
        return rule if ":" in name else rule._replace(init=errors()(rule.init), aggregate=errors()(rule.aggregate))

    return make_rule


def simulation(
    config: Config,
    dataset: FederatedDataset,
    layout: Layout | None = None,
    make_method: MethodFunction | None = None,
    max_num_examples: int | None = None,
) -> Simulation:
    """The simulation of a run; without a `layout`, the whole cohort and whole batches in lockstep.

    A family of runs gives its own `make_method` and the number of examples of the largest client of all its data sets.
    """
    layout = layout or Layout(client_width=config.server.cohort_size, backend=jax.default_backend())
    client = config.client
    return Simulation(
        task=task(config, dataset, layout.backend),
        method=make_method or method(config),
        cohort=CohortOptions(
            config.server.cohort_size,
            client.dropout_rate,
            layout.client_width,
            layout.client_axis,
            layout.buffer_clients,
        ),
        training=TrainingOptions(
            client.batch_size,
            max_num_examples or dataset.max_num_examples,
            client.epochs,
            client.steps,
            layout.micro_batch,
        ),
        losses=LossOptions(client.loss_at, config.record.losses),
    )


def hparams(config: Config) -> HParams:
    """The numbers that are data for the run's program."""
    client = config.client
    rates = client.learning_rate, config.server.learning_rate
    return HParams(*rates, dict(traced_settings(config)), client.momentum, client.weight_decay)
