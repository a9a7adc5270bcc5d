"""FLOPs of a function, counted from its trace: the products and convolutions that its result depends on.

XLA's own cost analysis counts the body of a loop once, however often it runs.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.interpreters.partial_eval import dce_jaxpr

from fedsim.core.types import PyTree


def count_flops(fn: Callable[..., PyTree], *args: Any) -> int:
    """FLOPs of the matrix products and convolutions in `fn(*args)`; a scan counts as often as it iterates.

    Ignores what the result does not depend on. Raises `ValueError` if the length of a loop is not static.
    """
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    needed, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _jaxpr_flops(needed)


def _jaxpr_flops(jaxpr: Jaxpr) -> int:
    return sum(map(_eqn_flops, jaxpr.eqns))


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(var.aval.shape)


def _eqn_flops(eqn: JaxprEqn) -> int:
    name, params = eqn.primitive.name, eqn.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = _shape(eqn.invars[0])
        return 2 * math.prod(_shape(eqn.outvars[0])) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, spec = _shape(eqn.invars[1]), params["dimension_numbers"].rhs_spec
        dilation = math.prod(params["lhs_dilation"])  # zeros between the inputs are not multiplied
        return 2 * math.prod(_shape(eqn.outvars[0])) * math.prod(kernel[axis] for axis in spec[1:]) // dilation
    inner = list(map(_jaxpr_flops, _inner_jaxprs(params)))
    if name == "while" and any(inner):
        raise ValueError("fn: must have loops of static length, got a while loop")
    if name == "cond":
        return max(inner)
    return sum(inner) * (params["length"] if name == "scan" else 1)


def _inner_jaxprs(params: dict[str, Any]) -> list[Jaxpr]:
    values = jax.tree.leaves(list(params.values()), is_leaf=lambda value: isinstance(value, ClosedJaxpr | Jaxpr))
    jaxprs = [value.jaxpr if isinstance(value, ClosedJaxpr) else value for value in values]
    return [jaxpr for jaxpr in jaxprs if isinstance(jaxpr, Jaxpr)]
