"""From nested tables to values by dotted key and blocks of a sweep."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.config.kinds import KINDS
from fedsim.config.registry import resolve_path
from fedsim.config.resolve import Schema
from fedsim.config.values import DEFAULT, Sweep, list_element, parse_words
from fedsim.errors import ConfigError

PAPER = "paper"  # the preset that stands for the configuration without any preset
Block = dict[str, list[Any]]  # dotted key -> values


@dataclass(frozen=True)
class Reader:
    """Reads tables; the files of plug-ins are searched for in the working directory, then in `folder`."""

    schema: Schema
    folder: Path

    def walk(self, table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        """(dotted key, value) of a table. Raises `ConfigError` at the first unknown key."""
        sections = self.schema.headings
        for name, value in table.items():
            if not isinstance(name, str):
                raise ConfigError(f"{prefix or 'tables'}: keys must be text, got {name!r}")
            key = prefix + name
            if key not in sections:
                self.schema.check_key(key, sections if isinstance(value, dict) else ())
                yield key, self.value(key, value)
            elif isinstance(value, dict):
                yield from self.walk(value, key + ".")
            else:
                raise ConfigError(f"{key}: must be a section, [{key}] with its keys below, got {value!r}")

    def blocks(self, tables: Any, name: str) -> list[Block] | None:
        """The blocks of the sweep called `name`; None if there are none."""
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ConfigError(f"{name}: must be written [[{name}]], with double brackets, above each block")
        return [{key: self._axis(key, value) for key, value in self.walk(table)} for table in tables] or None

    def presets(self, tables: Any) -> dict[str, tuple[dict[str, Any], list[Block] | None]]:
        """The values and the sweep of each preset; all are checked."""
        presets = {}
        for name, table in tables.items() if isinstance(tables, dict) else [("", tables)]:
            if not isinstance(table, dict) or name == PAPER:
                raise ConfigError("preset: must be written [preset.NAME], such as [preset.small], with its keys below")
            blocks = self.blocks(table.pop("sweep", []), f"preset.{name}.sweep")
            presets[name] = dict(self.walk(table)), blocks
        return presets

    def value(self, key: str, value: Any) -> Any:
        """`value` with words of the command line parsed, and with the paths of plug-ins; one name as a list of one."""
        if isinstance(value, Sweep):
            return Sweep(tuple(self.value(key, inner) for inner in value.values))
        kind = self.schema.fields[key].type
        value = parse_words(value, kind)
        if key not in KINDS or value == DEFAULT:
            return value
        return self._with_paths([value] if list_element(kind) and isinstance(value, str) else value)

    def _axis(self, key: str, value: Any) -> list[Any]:
        """The values of a key in a block: a list, or one value. A flat list is one value of a key that takes a list."""
        if isinstance(value, Sweep):
            return list(value.values)
        if not isinstance(value, list):
            return [value]
        is_value = list_element(self.schema.fields[key].type) and not any(isinstance(inner, list) for inner in value)
        return [value] if is_value else value

    def _with_paths(self, value: Any) -> Any:
        if isinstance(value, list):
            return list(map(self._with_paths, value))
        return resolve_path(value, self.folder) if isinstance(value, str) else value
