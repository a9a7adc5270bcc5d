"""Classes of flax.nnx as modules (`flax.nnx.bridge.ToLinen`): their mode, and where their random numbers come from."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import jax
from flax import nnx
from jax.extend.core import Literal

from fedsim.core.trees import expand_like
from fedsim.core.types import Array

_mask: ContextVar[Array] = ContextVar("mask")  # [B] of the examples of the call


class _MaskedBatchNorm(nnx.BatchNorm):
    """Leaves out examples that are not in the mask, unless it gets a mask of its own."""

    def __call__(self, x: Array, use_running_average: bool | None = None, *, mask: Array | None = None) -> Array:
        if mask is None and x.shape[:1] == _mask.get().shape:
            mask = expand_like(_mask.get(), x)
        outputs: Array = super().__call__(x, use_running_average, mask=mask)
        return outputs


def wrapped_class(module: Any) -> type:
    """The class that `module` builds."""
    if isinstance(module.nnx_class, type):
        return module.nnx_class
    return type(nnx.eval_shape(lambda: _build(module, jax.random.key(0))))


def _build(module: Any, key: Array) -> nnx.Module:
    """The nnx module, with the streams of random numbers that `ToLinen` gives it in training."""
    rngs = {} if module.skip_rng else {"rngs": nnx.Rngs(dropout=key, default=0)}
    return module.nnx_class(*module.args, **module.kwargs, **rngs)


def call_in_mode(layer: Any, call: Callable[[], Any], mask: Array, train: bool, are_active: list[bool]) -> Any:
    """Calls `layer`, whose nnx module is in training or evaluation mode before it gets its arguments.

    Its batch normalization leaves out examples where `mask` [B] is False.

    Adds to `are_active` whether it has drawn random numbers, if it has dropout. Raises `ValueError` if they are the
    same in each step, or if it has parameters that would not be trained.
    """
    nnx_class, calls = layer.nnx_class, []

    def build(*args: Any, **options: Any) -> nnx.Module:
        module = nnx_class(*args, **options)
        (module.train if train else module.eval)()
        for _, node in nnx.iter_graph(module):
            if type(node) is nnx.BatchNorm:
                object.__setattr__(node, "__class__", _MaskedBatchNorm)
        streams = _streams(module)
        calls.append((module, streams, [stream.count.get_raw_value() for stream in streams]))
        return module

    object.__setattr__(layer, "nnx_class", build)
    token = _mask.set(mask)
    try:
        outputs = call()
    finally:
        _mask.reset(token)
        object.__setattr__(layer, "nnx_class", nnx_class)
    module, streams, counts = calls[-1]
    for _, variable in nnx.to_flat_state(nnx.state(module, nnx.Param)):
        if type(variable) is not nnx.Param:
            raise ValueError(f"module: {type(variable).__name__} would not be trained; use nnx.Param")
    if train and streams:
        is_drawn = [stream.count.get_raw_value() is not count for stream, count in zip(streams, counts, strict=True)]
        are_active.append(any(is_drawn))
        if any(drawn and not varies for drawn, varies in zip(is_drawn, _varies(layer), strict=True)):
            raise ValueError(
                f"module: {type(module).__name__} draws the same random numbers in each step; build its dropout with "
                "the argument rngs, and with the stream dropout"
            )
    return outputs


def _streams(module: nnx.Module) -> list[nnx.RngStream]:
    """Streams of random numbers that it may draw in a call, but for the initial states of recurrent layers."""
    nodes = dict(nnx.iter_graph(module))
    is_recurrent = lambda path: isinstance(nodes.get(path[:-1]), nnx.RNN | nnx.RNNCellBase | nnx.Bidirectional)
    return [node for path, node in nodes.items() if isinstance(node, nnx.RngStream) and not is_recurrent(path)]


def _varies(layer: Any) -> list[bool]:
    """Whether each stream depends on the key that the layer gets."""
    keys = lambda key: [stream.key.get_raw_value() for stream in _streams(_build(layer, key))]
    jaxpr = jax.make_jaxpr(keys)(jax.random.key(0)).jaxpr
    varying = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(not isinstance(variable, Literal) and variable in varying for variable in equation.invars):
            varying.update(equation.outvars)
    return [variable in varying for variable in jaxpr.outvars]
