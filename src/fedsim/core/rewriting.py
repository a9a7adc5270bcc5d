"""Writes the convolutions and max pools of any function in the form that is fastest on the backend.

The function is traced, and its primitives are computed one by one: convolutions and pools by `fedsim.core.products`,
others as they are. So it does not matter which library of layers a model uses.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from fedsim.core import equations
from fedsim.core.contracts import Task
from fedsim.core.equations import Convolution
from fedsim.core.types import Array

BACKENDS = ("cpu", "gpu")  # where products were faster; on a TPU they have not been measured
WITH_BODIES = ("jit", "pjit", "scan", "while", "cond", "checkpoint", "remat2")  # whose jaxprs are rewritten, too
_is_inside: ContextVar[bool] = ContextVar("is_inside")  # a call of a rewritten function


def for_backend(task: Task, backend: str | None = None) -> Task:
    """The task with loss, metrics and outputs rewritten for `backend` ("cpu", "gpu" or "tpu"; by default JAX's own)."""
    bind, rewritten = task.bind, partial(rewrite, backend=backend)
    bound = None if bind is None else lambda frozen: for_backend(bind(frozen), backend)
    outputs = None if task.outputs is None else rewritten(task.outputs)
    return task._replace(loss=rewritten(task.loss), metrics=rewritten(task.metrics), bind=bound, outputs=outputs)


def rewrite(function: Callable[..., Any], backend: str | None = "cpu") -> Callable[..., Any]:
    """`function` of arrays with its convolutions and max pools as products; the same values up to rounding.

    Grouped and transposed convolutions, other types than one of floats and what is inside of custom derivatives stay
    as they are. So does everything on a TPU. The outermost call decides. Of what is rewritten `jax.jvp` is not defined,
    `jax.grad` is.
    """

    @wraps(function)
    def rewritten(*args: Any, **options: Any) -> Any:
        token = _is_inside.set(True)
        try:
            if token.old_value is True or (backend or jax.default_backend()) not in BACKENDS:
                return function(*args, **options)
            closed, shape = jax.make_jaxpr(function, return_shape=True)(*args, **options)
        finally:
            _is_inside.reset(token)
        leaves = map(jnp.asarray, jax.tree.leaves((args, options)))
        return jax.tree.unflatten(jax.tree.structure(shape), _evaluate(closed, *leaves))

    return rewritten


def _evaluate(closed: ClosedJaxpr, *args: Array) -> list[Array]:
    jaxpr = closed.jaxpr
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))
    uses = Counter(var for equation in jaxpr.eqns for var in equation.invars if not isinstance(var, Literal))
    uses.update(var for var in jaxpr.outvars if not isinstance(var, Literal))

    def read(var: Any) -> Any:
        value = var.val if isinstance(var, Literal) else values[var]
        return value.value() if isinstance(value, Convolution) else value

    def compute(equation: JaxprEqn) -> Sequence[Any]:
        first = equation.invars[0] if equation.invars else None
        before = None if first is None or isinstance(first, Literal) else values[first]
        if isinstance(before, Convolution) and (after := equations.after(before, equation, read)) is not None:
            return [after]
        arguments = map(read, equation.invars)
        if equations.is_convolution(equation):
            return [equations.convolution(equation, *arguments)]
        return [equations.pool(equation, *arguments)] if equations.is_pool(equation) else _bind(equation, *arguments)

    for equation in jaxpr.eqns:
        for var, value in zip(equation.outvars, compute(equation), strict=True):
            values[var] = value.value() if isinstance(value, Convolution) and uses[var] > 1 else value
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
    if isinstance(value, Jaxpr) and not isinstance(value, ClosedJaxpr) and not value.constvars:  # one class in jax 0.12
        return _rewrite_bodies(ClosedJaxpr(value, ())).jaxpr
    if not isinstance(value, ClosedJaxpr) or equations.REWRITTEN.isdisjoint(_primitives(value)):
        return value
    avals = (var.aval for var in value.jaxpr.invars)
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
    rewritten = jax.make_jaxpr(partial(_evaluate, value))(*shapes)
    return value if rewritten.consts and not value.consts else rewritten


def _primitives(body: ClosedJaxpr | Jaxpr) -> Iterator[str]:
    """Names of all primitives in it."""
    for equation in body.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, ClosedJaxpr | Jaxpr):
                    yield from _primitives(inner)
