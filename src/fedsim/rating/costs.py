"""What a rule costs: milliseconds for a cohort's updates, once compiled."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.roles import run_id
from fedsim.config.schema import Config
from fedsim.core.chain import run_rule
from fedsim.core.contracts import Aggregator, RootEvaluator
from fedsim.core.rule_trace import blank_report
from fedsim.core.types import Array, PyTree, Variables
from fedsim.engine import build
from fedsim.errors import ConfigError
from fedsim.rating import protocol
from fedsim.runs.folder import RunFolder

SIZES = (20, 10_000), (20, 1_000_000), (100, 10_000), (100, 1_000_000)  # clients, parameters
BESIDE = "fedavg", "median", "multi_krum"
FILE = "costs.json"
NUM_CALLS = 5  # of which the median counts
MAX_SECONDS = 5.0  # of all calls after the first


def measure(folder: RunFolder, data: str, rules: Sequence[Mapping[str, Any]]) -> list[list[float | None]]:
    """[rules][sizes] milliseconds of each rule, given by its keys; those that the folder has are not measured again.

    A fifth of the clients is malicious. None: the rule cannot be built for that many. What it computes on root data is
    not counted.
    """
    path = folder.path / FILE
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    rows = []
    for keys in rules:
        row = []
        for num_clients, size in SIZES:
            clients = {"data.num_clients": num_clients, "server.cohort_size": num_clients}
            changes = {"server.num_byzantine": num_clients // 5, **keys, **clients, "seed": 0}
            config = protocol.read(data, "evaluation", changes).runs()[0]
            name = f"{run_id(config)}-{size}"
            if name not in known:
                known[name] = _milliseconds(config, num_clients, size)
                folder.path.mkdir(parents=True, exist_ok=True)
                folder.write_text(FILE, json.dumps(known, indent=1) + "\n")
            row.append(known[name])
        rows.append(row)
    return rows


def _milliseconds(config: Config, num_clients: int, size: int) -> float | None:
    hparams = build.hparams(config)
    make_rule = build.server(config)
    variables = Variables({"w": jnp.zeros(size)})
    report = blank_report(variables, num_clients)
    rng = np.random.default_rng(0)
    updates = Variables({"w": jnp.asarray(rng.standard_normal((num_clients, size), np.float32))})
    losses = jnp.asarray(rng.uniform(1, 2, num_clients), jnp.float32)
    report = report._replace(num_examples=jnp.full(num_clients, 50), losses=losses, updates=updates)
    root = RootEvaluator(lambda updates: losses, lambda: variables)

    def aggregate(updates: Variables, state: PyTree) -> tuple[PyTree, Array]:
        result, _ = run_rule(make_rule(hparams), state, report._replace(updates=updates), jax.random.key(0), root)
        return result.update, result.weights

    try:
        rule: Aggregator = make_rule(hparams)
        state = rule.init(variables, report.num_examples, losses)
        call = jax.jit(aggregate).lower(updates, state).compile()
    except (ConfigError, ValueError):
        return None
    jax.block_until_ready(call(updates, state))
    seconds: list[float] = []
    while len(seconds) < NUM_CALLS and sum(seconds) < MAX_SECONDS:
        started = time.perf_counter()
        jax.block_until_ready(call(updates, state))
        seconds.append(time.perf_counter() - started)
    return round(1000 * float(np.median(seconds)), 3)
