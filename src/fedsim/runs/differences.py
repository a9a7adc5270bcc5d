"""In what two manifests, configurations or other nested tables differ."""

from typing import Any

NOT_SET = "not set"


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(dotted key, value there, value here) of each key whose values differ; "not set" where a table has no such."""
    flat_there, flat_here = _flat(there), _flat(here)
    keys = flat_there | flat_here
    found = [(key, flat_there.get(key, NOT_SET), flat_here.get(key, NOT_SET)) for key in keys]
    return [one for one in found if one[1] != one[2]]


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested table as {dotted key: value}."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
