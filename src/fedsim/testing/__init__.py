"""Checks of the contracts of everything that can be plugged in, one per file.

Each check runs clause by clause and raises `AssertionError` with one sentence, which starts with the clause's name, at
the first clause that is violated. `skip` leaves out clauses by name: a rule that adds noise, for example, cannot return
the common update of identical clients. `CLAUSES` in each file has their names. `check_conformance` compares a version
of a known rule, pre-aggregator or attack with cases that others have published, and with the built-in one.
"""

from fedsim.testing.aggregators import check_aggregator as check_aggregator
from fedsim.testing.algorithms import check_algorithm as check_algorithm
from fedsim.testing.attacks import check_attack as check_attack
from fedsim.testing.conformance import check_conformance as check_conformance
from fedsim.testing.corruptions import check_corruption as check_corruption
from fedsim.testing.pre_aggregators import check_pre_aggregator as check_pre_aggregator
from fedsim.testing.tasks import check_task as check_task
