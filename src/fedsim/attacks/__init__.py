"""What malicious clients report, one attack, or variants of one, per file.

An attack is up to three pure functions (`fedsim.core.contracts.Attack`), all called inside `jit` and `vmap`:

- `init(variables, num_examples [N]) -> state`; attacks without state leave it out.
- `forge_report(state, report, malicious [K], key) -> (num_examples [K], losses [K])`. It is also called before the
  first round, when all N clients report. If losses are measured after the server step, it is called twice in a round:
  first with NaN losses for the numbers of examples, then for the losses.
- `forge_updates(state, context, key) -> (updates [K, ...], state)`. `context` is an `AttackContext`: the honest report,
  who is malicious, the broadcast model, `aggregate`, the server's pre-aggregators and rule, and `next_loss`, the
  clients' loss after the server's step.

Values for honest clients are ignored. `honest_mean`, `honest_std` and the masks of clients are what attackers know of a
cohort; `identical_updates` and `most_damaging` build attacks of them.
`fedsim.testing.check_attack` checks an attack against this contract.
"""

from fedsim.attacks.none import none as none
from fedsim.attacks.fake_reports import fake_loss as fake_loss
from fedsim.attacks.fake_reports import fake_counts as fake_counts
from fedsim.attacks.sign_flip import sign_flip as sign_flip
from fedsim.attacks.gaussian import gaussian as gaussian
from fedsim.attacks.inf import inf as inf
from fedsim.attacks.ipm import ipm as ipm
from fedsim.attacks.alie import alie as alie
from fedsim.attacks.min_max import min_max as min_max
from fedsim.attacks.min_max import min_sum as min_sum
from fedsim.attacks.mimic import mimic as mimic
from fedsim.attacks.model_replacement import model_replacement as model_replacement
from fedsim.attacks.fang import fang as fang
from fedsim.attacks.ipm import optimal_ipm as optimal_ipm
from fedsim.attacks.alie import optimal_alie as optimal_alie
from fedsim.attacks.ascent import ascent as ascent
from fedsim.attacks.honest import *  # noqa: F403
from fedsim.attacks.search import *  # noqa: F403
from fedsim.core.factories import check_factories

check_factories(globals())
