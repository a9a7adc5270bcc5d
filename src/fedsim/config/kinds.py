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
    client.schedule         num_rounds                -> Schedule
    server.aggregator                                 -> Aggregator
    server.weighting                                  -> Aggregator
    server.pre_aggregators                            -> PreAggregator
    server.optimizer        learning_rate             -> optax.GradientTransformation
    server.schedule         num_rounds                -> Schedule
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


def _one_per_file(package: str, names: str) -> dict[str, str]:
    """The components `names` of a package, each a function that is called like its module."""
    return {name: f"fedsim.{package}.{name}:{name}" for name in names.split()}


def _in_one_file(module: str, names: str) -> dict[str, str]:
    """The components `names` of a module, each a function of that name."""
    return {name: f"fedsim.{module}:{name}" for name in names.split()}


SCHEDULES = _in_one_file("algorithms.schedules", "constant step exponential cosine")
AGGREGATORS = _one_per_file(
    "aggregators",
    "fedavg rfa multi_krum cfl arfl median trimmed_mean meamed krum bulyan centered_clipping norm_clipping dnc "
    "fltrust zeno mda smea caf autogm signguard foolsgold flame",
)
KINDS = {
    "data.name": Kind(
        "data set",
        {
            "digits": "fedsim.datasets.digits:digits",
            "separable_2d": "fedsim.datasets.separable_2d:separable_2d",
            "cifar10": "fedsim.datasets.prepared:cifar10",
            "cifar100": "fedsim.datasets.cifar100:cifar100",
            "mnist": "fedsim.datasets.mnist:mnist",
            "fashion_mnist": "fedsim.datasets.mnist:fashion_mnist",
            "emnist": "fedsim.datasets.emnist:emnist",
            "femnist": "fedsim.datasets.prepared:femnist",
            "shakespeare": "fedsim.datasets.prepared:shakespeare",
            "tfds": "fedsim.datasets.prepared:tfds",
            "leaf": "fedsim.datasets.leaf:leaf",
            "arrays": "fedsim.datasets.arrays:arrays",
            "table": "fedsim.datasets.table:table",
            "huggingface": "fedsim.datasets.huggingface:huggingface",
        },
        is_traced=False,
    ),
    "data.partition": Kind(
        "partition",
        {
            "iid": "fedsim.datasets.partition:iid",
            "dirichlet": "fedsim.datasets.partition:dirichlet",
            "natural": "fedsim.datasets.partition:natural",
            "shards": "fedsim.datasets.label_skew:shards",
            "label_quantity": "fedsim.datasets.label_skew:label_quantity",
            "extreme": "fedsim.datasets.label_skew:extreme",
            "quantity": "fedsim.datasets.partition:quantity",
            "feature_noise": "fedsim.datasets.feature_noise:feature_noise",
        },
        is_traced=False,
    ),
    "corruption.kind": Kind(
        "corruption",
        _one_per_file(
            "corruption",
            "none shuffling flipping noisy shift collusion exclude symmetric pairflip targeted localized backdoor",
        ),
        is_traced=False,
    ),
    "attack.kind": Kind(
        "attack",
        _one_per_file(
            "attacks",
            "none fake_loss fake_counts sign_flip gaussian inf ipm alie min_max min_sum mimic model_replacement fang "
            "optimal_ipm optimal_alie",
        ),
    ),
    "model.name": Kind(
        "model",
        {
            "mlp": "fedsim.models.mlp:mlp",
            "cifar10_cnn": "fedsim.models.cnn:cifar10_cnn",
            "femnist_cnn": "fedsim.models.cnn:femnist_cnn",
            "resnet18": "fedsim.models.resnet:resnet18",
            "lenet": "fedsim.models.lenet:lenet",
            "logistic": "fedsim.models.logistic:logistic",
            "char_lstm": "fedsim.models.lstm:char_lstm",
        },
        is_traced=False,
    ),
    "client.algorithm": Kind(
        "algorithm",
        {"fedavg": "fedsim.core.method:plain_sgd"}
        | _one_per_file("algorithms", "fedprox scaffold fednova worker_momentum"),
    ),
    "client.schedule": Kind("schedule", SCHEDULES),
    "server.aggregator": Kind("aggregator", AGGREGATORS),
    "server.weighting": Kind("aggregator", AGGREGATORS),
    "server.pre_aggregators": Kind("pre-aggregator", _one_per_file("aggregators", "nnm bucketing clipping arc")),
    "server.optimizer": Kind("server optimizer", _in_one_file("algorithms.server_optimizers", "sgd adam yogi adagrad")),
    "server.schedule": Kind("schedule", SCHEDULES),
}
