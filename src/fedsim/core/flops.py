"""FLOPs of a function, counted from its trace: the products and convolutions that its result depends on.

XLA's own account counts the body of a loop once, however often it runs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

from fedsim.core.types import PyTree


def count(fn: Callable[..., PyTree], *args: Any) -> int:
    """FLOPs of the matrix products and convolutions in `fn(*args)`; a scan's as often as it goes round.

    What the result does not depend on is not counted. Raises `ValueError` where a loop's length is not static.
    """
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    return _jaxpr_flops(jaxpr, [True] * len(jaxpr.outvars))


def _jaxpr_flops(jaxpr: Jaxpr, wanted: Sequence[bool]) -> int:
    needed = {v for v, w in zip(jaxpr.outvars, wanted, strict=True) if w and isinstance(v, Var)}
    total = 0
    for eqn in reversed(jaxpr.eqns):
        outputs = [v in needed for v in eqn.outvars]
        if any(outputs):
            needed.update(v for v in eqn.invars if isinstance(v, Var))
            total += _eqn_flops(eqn, outputs)
    return total


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(var.aval.shape)


def _eqn_flops(eqn: JaxprEqn, wanted: Sequence[bool]) -> int:
    name, params = eqn.primitive.name, eqn.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = _shape(eqn.invars[0])
        return 2 * math.prod(_shape(eqn.outvars[0])) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, spec = _shape(eqn.invars[1]), params["dimension_numbers"].rhs_spec
        spread = math.prod(params["lhs_dilation"])  # zeros between the inputs are multiplied by nobody
        return 2 * math.prod(_shape(eqn.outvars[0])) * math.prod(kernel[axis] for axis in spec[1:]) // spread
    inner = [_inner_flops(jaxpr, None if name == "scan" else wanted) for jaxpr in _jaxprs(params)]
    if name == "while" and any(inner):
        raise ValueError("a while loop has no length to count")
    if name == "cond":
        return max(inner)
    return sum(inner) * (params["length"] if name == "scan" else 1)


def _inner_flops(jaxpr: Jaxpr, wanted: Sequence[bool] | None) -> int:
    same = wanted if wanted is not None and len(wanted) == len(jaxpr.outvars) else [True] * len(jaxpr.outvars)
    return _jaxpr_flops(jaxpr, same)


def _jaxprs(params: dict[str, Any]) -> list[Jaxpr]:
    flat = [one for value in params.values() for one in (value if isinstance(value, tuple | list) else [value])]
    return [one.jaxpr if isinstance(one, ClosedJaxpr) else one for one in flat if isinstance(one, ClosedJaxpr | Jaxpr)]
