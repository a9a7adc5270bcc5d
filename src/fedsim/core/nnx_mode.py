"""Classes of flax.nnx as modules (`flax.nnx.bridge.ToLinen`): their mode, padding and random numbers."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from inspect import getattr_static
from typing import Any

import jax
from flax import nnx

from fedsim.core.trees import expand_like
from fedsim.core.types import Array

_mask: ContextVar[Array] = ContextVar("mask")  # [B] of the examples of the call


class _MaskedBatchNorm(nnx.BatchNorm):
    """Leaves out examples that are not in the mask, unless it gets a mask of its own."""

    def __call__(self, x: Array, *args: Any, **options: Any) -> Array:
        if x.shape[:1] == _mask.get().shape and options.get("mask") is None:
            options["mask"] = expand_like(_mask.get(), x)
        return super().__call__(x, *args, **options)


def wrapped_class(module: Any) -> type:
    """The class that `module` builds."""
    if isinstance(module.nnx_class, type):
        return module.nnx_class

    def build() -> nnx.Module:
        rngs = {} if module.skip_rng else {"rngs": nnx.Rngs(0)}
        return module.nnx_class(*module.args, **module.kwargs, **rngs)

    return type(nnx.eval_shape(build))


def call_in_mode(
    layer: Any, call: Callable[[], Any], mask: Array, modes: Mapping[str, bool], are_active: list[bool]
) -> Any:
    """Calls `layer`, whose nnx module gets the mode before its arguments: the values of fields named as in `modes`.

    Its batch normalization leaves out examples where `mask` [B] is False. In training all its random numbers follow
    from the layer's key, wherever it has them from; adds to `are_active` whether its dropout, if any, draws some.
    Raises `ValueError` if it has parameters that would not be trained.
    """
    nnx_class, train, counts = layer.nnx_class, modes["train"], []

    def build(*args: Any, **options: Any) -> nnx.Module:
        module = nnx_class(*args, **options)
        for _, part in nnx.iter_modules(module):
            for name, value in modes.items():
                if isinstance(getattr_static(part, name, None), bool):  # no property
                    setattr(part, name, value)
        set_mode = getattr(type(module), name := "train" if train else "eval")
        (set_mode if callable(set_mode) else getattr(nnx.Module, name))(module)  # a field may have its name
        for _, variable in nnx.to_flat_state(nnx.state(module, nnx.Param)):
            if type(variable) is not nnx.Param:
                raise ValueError(f"module: {type(variable).__name__} would not be trained; use nnx.Param")
        for i, (_, node) in enumerate(nnx.iter_graph(module)):
            if type(node) is nnx.BatchNorm:
                object.__setattr__(node, "__class__", _MaskedBatchNorm)
            elif isinstance(node, nnx.RngStream) and train:
                key = jax.random.fold_in(layer.make_rng("dropout"), i)
                node.key.set_value(jax.random.split(key, node.key.shape))
            has_rate = getattr(node, "rate", 0) or getattr(node, "dropout_rate", 0)
            if train and has_rate and isinstance(getattr(node, "rngs", None), nnx.RngStream):
                counts.append((node.rngs.count, node.rngs.count.get_raw_value()))
        return module

    object.__setattr__(layer, "nnx_class", build)  # of this call: flax copies modules before it calls them
    token = _mask.set(mask)
    try:
        outputs = call()
    finally:
        _mask.reset(token)
        object.__setattr__(layer, "nnx_class", nnx_class)
    are_active += [any(count.get_raw_value() is not before for count, before in counts)] if counts else []
    return outputs
