"""Checks that the accelerator computes what the CPU of the same process does, up to float32 rounding.

Both sides start from the same state and take the same keys, so that only rounding differs. It grows over rounds, as any
small difference does; therefore single rounds are compared, from states that the CPU has reached, with all matrix
products in full float32. `TOLERANCE` is relative to the length of the update or gradient: reordered float32 sums stay
far below it, TF32 and bfloat16 products do not. The difference at JAX's default precision is reported, not judged.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import workloads

import fedsim
from accelerator_parts import FORMS
from fedsim import aggregators, attacks
from fedsim.core.client import loss_gradient
from fedsim.core.rewriting import for_backend
from fedsim.core.types import PyTree
from fedsim.models import CharLSTM, Cifar10CNN, FemnistCNN

TOLERANCE = 1e-4
WEIGHT_TOLERANCE = 1e-3  # of a client's weight
START_ROUNDS = (0, 5)  # rounds that the CPU runs before the compared one
CORRUPTED_SHARE = 0.3
NUM_CLIENTS, BATCH_SIZE = 4, 16  # of the gradients
RULES: dict[str, workloads.Rule] = workloads.RULES | {
    "multi_krum": lambda hparams: aggregators.multi_krum(),
    "rfa": lambda hparams: aggregators.rfa(),
    "cfl": lambda hparams: aggregators.cfl(),
    "trimmed_mean": lambda hparams: aggregators.trimmed_mean(),
}
ATTACKS = {"trimmed_mean": attacks.alie()}  # other rules face shuffled labels alone
NETWORKS = {
    "Cifar10CNN": (Cifar10CNN(10), (32, 32, 3), np.uint8, 256, 10),
    "FemnistCNN": (FemnistCNN(62), (28, 28, 1), np.uint8, 256, 62),
    "CharLSTM": (CharLSTM(80, dropout_rate=0.0), (80,), np.int32, 80, 80),
}


def compare_round(rule: str, tiny: bool) -> dict[str, Any]:
    """Compares rounds of W3 with shuffled labels in 30 % of the clients, aggregated by `rule`."""
    workload = workloads.load("W3", tiny)
    simulation = workload.simulation(rule=RULES[rule], record_losses=True, attack=ATTACKS.get(rule, fedsim.Attack()))
    cpu, accelerator = jax.devices("cpu")[0], jax.devices()[0]
    hparams = workloads.hparams(workload.learning_rate)
    with jax.default_device(cpu):
        num_corrupted = round(CORRUPTED_SHARE * workload.dataset.num_clients)
        clean, spec = jax.tree.map(jnp.asarray, workload.dataset.train), workload.dataset.spec
        data = fedsim.corrupt(fedsim.corruption.shuffling(), jax.random.key(0), clean, spec, num_corrupted)
        state = jax.jit(simulation.init)(jax.random.key(1), data, hparams)
    run = partial(_run_on, simulation.round)
    rounds, completed = [], 0
    for start in START_ROUNDS:
        while completed < start:
            state, _ = run(cpu, "highest", state, data, hparams)
            completed += 1
        expected, record = run(cpu, "highest", state, data, hparams)
        update_length = np.linalg.norm(_flatten(expected.variables) - _flatten(state.variables))
        difference = lambda other, expected=expected, length=update_length: float(
            np.linalg.norm(_flatten(other.variables) - _flatten(expected.variables)) / length
        )
        exact, exact_record = run(accelerator, "highest", state, data, hparams)
        default, _ = run(accelerator, None, state, data, hparams)
        record, exact_record = jax.device_get((record, exact_record))
        rounds.append(
            {
                "round": start + 1,
                "same_cohort": bool(np.array_equal(record.client_ids, exact_record.client_ids)),
                "difference": difference(exact),
                "difference_at_default_precision": difference(default),
                "loss_difference": float(np.max(np.abs(exact_record.losses - record.losses) / np.abs(record.losses))),
                "weight_difference": float(np.max(np.abs(exact_record.weights - record.weights))),
            }
        )
    passed = all(
        line["same_cohort"]
        and max(line["difference"], line["loss_difference"]) < TOLERANCE
        and line["weight_difference"] < WEIGHT_TOLERANCE
        for line in rounds
    )
    return {"passed": passed, "tolerance": TOLERANCE, "rounds": rounds}


def compare_gradient(network: str, tiny: bool) -> dict[str, Any]:
    """Compares the gradients of clients with different parameters in lockstep, in each form of convolutions."""
    module, shape, dtype, num_values, num_classes = NETWORKS[network]
    if tiny and network == "CharLSTM":
        module = CharLSTM(num_classes, hidden_size=8, dropout_rate=0.0)
    rng = np.random.default_rng(0)
    batch_size = 2 if tiny else BATCH_SIZE
    x = rng.integers(0, num_values, (batch_size, *shape)).astype(dtype)
    y = rng.integers(0, num_classes, batch_size)
    cpu, accelerator = jax.devices("cpu")[0], jax.devices()[0]

    def gradients(backend: str, device: jax.Device, precision: str | None) -> np.ndarray:
        task = for_backend(fedsim.classification(module, x[0]), backend)
        with jax.default_device(cpu):
            params = jax.jit(jax.vmap(task.init))(jax.random.split(jax.random.key(0), NUM_CLIENTS)).params
        mapped = jax.vmap(loss_gradient(task), in_axes=(0, None, None, None, None, None))
        mask = np.ones(batch_size, bool)
        return _flatten(_run_on(mapped, device, precision, params, (), x, y, mask, jax.random.key(0)), NUM_CLIENTS)

    expected = gradients("cpu", cpu, "highest")
    length = np.linalg.norm(expected, axis=1)
    difference = lambda other: float(np.max(np.linalg.norm(other - expected, axis=1) / length))
    forms = {
        form: {
            "difference": difference(gradients(backend, accelerator, "highest")),
            "difference_at_default_precision": difference(gradients(backend, accelerator, None)),
        }
        for form, backend in FORMS.items()
    }
    passed = all(line["difference"] < TOLERANCE for line in forms.values())
    return {"passed": passed, "tolerance": TOLERANCE, "forms": forms}


def _run_on(fn: Callable[..., Any], device: jax.Device, precision: str | None, *args: PyTree) -> Any:
    """The result of `fn`, compiled for `device`, with matrix products of `precision` (None: JAX's default)."""
    with jax.default_matmul_precision(precision) if precision else nullcontext():
        return jax.block_until_ready(jax.jit(fn)(*jax.device_put(args, device)))


def _flatten(tree: PyTree, num_rows: int = 1) -> np.ndarray:
    """The leaves of `tree` as one float64 matrix [num_rows, P]."""
    leaves = [np.asarray(leaf, np.float64).reshape(num_rows, -1) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves, axis=1)
