"""Helpers that the paper's figures share."""

from collections.abc import Iterable
from typing import Any

from fedsim.report import style
from fedsim.report.names import AGGREGATORS


def rule_line(rule: str) -> dict[str, Any]:
    """A rule's color and line style, the same in all figures."""
    return style.line(list(AGGREGATORS).index(rule))


def set_lambda_axes(panels: Iterable[Any]) -> None:
    """Puts lambda on a logarithmic x-axis."""
    for panel in panels:
        panel.set_xscale("log")
        panel.set_xlabel("λ / M")


def small_panel() -> tuple[Any, Any]:
    """A figure with one panel for a single plot."""
    figure, (panel,) = style.panels(1)
    figure.set_size_inches(5.2, 3.8)
    return figure, panel
