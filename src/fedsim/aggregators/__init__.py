"""The server's rules.

An aggregator is three pure functions over what the server can see (`fedsim.types.Aggregator`):

- `init(params, counts[N], losses[N]) -> state`. `losses` are all clients' training losses at the initial parameters.
- `aggregate(state, report, key) -> (Aggregate, state)`. `report` is a `CohortReport` of K clients in no order that
  matters; invalid clients have zero updates and must get weight 0. All weights zero makes the round void.
- `client_weights(state) -> alpha[N]`, or None for a rule that keeps no weights of all clients.

All three are called inside `jit` and `vmap`. Rules that only choose weights are written as one function and lifted by
`from_weights`. `AGGREGATORS` maps names to factories.
"""

from collections.abc import Callable

from fedsim.aggregators.arfl import arfl
from fedsim.aggregators.cfl import cfl
from fedsim.aggregators.fedavg import fedavg
from fedsim.aggregators.multi_krum import multi_krum
from fedsim.aggregators.rfa import rfa
from fedsim.aggregators.weighted import from_weights
from fedsim.types import Aggregator

AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    "fedavg": fedavg,
    "rfa": rfa,
    "multi_krum": multi_krum,
    "cfl": cfl,
    "arfl": arfl,
}

__all__ = ["AGGREGATORS", "arfl", "cfl", "fedavg", "from_weights", "multi_krum", "rfa"]
