"""What the paper's figures share."""

from typing import Any

from fedsim.report import style
from fedsim.report.names import AGGREGATORS


def of_rule(rule: str) -> dict[str, Any]:
    """The line of a rule, the same whichever rules stand beside it."""
    return style.line(list(AGGREGATORS).index(rule))
