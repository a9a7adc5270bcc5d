"""Writes the convolutions and max pools of any function in the form that is fastest on the backend.

The function is traced, and its primitives are computed one by one: convolutions and pools by `fedsim.core.products`,
others as they are. So it does not matter which library of layers a model uses. On a CPU 1.5 to 20 times faster.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from fedsim.core.contracts import Task
from fedsim.core.products import convolve, max_pool
from fedsim.core.types import Array

MAX_ELEMENTS = 64  # of a kernel or window, each an array of its own
WITH_BODIES = ("jit", "pjit", "scan", "while", "cond", "checkpoint", "remat2")  # whose jaxprs are rewritten, too
_is_inside: ContextVar[bool] = ContextVar("is_inside", default=False)  # a call of a task's function


def for_backend(task: Task, backend: str | None = None) -> Task:
    """The task with its loss and metrics rewritten for `backend` ("cpu", "gpu" or "tpu"; by default JAX's own).

    Only a CPU has other forms than XLA's own so far. The outermost call decides.
    """
    bind = task.bind
    bound = None if bind is None else lambda frozen: for_backend(bind(frozen), backend)
    return task._replace(loss=_traced_for(backend, task.loss), metrics=_traced_for(backend, task.metrics), bind=bound)


def _traced_for(backend: str | None, function: Callable[..., Any]) -> Callable[..., Any]:
    fast = rewrite(function)

    @wraps(function)
    def traced(*args: Any, **options: Any) -> Any:
        if _is_inside.get():
            return function(*args, **options)
        token = _is_inside.set(True)
        try:
            return (fast if (backend or jax.default_backend()) == "cpu" else function)(*args, **options)
        finally:
            _is_inside.reset(token)

    return traced


def rewrite(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of arrays with its convolutions and max pools as products; the same values up to rounding.

    Grouped and transposed convolutions, other types than one of floats and what is inside of custom derivatives stay
    as they are.
    """

    @wraps(function)
    def rewritten(*args: Any, **options: Any) -> Any:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args, **options)
        leaves = map(jnp.asarray, jax.tree.leaves((args, options)))
        return jax.tree.unflatten(jax.tree.structure(shape), _evaluate(closed, *leaves))

    return rewritten


class _Convolution(NamedTuple):
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


def _evaluate(closed: ClosedJaxpr, *args: Array) -> list[Array]:
    jaxpr = closed.jaxpr
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))
    uses = Counter(var for equation in jaxpr.eqns for var in equation.invars if not isinstance(var, Literal))
    uses.update(var for var in jaxpr.outvars if not isinstance(var, Literal))

    def read(var: Any) -> Any:
        value = var.val if isinstance(var, Literal) else values[var]
        return value.value() if isinstance(value, _Convolution) else value

    for equation in jaxpr.eqns:
        first, *others = equation.invars
        pending = None if isinstance(first, Literal) else values[first]
        if isinstance(pending, _Convolution) and (function := _monotone(equation, others, pending.axes, read)):
            outputs = [pending._replace(then=(*pending.then, function))]
        elif isinstance(pending, _Convolution) and _is_pool_of(equation, pending.axes):
            outputs = [_pool_first(equation, pending)]
        elif _is_convolution(equation):
            outputs = [_convolution(equation, *map(read, equation.invars))]
        elif _is_pool(equation):
            outputs = [_pool(equation, read(first))]
        else:
            outputs = _bind(equation, *map(read, equation.invars))
        for var, value in zip(equation.outvars, outputs, strict=True):
            values[var] = value.value() if isinstance(value, _Convolution) and uses[var] != 1 else value
    return [read(var) for var in jaxpr.outvars]


def _bind(equation: JaxprEqn, *values: Any) -> Sequence[Any]:
    """The outputs of the equation as it is, with the jaxprs inside rewritten."""
    params = equation.params
    if equation.primitive.name in WITH_BODIES:
        params = {name: _rewrite_bodies(value) for name, value in params.items()}
    bound: Any = equation.primitive.get_bind_params(params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # apart before jax 0.10
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*functions, *values, **params)
    return outputs if equation.primitive.multiple_results else [outputs]


def _rewrite_bodies(value: Any) -> Any:
    """The value of a parameter, with its jaxprs rewritten if they have something to rewrite."""
    if isinstance(value, tuple) and any(isinstance(branch, ClosedJaxpr) for branch in value):
        return tuple(map(_rewrite_bodies, value))
    if isinstance(value, Jaxpr) and not value.constvars:
        return _rewrite_bodies(ClosedJaxpr(value, ())).jaxpr
    if not isinstance(value, ClosedJaxpr) or not _has_work(value.jaxpr):
        return value
    avals = (var.aval for var in value.jaxpr.invars)
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
    rewritten = jax.make_jaxpr(partial(_evaluate, value))(*shapes)
    return value if rewritten.consts else rewritten


