"""The contracts of all that can be plugged in, as checks: one a file.

Each check puts a thing through its contract, clause by clause, and raises `AssertionError` with one sentence at the
first clause that is broken; the sentence starts with the clause's name. `skip` leaves clauses out by name: a rule that
adds noise cannot give identical clients their own update, say. Every file has its names in `CLAUSES`.
"""

from fedsim.testing.aggregators import check_aggregator
from fedsim.testing.algorithms import check_algorithm
from fedsim.testing.attacks import check_attack
from fedsim.testing.corruptions import check_corruption
from fedsim.testing.datasets import check_dataset
from fedsim.testing.pre_aggregators import check_pre_aggregator
from fedsim.testing.tasks import check_task

__all__ = [
    "check_aggregator",
    "check_algorithm",
    "check_attack",
    "check_corruption",
    "check_dataset",
    "check_pre_aggregator",
    "check_task",
]
