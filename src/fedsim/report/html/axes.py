"""What settings differ in: the axes of the page's heat map."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedsim.report.names import aggregator_name, data_name, format_value, percent, threat_name
from fedsim.report.rows import LAM, lam_label, ordered_rows, row_names
from fedsim.report.settings import Setting

NO_POSITION = -1
ABSENT = object()  # the value of a key that does not apply
MALICIOUS = "attack_fraction"


class Axis(NamedTuple):
    """An axis and the position of each setting on it."""

    key: str
    title: str
    values: list[str]
    """As they are shown, in their order."""
    codes: np.ndarray
    """Position in `values` of each setting, [C] int32; NO_POSITION: the key does not apply to it."""
    determines: list[str]
    """Keys of the axes whose values follow from this one's."""


def axes(settings: Sequence[Setting]) -> list[Axis]:
    """The axes along which settings differ, those of several keys at once first."""
    names = row_names(settings)
    keys = list(dict.fromkeys(key for setting in settings for key, _ in setting.swept_values))
    rules = {setting: aggregator_name(setting.aggregator) for setting in settings}
    threats = ["Clean" if s.scenario.is_clean else threat_name(*s.scenario.threat) for s in settings]
    malicious = [ABSENT if s.attack_fraction is None else s.attack_fraction for s in settings]
    clean_first = list(dict.fromkeys(sorted(threats, key="Clean".__ne__)))
    keys_of = lambda *roles: [key for key in keys if settings[0].roles[key] in roles]
    row_axes = ["aggregator", "lam", *keys_of("rule", "pre-aggregator", "training")]
    threat_axes = ["corruption", "attack", MALICIOUS, *keys_of("threat")]
    every = [
        _axis("row", "Rule with its settings", list(names.values()), ordered_rows(names.items()), determines=row_axes),
        _axis("threat", "Corruption or attack", threats, clean_first, determines=threat_axes),
        _axis("data", "Data set", [data_name(setting.data) for setting in settings]),
        _axis("aggregator", "Rule", list(rules.values()), ordered_rows(rules.items())),
        _axis("corruption", "Corruption", [s.corruption for s in settings], show=lambda kind: _kind(kind, "none")),
        _axis("attack", "Attack", [setting.attack for setting in settings], show=lambda kind: _kind("none", kind)),
        _axis("fraction", "Corrupted clients", [setting.fraction for setting in settings], show=percent),
        _axis(MALICIOUS, "Malicious clients", malicious, show=percent),
        _axis("lam", lam_label(settings), _lams(settings), show=lambda lam: f"{lam:g}"),
        *(_swept_axis(key, settings) for key in keys),
    ]
    differ = [axis for axis in every if len(axis.values) > 1]
    return [axis for axis in differ if not any(_same(axis, other) for other in differ if other.key in axis.determines)]


def _kind(corruption: str, attack: str) -> str:
    return "none" if corruption == attack == "none" else threat_name(corruption, attack)


def _lams(settings: Sequence[Setting]) -> list[Any]:
    """The lambda of each setting; ABSENT if lambda only follows the scenario or was chosen."""
    is_swept = row_names(settings) != row_names(settings, without=(LAM,))
    return [setting.lam if is_swept and setting.lam is not None else ABSENT for setting in settings]


def _swept_axis(key: str, settings: Sequence[Setting]) -> Axis:
    values = [dict(setting.swept_values).get(key, ABSENT) for setting in settings]
    return _axis(key, key, values, show=lambda value: format_value(key, value))


def _axis(
    key: str,
    title: str,
    values: Sequence[Any],
    order: Sequence[Any] = (),
    show: Any = str,
    determines: Sequence[str] = (),
) -> Axis:
    """`values` [C] of the settings, or ABSENT; in `order`, or numbers ascending and others by first appearance."""
    different = list(order) or [value for value in dict.fromkeys(values) if value is not ABSENT]
    is_number = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    if all(map(is_number, different)):
        different.sort()
    positions = {value: position for position, value in enumerate(different)}
    codes = np.asarray([positions.get(value, NO_POSITION) for value in values], np.int32)
    return Axis(key, title, [show(value) for value in different], codes, list(determines))


def _same(axis: Axis, other: Axis) -> bool:
    """Whether two axes partition the settings alike, so that one is enough."""
    pairs = set(zip(axis.codes.tolist(), other.codes.tolist(), strict=True))
    return len(pairs) == len(axis.values) == len(other.values)
