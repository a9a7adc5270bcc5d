"""Furthest (dynamic) label flipping: labels that depend on the model.

Peng, Li, Ling: "Mean Aggregator Is More Robust than Robust Aggregators under Label Poisoning Attacks on Distributed
Heterogeneous Data", JMLR 26(27), 2025, and their program (`pengj97/LPA`, ByrdLab/attack.py).
"""

import jax
import jax.numpy as jnp

from fedsim.core.client import lockstep_max
from fedsim.core.contracts import Task
from fedsim.core.corrupt import Corruption, example_owners, require_classes
from fedsim.core.types import Array, ClientData, DataSpec, Metrics, PyTree, Variables

FURTHEST = -1  # the label that stands for the class that is furthest from the model's prediction


def furthest_flipping() -> Corruption:
    """Each label of a corrupted client becomes the class that the current model gives the smallest logit.

    That is the class with the largest loss, of equal ones the first. It is chosen again in every local step, at the
    model of that step, in evaluation mode; also in the losses that clients report.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        return data._replace(y=jnp.where(corrupted[example_owners(data)], FURTHEST, data.y))

    def validate(spec: DataSpec) -> None:
        require_classes(spec)
        if spec.target_shape:
            raise ValueError(f"each example must have one label, got labels of shape {spec.target_shape}")

    return Corruption(apply, frozenset({"y"}), validate, change_task=choose_labels)


def choose_labels(task: Task, spec: DataSpec) -> Task:
    """`task`, which takes each label `FURTHEST` as the class with the largest loss."""

    def choose(variables: Variables, x: Array, y: Array) -> Array:
        def loss(x: Array, k: Array) -> Array:
            return task.metrics(jax.lax.stop_gradient(variables), x[None], k[None], jnp.ones(1, bool)).loss_sum

        classes = jnp.arange(spec.num_classes, dtype=y.dtype)
        losses = jax.vmap(jax.vmap(loss, (None, 0)), (0, None))(x, classes)
        return jnp.where(y == FURTHEST, jnp.argmax(losses, axis=1).astype(y.dtype), y)

    def loss(variables: Variables, x: Array, y: Array, mask: Array, key: Array) -> tuple[Array, PyTree]:
        return task.loss(variables, x, choose(variables, x, y), mask, key)

    def metrics(variables: Variables, x: Array, y: Array, mask: Array) -> Metrics:
        keep = lambda variables, x, y: y  # test labels are never FURTHEST
        # One condition for all clients and runs in lockstep: `vmap` would compute both branches.
        labels = jax.lax.cond(lockstep_max(jnp.any(y == FURTHEST)), choose, keep, variables, x, y)
        return task.metrics(variables, x, labels, mask)

    bind = task.bind
    rebind = None if bind is None else lambda frozen: choose_labels(bind(frozen), spec)
    return task._replace(loss=loss, metrics=metrics, bind=rebind, num_classes=None)  # which would refuse FURTHEST
