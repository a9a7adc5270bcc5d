"""Keys and values of tables and of a command line, checked against a schema."""

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from fedsim.config.registry import beside
from fedsim.config.resolve import Schema
from fedsim.config.schema import NAME_KEYS
from fedsim.errors import ConfigError

PAPER = "paper"  # the budget of a configuration as it stands
Block = dict[str, list[Any]]  # dotted key -> values


@dataclass(frozen=True)
class Reader:
    """Checks keys and values against a schema."""

    schema: Schema
    folder: Path

    @property
    def sections(self) -> set[str]:
        return set(self.schema.headings)

    def walk(self, table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        """(dotted key, value) of a TOML table; `ConfigError` at the first key that does not exist."""
        for name, value in table.items():
            key = prefix + name
            if key not in self.sections:
                self.schema.check(key, self.sections if isinstance(value, dict) else ())
                yield key, self._found(key, value)
            elif isinstance(value, dict):
                yield from self.walk(value, key + ".")
            else:
                raise ConfigError(f"{key} is a section, not a key; write [{key}] and its keys below")

    def blocks(self, tables: Any, name: str) -> list[Block] | None:
        """The blocks of a sweep called `name`; None where there is no sweep."""
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ConfigError(f"{name}: write [[{name}]], with double brackets, above each block")
        return [{key: self._axis(key, value) for key, value in self.walk(table)} for table in tables] or None

    def budgets(self, tables: Any) -> dict[str, tuple[dict[str, Any], list[Block] | None]]:
        """The keys that each budget fixes, and its sweep; all are checked, whichever is asked for."""
        budgets = {}
        for name, table in tables.items() if isinstance(tables, dict) else [("", tables)]:
            if not isinstance(table, dict) or name == PAPER:
                raise ConfigError("budget: write [budget.NAME], for example [budget.small], and its keys below")
            blocks = self.blocks(table.pop("sweep", []), f"budget.{name}.sweep")
            budgets[name] = dict(self.walk(table)), blocks
        return budgets

    def value(self, key: str, text: str | list[str]) -> Any:
        """What `text` on a command line means for `key`: TOML, or a string as it stands; several make a list."""
        if not self._takes_list(key):
            if isinstance(text, list):
                raise ConfigError(f"{key}: takes one value, got {' '.join(text)}; sweep several with sweep.{key}")
            return self._found(key, self._meant(key, text))
        values = [self._meant(key, one) for one in ([text] if isinstance(text, str) else text)]
        is_whole = len(values) == 1 and isinstance(values[0], list)
        return self._found(key, values[0] if is_whole else values)

    def _meant(self, key: str, text: str) -> Any:
        if _plain(self.schema.fields[key].type) is str:
            return text
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, KeyError):
            with contextlib.suppress(ValueError):
                return float(text)  # .5, which is not TOML
            return text

    def _takes_list(self, key: str) -> bool:
        return get_origin(_plain(self.schema.fields[key].type)) is tuple

    def _axis(self, key: str, value: Any) -> list[Any]:
        """The values of a key in a sweep: a list, or one value. A flat list is one value of a key that takes lists."""
        if not isinstance(value, list | tuple) or (
            self._takes_list(key) and not any(isinstance(v, list | tuple) for v in value)
        ):
            return [value]
        if not value:
            raise ConfigError(f"sweep: {key} has no values")
        return list(value)

    def _found(self, key: str, value: Any) -> Any:
        """`value`; a name with the way to its file, and in a list where the key takes one."""
        if key not in NAME_KEYS:
            return value
        return self._way_to([value] if self._takes_list(key) and isinstance(value, str) else value)

    def _way_to(self, value: Any) -> Any:
        """Names, with the way to files that lie beside the configuration."""
        if isinstance(value, list | tuple):
            return [self._way_to(one) for one in value]
        return beside(value, self.folder) if isinstance(value, str) else value


def _plain(annotation: Any) -> Any:
    """The type without what is said of it."""
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