def _has_work(jaxpr: Jaxpr) -> bool:
    bodies = lambda value: value if isinstance(value, tuple) else (value,)
    return any(
        _is_convolution(equation)
        or _is_pool(equation)
        or (
            equation.primitive.name in WITH_BODIES
            and any(
                _has_work(getattr(body, "jaxpr", body))
                for value in equation.params.values()
                for body in bodies(value)
                if isinstance(body, ClosedJaxpr | Jaxpr)
            )
        )
        for equation in jaxpr.eqns
    )


def _is_convolution(equation: JaxprEqn) -> bool:
    """Whether it is one that `_convolution` computes."""
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


def _convolution(equation: JaxprEqn, x: Array, kernel: Array) -> _Convolution:
    params, result = equation.params, equation.outvars[0].aval
    (batch, channels, *spatial), (feature, inputs, *window), layout = params["dimension_numbers"]
    x = lax.transpose(x, (batch, *spatial, channels))
    kernel = lax.transpose(kernel, (*window, inputs, feature))
    x = _pad(x, 0, [(0, 0), *params["padding"], (0, 0)])

    def compute(outputs: Sequence[int]) -> Array:
        z = convolve(x, kernel, params["window_strides"], params["rhs_dilation"], outputs)
        order = (layout[0], *layout[2:], layout[1])  # of the axes of z in the result
        return lax.transpose(z, [order.index(axis) for axis in range(z.ndim)])

    return _Convolution(compute, layout[2:], [result.shape[axis] for axis in layout[2:]])


def _pad(x: Array, value: float, padding: Sequence[tuple[int, int]]) -> Array:
    if not any(map(any, padding)):
        return x
    return lax.pad(x, jnp.asarray(value, x.dtype), [(before, after, 0) for before, after in padding])


def _is_pool(equation: JaxprEqn) -> bool:
    """Whether it is one that `_pool` computes."""
    params = equation.params
    return (
        equation.primitive.name == "reduce_window_max"
        and {*params["base_dilation"], *params["window_dilation"]} <= {1}
        and math.prod(params["window_dimensions"]) <= MAX_ELEMENTS
        and jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating)
        and 0 not in equation.outvars[0].aval.shape
    )


def _pool(equation: JaxprEqn, x: Array) -> Array:
    params = equation.params
    return max_pool(_pad(x, -math.inf, params["padding"]), params["window_dimensions"], params["window_strides"])


def _is_pool_of(equation: JaxprEqn, axes: Sequence[int]) -> bool:
    """Whether it is a pool along these axes only, without padding."""
    sizes = equation.params["window_dimensions"] if _is_pool(equation) else ()
    is_flat = all(size == 1 for axis, size in enumerate(sizes) if axis not in axes)
    return bool(sizes) and is_flat and not any(map(any, equation.params["padding"]))


def _pool_first(equation: JaxprEqn, pending: _Convolution) -> Array:
    """The pool of the convolution, then what was before the pool: less work, and only outputs that a window covers."""
    params, shape = equation.params, equation.outvars[0].aval.shape
    covered = [
        (shape[axis] - 1) * params["window_strides"][axis] + params["window_dimensions"][axis] for axis in pending.axes
    ]
    return pending.value(partial(_pool, equation), covered)


def _monotone(
    equation: JaxprEqn, others: Sequence[Any], axes: Sequence[int], read: Callable[[Any], Any]
) -> Callable[[Array], Array] | None:
    """The function of its first operand, if it is a relu, or adds or takes the maximum with the same along `axes`."""
    if _source(equation) == _source(_relu_equation()):
        return jax.nn.relu
    if equation.primitive.name in ("add", "max") and all(
        others[0].aval.shape[axis] == 1 for axis in axes[: others[0].aval.ndim]
    ):
        return lambda z: equation.primitive.bind(z, read(others[0]))
    return None


@cache
def _relu_equation() -> JaxprEqn:
    return jax.make_jaxpr(jax.nn.relu)(jnp.float32(0)).eqns[0]


def _source(equation: JaxprEqn) -> tuple[str, str]:
    """The primitive and the function of Python that it calls, with file and line."""
    jaxpr = equation.params.get("call_jaxpr", equation.params.get("jaxpr"))
    debug_info = jaxpr.jaxpr.debug_info if isinstance(jaxpr, ClosedJaxpr) else None
    return equation.primitive.name, str(debug_info)
