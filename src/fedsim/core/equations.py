"""Equations of a trace that `fedsim.core.products` computes: convolutions, max pools, and what stands between them."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr

from fedsim.core.products import convolve, max_pool
from fedsim.core.types import Array

REWRITTEN = frozenset({"conv_general_dilated", "reduce_window_max"})
MAX_ELEMENTS = 127  # of a kernel or window, each an array of its own; positions in a window are int8
Equation: TypeAlias = Any  # jax.extend.core.JaxprEqn, whose variables have no shapes for a type checker


class Convolution(NamedTuple):
    """A convolution that is not computed yet, because a pool may need less of it, and monotone functions after it."""

    compute: Callable[[Sequence[int]], Array]
    """Its first outputs along each spatial axis."""
    axes: Sequence[int]
    """The spatial axes of its result."""
    outputs: Sequence[int]
    """All outputs along these axes."""
    then: tuple[Callable[[Array], Array], ...] = ()
    """Functions of each element and channel; the maximum of their values is their value of the maximum."""

    def value(self, pool: Callable[[Array], Array] = lambda z: z, outputs: Sequence[int] | None = None) -> Array:
        z = pool(self.compute(self.outputs if outputs is None else outputs))
        for function in self.then:
            z = function(z)
        return z


def is_convolution(equation: Equation) -> bool:
    """Whether it is one that `convolution` computes."""
    if equation.primitive.name != "conv_general_dilated":
        return False
    params, (x, kernel), result = equation.params, (var.aval for var in equation.invars), equation.outvars[0].aval
    return (
        params["feature_group_count"] == params["batch_group_count"] == 1
        and set(params["lhs_dilation"]) <= {1}
        and {x.dtype, kernel.dtype} == {result.dtype}
        and jnp.issubdtype(result.dtype, jnp.floating)
        and math.prod(kernel.shape[axis] for axis in params["dimension_numbers"].rhs_spec[2:]) <= MAX_ELEMENTS
        and 0 not in (*x.shape, *result.shape)
    )


def convolution(equation: Equation, x: Array, kernel: Array) -> Convolution:
    """The convolution of its operands, whose axes may be in any order."""
    params, result = equation.params, equation.outvars[0].aval
    (batch, channels, *spatial), (feature, inputs, *window), layout = params["dimension_numbers"]
    x = lax.transpose(x, (batch, *spatial, channels))
    kernel = lax.transpose(kernel, (*window, inputs, feature))
    x = _pad(x, 0, [(0, 0), *params["padding"], (0, 0)])

    def compute(outputs: Sequence[int]) -> Array:
        z = convolve(x, kernel, params["window_strides"], params["rhs_dilation"], outputs, params["precision"])
        order = (layout[0], *layout[2:], layout[1])  # of the axes of z in the result
        return lax.transpose(z, [order.index(axis) for axis in range(z.ndim)])

    return Convolution(compute, layout[2:], [result.shape[axis] for axis in layout[2:]])


def _pad(x: Array, value: float, padding: Sequence[tuple[int, int]]) -> Array:
    if not any(map(any, padding)):
        return x
    return lax.pad(x, jnp.asarray(value, x.dtype), [(before, after, 0) for before, after in padding])


def is_pool(equation: Equation) -> bool:
    """Whether it is one that `pool` computes."""
    params = equation.params
    return (
        equation.primitive.name == "reduce_window_max"
        and {*params["base_dilation"], *params["window_dilation"]} <= {1}
        and math.prod(params["window_dimensions"]) <= MAX_ELEMENTS
        and jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating)
        and 0 not in equation.outvars[0].aval.shape
    )


def pool(equation: Equation, x: Array) -> Array:
    """The max pool of its operand."""
    params = equation.params
    return max_pool(_pad(x, -math.inf, params["padding"]), params["window_dimensions"], params["window_strides"])


def _is_pool_of(equation: Equation, axes: Sequence[int]) -> bool:
    """Whether it is a pool along these axes only, without padding."""
    sizes = equation.params["window_dimensions"] if is_pool(equation) else ()
    is_flat = all(size == 1 for axis, size in enumerate(sizes) if axis not in axes)
    return bool(sizes) and is_flat and not any(map(any, equation.params["padding"]))


def after(before: Convolution, equation: Equation, read: Callable[[Any], Array]) -> Convolution | Array | None:
    """The equation of a convolution, if it is a pool or leaves the choice of the maximum to a pool after it.

    A pool comes first, then what was before it: less work, and only outputs that a window covers.
    """
    params, shape = equation.params, equation.outvars[0].aval.shape
    if _is_pool_of(equation, before.axes):
        strides, window = params["window_strides"], params["window_dimensions"]
        covered = [(shape[axis] - 1) * strides[axis] + window[axis] for axis in before.axes]
        return before.value(partial(pool, equation), covered)
    if _source(equation) == _source(_relu_equation()):
        return before._replace(then=(*before.then, jax.nn.relu))
    if equation.primitive.name == "add":
        other = equation.invars[1]
        if not other.aval.shape or all(other.aval.shape[axis] == 1 for axis in before.axes):
            return before._replace(then=(*before.then, lambda z: z + read(other)))
    return None


@cache
def _relu_equation() -> Equation:
    return jax.make_jaxpr(jax.nn.relu)(jnp.float32(0)).eqns[0]


def _source(equation: Equation) -> tuple[str, str]:
    """The primitive and the function of Python that it calls, with file and line."""
    jaxpr = equation.params.get("call_jaxpr", equation.params.get("jaxpr"))
    debug_info = jaxpr.jaxpr.debug_info if isinstance(jaxpr, ClosedJaxpr) else None
    return equation.primitive.name, str(debug_info)
