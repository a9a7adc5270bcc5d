"""Aggregation rules of the server and pre-aggregators, one per module or several that share one.

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

All of them are called inside `jax.jit` and `jax.vmap`, and `aggregate` inside `jax.grad` by the attack `ascent`: a rule
whose loop has no derivative stops the gradient of what enters it, as CAF does. `from_weights(lambda report: weights)`
builds a rule from one function that chooses weights; it may also take `(report, key)`, `(state, report)` or `(state,
report, key)`. `fedsim.testing.check_aggregator` checks the contract of any rule.

A pre-aggregator is `(report, key) -> report`: before the rule, it changes the updates of a report, or mixes its rows
into a smaller, static number. If it mixes, it sets `mixing` [K', K], the share of each client in each row, which sum to
1 in a valid row, so that weights are recorded by client; and `weights` [K'], if the report has some. Rules that
identify clients by their ids (ARFL, FoolsGold, MoNNA) need a row of each.

`fedsim.chain(nnm(), trimmed_mean())` is a rule, too: pre-aggregators, rules that give weights, and a last rule.
"""

from fedsim.aggregators.apply import apply as apply
from fedsim.aggregators.built_in_pre_aggregators import *  # noqa: F403
from fedsim.aggregators.built_in_rules import *  # noqa: F403
from fedsim.aggregators.weighting import from_weights as from_weights
from fedsim.core.factories import check_factories

check_factories(globals())
