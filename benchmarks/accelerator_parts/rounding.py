"""How much float32 may round: the bound that part a compares with.

Rounding errors have random signs, so those of n terms that are summed one after another come to about sqrt(n) u,
u = 2^-24 (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 2019). Four
times that is the bound. Two orders of the same sums on a CPU stay below a hundredth of it, and TF32, with u = 2^-11 in
its products, does not meet it.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from accelerator_parts.timing import gradient
from accelerator_parts.work import Work

UNIT = 2.0**-24  # of float32
SAFETY = 4


def summed_terms(work: Work) -> int:
    """The terms that the products of one training step sum, one product after another."""
    train = work.dataset.train
    x, y = train.x[: work.batch_size], train.y[: work.batch_size]
    task = work.task("cpu")
    params = jax.eval_shape(task.init, jax.random.key(0)).params
    step = jax.make_jaxpr(gradient(task))(params, x, y, jnp.ones(len(y), bool), jax.random.key(0))
    return _terms(step.jaxpr)


def _terms(jaxpr: Jaxpr) -> int:
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            left: Any = eqn.invars[0].aval
            total += math.prod(left.shape[axis] for axis in contracted)
        found: list[Any] = [
            one for value in eqn.params.values() for one in (value if isinstance(value, tuple | list) else [value])
        ]
        inner = [one.jaxpr if isinstance(one, ClosedJaxpr) else one for one in found]
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        total += times * sum(_terms(one) for one in inner if isinstance(one, Jaxpr))
    return total
