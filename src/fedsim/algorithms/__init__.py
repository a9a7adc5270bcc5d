"""Local training algorithms, one per file; learning-rate schedules; optimizers of clients and server.

An algorithm is a few pure functions (`fedsim.core.contracts.Algorithm`), all called inside `jit` and `vmap`:

- `init(params) -> (client_state, server_state)`: the state of a client before its first round, and the shared one.
- `train(local, client_state, server_state) -> LocalResult`: one client's round. `local.sgd(correct)` trains from the
  broadcast model with the client optimizer, `local.sgd(correct, start)` from another one; `correct(gradient, params)`
  returns the gradient to use at each step.
- `update_server_state(server_state, messages, valid, num_clients) -> server_state`; messages [K, ...] of the cohort
  of all `num_clients` that have examples; by default the state stays as it is.
- `scale(messages, weights) -> factor`, optional: multiplies the aggregated parameters.
- `personal(client_state, broadcast model) -> model`, optional: a client's own model, for its own test examples.
- `needs_sgd`: whether its formulas hold for SGD only.

A client whose report is not valid keeps its previous state, and its message is zeros. Plain SGD is
`fedsim.core.method.plain_sgd`. `fedsim.testing.check_algorithm` checks an algorithm against this contract.
"""

from fedsim.core.method import plain_sgd as fedavg  # noqa: F401
from fedsim.algorithms.fedprox import fedprox as fedprox
from fedsim.algorithms.scaffold import scaffold as scaffold
from fedsim.algorithms.fednova import fednova as fednova
from fedsim.algorithms.worker_momentum import worker_momentum as worker_momentum
from fedsim.algorithms.ditto import ditto as ditto
from fedsim.core.factories import check_factories

check_factories(globals())
