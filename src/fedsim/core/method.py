"""A `Method` is everything of a round that is built inside the trace, so that all of it may use traced numbers."""

from typing import Any, NamedTuple, Protocol

import optax

from fedsim.core import require
from fedsim.core.chain import Chain, chain
from fedsim.core.contracts import Aggregator, Algorithm, Attack, ClientOptimizer
from fedsim.core.types import Array, HParams


def plain_sgd() -> Algorithm:
    """FedAvg's local training: SGD from the broadcast model, without any state.

    McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS 2017, https://arxiv.org/abs/1602.05629
    """
    return Algorithm()


def client_sgd(hparams: HParams, clip: float | None = None) -> ClientOptimizer:
    """The clients' SGD, with each element of a gradient clipped to [-clip, clip] if `clip` is given.

    In PyTorch's order: clip, then g = gradient + weight_decay w, m = momentum m + g from m = 0 in each round,
    w = w - learning_rate m.
    """
    stages = [] if clip is None else [optax.clip(clip)]
    if hparams.weight_decay is not None:
        stages.append(optax.add_decayed_weights(hparams.weight_decay))
    sgd = optax.sgd(hparams.learning_rate, hparams.momentum)
    transformation = optax.chain(*stages, sgd) if stages else sgd
    return ClientOptimizer(transformation, hparams.learning_rate, hparams.momentum)


class Method(NamedTuple):
    """Training, attack and aggregation of one round.

    >>> import fedsim
    >>> hparams = fedsim.HParams(learning_rate=0.1)
    >>> method = fedsim.Method(fedsim.aggregators.median(), fedsim.client_sgd(hparams))
    >>> method.attack == fedsim.Attack()
    True
    """

    aggregator: Aggregator
    """The server's rule, which may be a `chain` with pre-aggregators."""
    client_optimizer: ClientOptimizer
    """Steps of local training."""
    algorithm: Algorithm = plain_sgd()
    """Local training."""
    attack: Attack = Attack()
    """What malicious clients report."""
    server_optimizer: optax.GradientTransformation = optax.sgd(1.0)
    """Steps on minus the aggregate; the default is averaging."""

    @property
    def server(self) -> Chain:
        """The rule as a chain."""
        return self.aggregator if isinstance(self.aggregator, Chain) else chain(self.aggregator)


def check_method(method: Any) -> None:
    """Raises `AssertionError` if a `MethodFunction` has returned no `Method`, or one with parts of a wrong type."""
    require.instance(method, Method, "method: the result")
    kinds = Aggregator, ClientOptimizer, Algorithm, Attack, optax.GradientTransformation  # of the fields
    for name, part, expected in zip(Method._fields, method, kinds, strict=True):
        is_bare = expected is ClientOptimizer and isinstance(part, optax.GradientTransformation)
        remedy = "; use fedsim.ClientOptimizer(transformation, learning_rate)" if is_bare else ""
        require.instance(part, expected, f"method: {name}", remedy)


class MethodFunction(Protocol):
    """Builds the `Method` of a round; called inside the trace, so that it may close over traced numbers."""

    def __call__(self, hparams: HParams, round: Array, /) -> Method:
        """The method of the round after `round` [] completed ones."""
