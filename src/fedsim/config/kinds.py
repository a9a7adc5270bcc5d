"""The kinds of components that a configuration names, and the built-in components of each kind.

A built-in name stands for a factory, "module:function" below. Wherever a built-in name may be written, a plug-in may be
named as "package.module:function" or "path/to/file.py:function". A factory's annotated parameters with defaults are its
settings: keys of the section that is called like the component. The arguments in front of them depend on the kind:

    data.name               seed                      -> RawDataset
    data.partition          raw, num_clients, rng     -> client ids [M], or Partition
    corruption.kind                                   -> Corruption
    attack.kind                                       -> Attack
    model.name              spec                      -> a flax module, or a Task
    client.algorithm                                  -> Algorithm
    client.schedule         num_rounds, if it takes it -> Schedule
    server.aggregator                                 -> Aggregator
    server.weighting                                  -> Aggregator
    server.pre_aggregators                            -> PreAggregator
    server.optimizer        learning_rate             -> optax.GradientTransformation
    server.schedule         num_rounds, if it takes it -> Schedule
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of component, such as aggregators."""

    noun: str
    """What messages call a component of this kind."""
    built_in: Mapping[str, str]
    """Factories by name, as "module:function"."""
    is_traced: bool = True
    """Whether components are built while a program is traced, where settings may be traced; otherwise on the host."""


def _factories(package: str, names: str) -> dict[str, str]:
    """The components `names` of a package: a function in a module of that name, or "module.function"."""
    parts = [name.rpartition(".") for name in names.split()]
    return {function: f"fedsim.{package}.{module or function}:{function}" for module, _, function in parts}


SCHEDULES = _factories("algorithms", "schedules.constant schedules.step schedules.exponential schedules.cosine")
AGGREGATORS = _factories(
    "aggregators",
    "fedavg rfa multi_krum cfl arfl median trimmed_mean meamed krum bulyan centered_clipping norm_clipping dnc "
    "fltrust zeno mda smea caf autogm signguard foolsgold flame",
)
KINDS = {
    "data.name": Kind(
        "data set",
        _factories(
            "datasets",
            "digits separable_2d prepared.cifar10 cifar100 mnist mnist.fashion_mnist emnist prepared.femnist "
            "prepared.shakespeare prepared.tfds leaf arrays table huggingface",
        ),
        is_traced=False,
    ),
    "data.partition": Kind(
        "partition",
        _factories(
            "datasets",
            "partition.iid partition.dirichlet partition.natural label_skew.shards label_skew.label_quantity "
            "label_skew.extreme partition.quantity feature_noise",
        ),
        is_traced=False,
    ),
    "corruption.kind": Kind(
        "corruption",
        _factories(
            "corruption",
            "none shuffling flipping noisy shift collusion exclude symmetric pairflip targeted localized backdoor",
        ),
        is_traced=False,
    ),
    "attack.kind": Kind(
        "attack",
        _factories(
            "attacks",
            "none fake_loss fake_counts sign_flip gaussian inf ipm alie min_max min_sum mimic model_replacement fang "
            "optimal_ipm optimal_alie",
        ),
    ),
    "model.name": Kind(
        "model",
        _factories("models", "mlp cnn.cifar10_cnn cnn.femnist_cnn resnet.resnet18 lenet logistic lstm.char_lstm"),
        is_traced=False,
    ),
    "client.algorithm": Kind(
        "algorithm",
        {"fedavg": "fedsim.core.method:plain_sgd"}
        | _factories("algorithms", "fedprox scaffold fednova worker_momentum"),
    ),
    "client.schedule": Kind("schedule", SCHEDULES),
    "server.aggregator": Kind("aggregator", AGGREGATORS),
    "server.weighting": Kind("aggregator", AGGREGATORS),
    "server.pre_aggregators": Kind("pre-aggregator", _factories("aggregators", "nnm bucketing clipping arc")),
    "server.optimizer": Kind(
        "server optimizer",
        _factories(
            "algorithms",
            "server_optimizers.sgd server_optimizers.adam server_optimizers.yogi server_optimizers.adagrad",
        ),
    ),
    "server.schedule": Kind("schedule", SCHEDULES),
}
