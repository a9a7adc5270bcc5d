"""Low-rank adapters: dense layers train a low-rank term beside a kernel that stays as it is.

Hu et al.: "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, https://arxiv.org/abs/2106.09685; b alone:
Sun et al.: "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024, https://arxiv.org/abs/2403.12313.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial, wraps
from typing import Any, Literal

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.nn.initializers import variance_scaling, zeros

from fedsim.core.contracts import Task
from fedsim.core.task import with_frozen
from fedsim.core.types import Array, PyTree, Variables

FACTORS = {"both": ("lora_a", "lora_b"), "b": ("lora_b",)}
"""The trained arrays of a dense layer: a [in, rank] is drawn at random, b [rank, out] starts at 0."""


def with_adapters(
    task: Task,
    rank: int,
    alpha: float,
    factors: Literal["both", "b"] = "both",
    whole: Sequence[str] = (),
    base: Mapping[str, np.ndarray] | None = None,
) -> Task:
    """`task` whose parameters are adapters: layers of `flax.linen.Dense` compute x W + bias + alpha / rank (x a) b.

    Its params are arrays by name, such as "Dense_0/lora_a". All other arrays are frozen, except those whose names match
    a pattern in `whole`, such as "Dense_2/*". The model starts with the arrays `base` by name; what is trained may be
    missing there, and has initial values then. Without `base`, frozen arrays are those of one random model. Raises
    `ValueError` if the model has no such layers, `base` lacks an array, has another shape or no array of the model, or
    a pattern matches none.
    """
    layers = partial(_add_adapter, rank=rank, scale=alpha / max(rank, 1))

    def adapted(function: Callable[..., Any], full: Callable[[PyTree], PyTree]) -> Callable[..., Any]:
        @wraps(function)
        def call(variables: Variables, *args: Array) -> Any:
            with nn.intercept_methods(layers):
                return function(variables._replace(params=full(variables.params)), *args)

        return call

    def init_all(key: Array) -> tuple[dict[str, Array], PyTree]:
        with nn.intercept_methods(layers):
            variables = task.init(key)
        return flatten_dict(variables.params, sep="/"), variables.statistics

    def is_trained(name: str) -> bool:
        return name.endswith(FACTORS[factors]) or any(fnmatchcase(name, pattern) for pattern in whole)

    initial, statistics = jax.jit(init_all)(jax.random.key(0))
    _check(initial, rank, whole)
    known: dict[str, np.ndarray] = {}
    if base is not None:
        stored = {f"statistics/{name}": value for name, value in flatten_dict(statistics or {}, sep="/").items()}
        known = _matching(initial, base, is_trained) | _matching(stored, base, lambda name: False)
        if not known:
            arrays = ", ".join(f"{name} {array.shape}" for name, array in initial.items())
            raise ValueError(f"adapter.base: must have arrays of the model, {arrays}, got {', '.join(base)}")

    def init(key: Array) -> Variables:
        params, statistics = init_all(key)
        if base is not None and statistics:
            named = flatten_dict(statistics, sep="/").items()
            statistics = unflatten_dict({name: known.get(f"statistics/{name}", a) for name, a in named}, sep="/")
        return Variables(
            {name: known.get(name, value) for name, value in params.items() if is_trained(name)}, statistics
        )

    def make(frozen: PyTree) -> Task:
        full = lambda params: unflatten_dict(frozen | params, sep="/")
        outputs = None if task.outputs is None else adapted(task.outputs, full)
        return task._replace(
            init=init, loss=adapted(task.loss, full), metrics=adapted(task.metrics, full), outputs=outputs
        )

    return with_frozen(make, {name: known.get(name, value) for name, value in initial.items() if not is_trained(name)})


def _add_adapter(call: Callable[..., Any], args: Any, options: Any, context: Any, rank: int, scale: float) -> Any:
    """A call of a layer, with the low-rank term if it is dense."""
    outputs, layer = call(*args, **options), context.module
    if type(layer).__call__ is not nn.Dense.__call__ or context.method_name != "__call__" or not rank:
        return outputs
    x = args[0]
    a = layer.param("lora_a", variance_scaling(1 / 3, "fan_in", "uniform"), (x.shape[-1], rank))
    b = layer.param("lora_b", zeros, (rank, layer.features))
    return outputs + scale * ((x @ a) @ b)


def _check(initial: Mapping[str, Array], rank: int, whole: Sequence[str]) -> None:
    if not rank and not whole:
        raise ValueError("adapter.rank: 0 trains no adapters, so that adapter.whole must name arrays, got none")
    if rank and not any(name.endswith("lora_b") for name in initial):
        raise ValueError("adapter.rank: needs layers of flax.linen.Dense, but the model has none")
    for pattern in whole:
        if not any(fnmatchcase(name, pattern) for name in initial):
            raise ValueError(f"adapter.whole: no array matches {pattern}; the arrays are {', '.join(initial)}")


def _matching(
    initial: Mapping[str, Array], base: Mapping[str, np.ndarray], is_trained: Callable[[str], bool]
) -> dict[str, np.ndarray]:
    """The arrays of the model that `base` has."""
    for name, array in initial.items():
        if name not in base and not is_trained(name) and not name.endswith("lora_a"):
            raise ValueError(f"adapter.base: must have the array {name} {array.shape}, got {', '.join(base)}")
        if name in base and base[name].shape != array.shape:
            raise ValueError(f"adapter.base: {name} must have shape {array.shape}, got {base[name].shape}")
    return {name: np.asarray(base[name], array.dtype) for name, array in initial.items() if name in base}
