"""What a rule costs: milliseconds for a cohort's updates, once compiled."""

import json
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import run_id
from fedsim.config.schema import Config
from fedsim.core.chain import run_rule
from fedsim.core.contracts import RootEvaluator
from fedsim.core.rule_trace import blank_report
from fedsim.core.types import Array, PyTree, Variables
from fedsim.engine import build, devices, factories
from fedsim.rating import protocol
from fedsim.runs.folder import RunFolder
from fedsim.testing.clauses import one_line
from fedsim.version import __version__

SIZES = (20, 10_000), (20, 1_000_000), (100, 10_000), (100, 1_000_000)  # clients, parameters
FILE = "costs.json"
NUM_CALLS = 5  # of which the median counts
MAX_SECONDS = 5.0  # of all calls after the first


def measure(folder: RunFolder, data: str, keys: Mapping[str, Any]) -> list[float | str]:
    """Milliseconds of the rule for each of `SIZES`, a fifth of the clients being malicious; or why it fails.

    What the folder has of this device and this file of a plug-in is not measured again. What a rule computes on root
    data is not counted.
    """
    path = folder.path / FILE
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    results: list[float | str] = []
    for num_clients, size in SIZES:
        config = protocol.clean_run(data, keys, num_clients // 5, num_clients)
        digests = factories.plugin_files([config]).values()
        name = " ".join(map(str, (run_id(config), size, __version__, *digests, *devices.describe().values())))
        if name not in known:
            try:
                known[name] = _milliseconds(config, num_clients, size)
            except Exception as error:  # of any rule
                results.append(f"{type(error).__name__}: {one_line(error)}")
                continue
            folder.write_text(FILE, json.dumps(known, indent=1) + "\n")
        results.append(known[name])
    return results


def _milliseconds(config: Config, num_clients: int, size: int) -> float:
    make_rule, hparams = build.server(config), build.hparams(config)
    variables, rng = Variables({"w": jnp.zeros(size)}), np.random.default_rng(0)
    updates = Variables({"w": jnp.asarray(rng.standard_normal((num_clients, size), np.float32))})
    losses = jnp.asarray(rng.uniform(1, 2, num_clients), jnp.float32)
    report = blank_report(variables, num_clients)
    report = report._replace(num_examples=jnp.full(num_clients, 50), losses=losses, updates=updates)
    root = RootEvaluator(lambda updates: losses, lambda: variables)

    def aggregate(updates: Variables, state: PyTree) -> tuple[PyTree, Array]:
        result, _ = run_rule(make_rule(hparams), state, report._replace(updates=updates), jax.random.key(0), root)
        return result.update, result.weights

    state = make_rule(hparams).init(variables, report.num_examples, losses)
    call = jax.jit(aggregate).lower(updates, state).compile()
    jax.block_until_ready(call(updates, state))
    seconds: list[float] = []
    while len(seconds) < NUM_CALLS and sum(seconds) < MAX_SECONDS:
        started = time.perf_counter()
        jax.block_until_ready(call(updates, state))
        seconds.append(time.perf_counter() - started)
    return round(1000 * float(np.median(seconds)), 3)
