"""Differences of two configurations or other nested tables."""

from typing import Any

NOT_SET = "not set"


def find_differences(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(dotted key, old value, new value) of each key whose values differ; "not set" for a missing key."""
    flat_old, flat_new = flatten_tables(old), flatten_tables(new)
    pairs = [(key, flat_old.get(key, NOT_SET), flat_new.get(key, NOT_SET)) for key in flat_old | flat_new]
    return [(key, before, after) for key, before, after in pairs if before != after]


def flatten_tables(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested table as {dotted key: value}."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= flatten_tables(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
