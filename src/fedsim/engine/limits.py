"""Settings that are numbers of clients, held against the cohort: what cannot be is refused, what may fail is told."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp

from fedsim.config.resolve import limited
from fedsim.config.schema import Config, num_corrupted
from fedsim.core.settings import Limit
from fedsim.core.types import CohortReport, FederatedDataset
from fedsim.engine import build
from fedsim.errors import ConfigError


def check_limits(configs: Sequence[Config], dataset: FederatedDataset) -> list[str]:
    """What to tell of the numbers in runs that share a program; `ConfigError` where a rule cannot be one of them."""
    first = configs[0]
    cohort_size = num_rows = first.server.cohort_size
    told: dict[str, None] = {}
    for key, name in _stages(first):
        rows = f"the {num_rows} rows that pre-aggregators make of a cohort of {cohort_size}"
        cohort = "" if num_rows == cohort_size else rows
        for where, limit, value in _numbers(configs, key, name):
            if problem := limit.problem(value, num_rows, cohort):
                if limit.is_needed:
                    raise ConfigError(f"{where}: {problem}")
                told[f"{where}: {problem}"] = None
        if key == "server.pre_aggregators":
            num_rows = _rows_after(first, name, num_rows, dataset)
    return list(told)


def check_excluded(configs: Sequence[Config], num_clients: int) -> Iterator[str]:
    """What to tell of runs that are left with fewer clients than a cohort."""
    for config in configs:
        left = num_clients - num_corrupted(config, num_clients)
        if config.corruption.kind == "exclude" and left < config.server.cohort_size:
            yield (
                f"corruption.kind: exclude leaves {left} of {num_clients} clients, fewer than the "
                f"{config.server.cohort_size} of a round (server.cohort_size)"
            )


def _stages(config: Config) -> list[tuple[str, str]]:
    """(key, name) of what an update goes through at the server, in this order."""
    before = [("server.pre_aggregators", name) for name in config.server.pre_aggregators]
    return [*before, ("server.aggregator", config.server.aggregator)]


def _numbers(configs: Sequence[Config], key: str, name: str) -> Iterator[tuple[str, Limit, float]]:
    """(setting, limit, value) of what is called `name` under `key`, each value once."""
    found = ((field, value) for config in configs for field, value in limited(config, key, name))
    for field, value in dict.fromkeys(found):
        yield from ((field.name, limit, value) for limit in field.limits)


def _rows_after(config: Config, name: str, num_rows: int, dataset: FederatedDataset) -> int:
    """How many rows a pre-aggregator makes of `num_rows`."""
    pre_aggregate = build.made(config, "server.pre_aggregators", name)
    shapes = build.variables(config, dataset)

    def mixed() -> CohortReport:
        ids, valid = jnp.arange(num_rows), jnp.ones(num_rows, bool)
        updates = jax.tree.map(lambda one: jnp.zeros((num_rows, *one.shape), one.dtype), shapes)
        return pre_aggregate(CohortReport(ids, ids, jnp.zeros(num_rows), updates, valid), jax.random.key(0))

    return int(jax.eval_shape(mixed).valid.size)
