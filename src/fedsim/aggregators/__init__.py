"""Aggregation rules of the server, one per module, and pre-aggregators.

`apply` aggregates plain arrays with any rule:

>>> import fedsim
>>> fedsim.aggregators.apply(fedsim.aggregators.median(), [[1.0, 2.0], [2.0, 0.0], [99.0, 1.0]]).update.tolist()
[2.0, 1.0]

A rule is an `Aggregator`: pure functions of what the server can see.

- `init(variables, num_examples [N], losses [N]) -> state`. `variables` is a pytree like one client's update; `losses`
  are all clients' training losses at the initial model.
- `aggregate(state, report, key) -> (Aggregate, state)`. `report` is a `CohortReport` of K clients, whose order must not
  matter. Invalid clients have zero updates and must get weight 0. If all weights are zero, the round is skipped. The
  aggregate's `info`, a dict of scalars, is recorded like losses.
- `client_weights(state) -> alpha [N]`, or None if the rule keeps no weights of all clients.
- `observe_losses(state, report) -> state`, for rules that use losses. With `client.loss_at = "aggregated"`, losses are
  measured at the server's next model: `aggregate` gets NaN for all clients, and then `observe_losses` gets a report
  with the losses and without updates.
- `measure(root, report) -> measurements`, for rules that use the server's root data, clean examples that no client has
  (`data.root_examples`). `root.losses(updates)` and `root.train()` use them; `aggregate` gets the result as
  `report.measurements`.

All of them are called inside `jax.jit` and `jax.vmap`. `from_weights` builds a rule from one function that chooses
weights. `fedsim.testing.check_aggregator` checks the contract of any rule.

A pre-aggregator is `(report, key) -> report`: before the rule, it changes the updates of a report, or mixes its rows
into a smaller, static number. If it mixes, it sets `mixing` [K', K], the share of each client in each row, so that
weights are recorded by client. Rules that identify clients by their ids (ARFL, FoolsGold) need unmixed rows.
"""

from fedsim.aggregators.apply import apply
from fedsim.aggregators.arc import arc
from fedsim.aggregators.arfl import arfl
from fedsim.aggregators.autogm import autogm
from fedsim.aggregators.bucketing import bucketing
from fedsim.aggregators.bulyan import bulyan
from fedsim.aggregators.caf import caf
from fedsim.aggregators.centered_clipping import centered_clipping
from fedsim.aggregators.cfl import cfl
from fedsim.aggregators.clipping import clipping
from fedsim.aggregators.dnc import dnc
from fedsim.aggregators.fedavg import fedavg
from fedsim.aggregators.flame import flame
from fedsim.aggregators.fltrust import fltrust
from fedsim.aggregators.foolsgold import foolsgold
from fedsim.aggregators.krum import krum
from fedsim.aggregators.mda import mda
from fedsim.aggregators.meamed import meamed
from fedsim.aggregators.median import median
from fedsim.aggregators.multi_krum import multi_krum
from fedsim.aggregators.nnm import nnm
from fedsim.aggregators.norm_clipping import norm_clipping
from fedsim.aggregators.rfa import rfa
from fedsim.aggregators.signguard import signguard
from fedsim.aggregators.smea import smea
from fedsim.aggregators.trimmed_mean import trimmed_mean
from fedsim.aggregators.weighting import from_weights
from fedsim.aggregators.zeno import zeno
from fedsim.core.factories import check_factories

__all__ = [
    "apply",
    "arc",
    "arfl",
    "autogm",
    "bucketing",
    "bulyan",
    "caf",
    "centered_clipping",
    "cfl",
    "clipping",
    "dnc",
    "fedavg",
    "flame",
    "fltrust",
    "foolsgold",
    "from_weights",
    "krum",
    "mda",
    "meamed",
    "median",
    "multi_krum",
    "nnm",
    "norm_clipping",
    "rfa",
    "signguard",
    "smea",
    "trimmed_mean",
    "zeno",
]

check_factories(globals())
