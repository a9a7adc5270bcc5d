"""What malicious clients report, one attack per file.

An attack is up to three pure functions (`fedsim.core.contracts.Attack`), all called inside `jit` and `vmap`:

- `init(variables, num_examples [N]) -> state`; attacks without state leave it out.
- `forge_report(state, report, corrupted [K], key) -> (num_examples [K], losses [K])`. It is also called before the
  first round, when all N clients report. If losses are measured after the server step, it is called twice in a round:
  first with NaN losses for the numbers of examples, then for the losses.
- `forge_updates(state, context, key) -> (updates [K, ...], state)`. `context` is an `AttackContext`: the honest report,
  who is corrupted, the broadcast model, and `aggregate`, the server's pre-aggregators and rule. `jax.vmap` `aggregate`
  over strengths to search for the most damaging one.

Values for honest clients are ignored. `fedsim.attacks.honest` computes what attackers know about the honest clients.
`fedsim.testing.check_attack` checks an attack against this contract.
"""

from fedsim.attacks.alie import alie
from fedsim.attacks.fake_counts import fake_counts
from fedsim.attacks.fake_loss import fake_loss
from fedsim.attacks.fang import fang
from fedsim.attacks.gaussian import gaussian
from fedsim.attacks.inf import inf
from fedsim.attacks.ipm import ipm
from fedsim.attacks.mimic import mimic
from fedsim.attacks.min_max import min_max
from fedsim.attacks.min_sum import min_sum
from fedsim.attacks.model_replacement import model_replacement
from fedsim.attacks.none import none
from fedsim.attacks.optimal_alie import optimal_alie
from fedsim.attacks.optimal_ipm import optimal_ipm
from fedsim.attacks.sign_flip import sign_flip
from fedsim.core.factories import check_factories

__all__ = [
    "alie",
    "fake_counts",
    "fake_loss",
    "fang",
    "gaussian",
    "inf",
    "ipm",
    "mimic",
    "min_max",
    "min_sum",
    "model_replacement",
    "none",
    "optimal_alie",
    "optimal_ipm",
    "sign_flip",
]

check_factories(globals())
