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


SCHEDULES = {
    "constant": "fedsim.algorithms.schedules:constant",
    "step": "fedsim.algorithms.schedules:step",
    "exponential": "fedsim.algorithms.schedules:exponential",
    "cosine": "fedsim.algorithms.schedules:cosine",
}
AGGREGATORS = {
    "fedavg": "fedsim.aggregators.fedavg:fedavg",
    "rfa": "fedsim.aggregators.rfa:rfa",
    "multi_krum": "fedsim.aggregators.multi_krum:multi_krum",
    "cfl": "fedsim.aggregators.cfl:cfl",
    "arfl": "fedsim.aggregators.arfl:arfl",
    "median": "fedsim.aggregators.median:median",
    "trimmed_mean": "fedsim.aggregators.trimmed_mean:trimmed_mean",
    "meamed": "fedsim.aggregators.meamed:meamed",
    "krum": "fedsim.aggregators.krum:krum",
    "bulyan": "fedsim.aggregators.bulyan:bulyan",
    "centered_clipping": "fedsim.aggregators.centered_clipping:centered_clipping",
    "norm_clipping": "fedsim.aggregators.norm_clipping:norm_clipping",
    "dnc": "fedsim.aggregators.dnc:dnc",
    "fltrust": "fedsim.aggregators.fltrust:fltrust",
    "zeno": "fedsim.aggregators.zeno:zeno",
    "mda": "fedsim.aggregators.mda:mda",
    "smea": "fedsim.aggregators.smea:smea",
    "caf": "fedsim.aggregators.caf:caf",
    "autogm": "fedsim.aggregators.autogm:autogm",
    "signguard": "fedsim.aggregators.signguard:signguard",
    "foolsgold": "fedsim.aggregators.foolsgold:foolsgold",
    "flame": "fedsim.aggregators.flame:flame",
}
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
        {
            "none": "fedsim.corruption.none:none",
            "shuffling": "fedsim.corruption.shuffling:shuffling",
            "flipping": "fedsim.corruption.flipping:flipping",
            "noisy": "fedsim.corruption.noisy:noisy",
            "shift": "fedsim.corruption.shift:shift",
            "collusion": "fedsim.corruption.collusion:collusion",
            "exclude": "fedsim.corruption.exclude:exclude",
            "symmetric": "fedsim.corruption.symmetric:symmetric",
            "pairflip": "fedsim.corruption.pairflip:pairflip",
            "targeted": "fedsim.corruption.targeted:targeted",
            "localized": "fedsim.corruption.localized:localized",
            "backdoor": "fedsim.corruption.backdoor:backdoor",
        },
        is_traced=False,
    ),
    "attack.kind": Kind(
        "attack",
        {
            "none": "fedsim.attacks.none:none",
            "fake_loss": "fedsim.attacks.fake_loss:fake_loss",
            "fake_counts": "fedsim.attacks.fake_counts:fake_counts",
            "sign_flip": "fedsim.attacks.sign_flip:sign_flip",
            "gaussian": "fedsim.attacks.gaussian:gaussian",
            "inf": "fedsim.attacks.inf:inf",
            "ipm": "fedsim.attacks.ipm:ipm",
            "alie": "fedsim.attacks.alie:alie",
            "min_max": "fedsim.attacks.min_max:min_max",
            "min_sum": "fedsim.attacks.min_sum:min_sum",
            "mimic": "fedsim.attacks.mimic:mimic",
            "model_replacement": "fedsim.attacks.model_replacement:model_replacement",
            "fang": "fedsim.attacks.fang:fang",
            "optimal_ipm": "fedsim.attacks.optimal_ipm:optimal_ipm",
            "optimal_alie": "fedsim.attacks.optimal_alie:optimal_alie",
        },
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
        {
            "fedavg": "fedsim.core.method:plain_sgd",
            "fedprox": "fedsim.algorithms.fedprox:fedprox",
            "scaffold": "fedsim.algorithms.scaffold:scaffold",
            "fednova": "fedsim.algorithms.fednova:fednova",
            "worker_momentum": "fedsim.algorithms.worker_momentum:worker_momentum",
        },
    ),
    "client.schedule": Kind("schedule", SCHEDULES),
    "server.aggregator": Kind("aggregator", AGGREGATORS),
    "server.weighting": Kind("aggregator", AGGREGATORS),
    "server.pre_aggregators": Kind(
        "pre-aggregator",
        {
            "nnm": "fedsim.aggregators.nnm:nnm",
            "bucketing": "fedsim.aggregators.bucketing:bucketing",
            "clipping": "fedsim.aggregators.clipping:clipping",
            "arc": "fedsim.aggregators.arc:arc",
        },
    ),
    "server.optimizer": Kind(
        "server optimizer",
        {
            "sgd": "fedsim.algorithms.server_optimizers:sgd",
            "adam": "fedsim.algorithms.server_optimizers:adam",
            "yogi": "fedsim.algorithms.server_optimizers:yogi",
            "adagrad": "fedsim.algorithms.server_optimizers:adagrad",
        },
    ),
    "server.schedule": Kind("schedule", SCHEDULES),
}
