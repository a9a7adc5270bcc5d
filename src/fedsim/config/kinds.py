"""The kinds of components that a configuration names, and the built-in components of each kind.

A built-in name stands for a function that a module below defines, or imports `as` this name. A plug-in may be named in
its place, as "package.module:function" or "path/to/file.py:function". These functions are factories: their annotated
parameters with defaults are the component's settings, keys of the section that is called like the component, after
the prefix of its kind if there is one. The arguments in front of them depend on the kind:

    data.name               seed                      -> RawDataset
    data.partition          raw, num_clients, rng     -> client ids [M], or Partition
    corruption.kind                                   -> Corruption
    attack.kind                                       -> Attack
    model.name              spec                      -> a flax module, or a Task
    client.algorithm                                  -> Algorithm
    client.optimizer        learning_rate             -> optax.GradientTransformation
    client.schedule         num_rounds, if it takes it -> Schedule
    server.aggregator                                 -> Aggregator
    server.weighting                                  -> Aggregator
    server.pre_aggregators                            -> PreAggregator
    server.optimizer        learning_rate             -> optax.GradientTransformation
    server.schedule         num_rounds, if it takes it -> Schedule
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Kind:
    """A kind of component, such as aggregators."""

    noun: str
    """What messages call a component of this kind."""
    built_in: Mapping[str, str]
    """Factories by name, as "module:function"."""
    is_traced: bool = True
    """Whether components are built while a program is traced, where settings may be traced; otherwise on the host."""
    prefix: str = ""
    """In front of a built-in name in that of its section, where another kind has components of the same names."""


def _listed(module: str) -> dict[str, str]:
    """The public functions that a module defines, or imports `as` a name. It is not imported, since that takes JAX."""
    names: dict[str, str] = {}
    for node in ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname: f"{node.module}:{alias.name}" for alias in node.names if alias.asname}
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = f"fedsim.{module.replace('/', '.')}:{node.name}"
    return {name: path for name, path in names.items() if name.islower() and not name.startswith("_")}


AGGREGATORS, SCHEDULES = _listed("aggregators/built_in_rules"), _listed("algorithms/schedules")
KINDS = {
    "data.name": Kind("data set", _listed("datasets/built_in_datasets"), is_traced=False),
    "data.partition": Kind("partition", _listed("datasets/built_in_partitions"), is_traced=False),
    "corruption.kind": Kind("corruption", _listed("corruption/__init__"), is_traced=False),
    "attack.kind": Kind("attack", _listed("attacks/__init__")),
    "model.name": Kind("model", _listed("models/__init__"), is_traced=False),
    "client.algorithm": Kind("algorithm", _listed("algorithms/__init__")),
    "client.optimizer": Kind("client optimizer", _listed("algorithms/client_optimizers"), prefix="client_"),
    "client.schedule": Kind("schedule", SCHEDULES),
    "server.aggregator": Kind("aggregator", AGGREGATORS),
    "server.weighting": Kind("aggregator", AGGREGATORS),
    "server.pre_aggregators": Kind("pre-aggregator", _listed("aggregators/built_in_pre_aggregators")),
    "server.optimizer": Kind("server optimizer", _listed("algorithms/server_optimizers")),
    "server.schedule": Kind("schedule", SCHEDULES),
}
NAMES = {
    "alittleisenough": "alie",
    "average": "fedavg",
    "bitflip": "sign_flip",
    "coordinate_wise_median": "median",
    "cwmed": "median",
    "cwtm": "trimmed_mean",
    "empire": "ipm",
    "foe": "ipm",
    "fall_of_empires": "ipm",
    "geomed": "rfa",
    "geometric_median": "rfa",
    "geometricmedian": "rfa",
    "label_flipping": "flipping",
    "lie": "alie",
    "little_is_enough": "alie",
    "mean": "fedavg",
    "nearest_neighbor_mixing": "nnm",
    "non_iid": "dirichlet",
    "noniid": "dirichlet",
    "random_labels": "shuffling",
    "trmean": "trimmed_mean",
    "weiszfeld": "rfa",
}
"""Components under the names of papers and other libraries."""
