"""The reference of all keys of a configuration, from the code: `python docs/site/configuration.py` writes its page."""

import re
from collections.abc import Iterable
from pathlib import Path

from fedsim.config.fields import Field
from fedsim.config.kinds import KINDS
from fedsim.config.registry import section_of
from fedsim.config.resolve import schema
from fedsim.config.sections import Role
from fedsim.config.values import format_toml
from fedsim.core.setting_types import describe_type

PAGE = Path(__file__).parents[1] / "reference" / "keys.md"
HEAD = """# Keys

Every key of a configuration, generated from the code; `fedsim config` prints the same as a TOML file to start from. On
the command line a key is `--section.key value`, in Python `section__key=value`. Its
[role](../architecture.md#keys-and-their-roles) says what it reaches; *traced* keys are inputs of a compiled program: a
sweep over them compiles once. Runs that differ in keys with the roles record and engine only are one run. Upper bounds
of 1e30 are left out."""
TABLE = "| key | type | default | role | meaning |\n| --- | --- | --- | --- | --- |"
COMPONENTS = """## Components

Keys whose values name components, which have [other names in other programs](names.md). Each also takes a
[plug-in](../extending.md), as `file.py:function`.

| key | names | built in |
| --- | --- | --- |"""


def page() -> str:
    """The page as Markdown."""
    keys = schema()
    settings = [(section_of(key, name), kind.noun) for key, kind in KINDS.items() for name in kind.built_in]
    kinds = {section: f"Settings of {noun}s" for section, noun in settings}
    tables: dict[str, list[str]] = {}
    for field in keys.fields.values():
        heading = kinds.get(field.section) or (f"`{field.section}`" if field.section else "Keys without a section")
        if heading not in tables:
            tables[heading] = [keys.headings[field.section], ""] if heading.startswith("`") else []
            tables[heading].append(TABLE)
        tables[heading].append(_row(field))
    parts = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in tables.items()]
    return "\n\n".join([HEAD, _components(), *parts]) + "\n"


def _components() -> str:
    rows = []
    for key, kind in KINDS.items():
        first = next(other for other, known in KINDS.items() if known.built_in == kind.built_in)
        rows.append(f"| `{key}` | {kind.noun} | {_quote(kind.built_in) if first == key else f'as `{first}`'} |")
    return "\n".join([COMPONENTS, *rows])


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(field: Field) -> str:
    default = "" if field.default is None else f"`{format_toml(field.default)}`"
    role = "*traced*" if Role.TRACED is field.role or field.is_traced else field.role.value
    meaning = re.sub(r" \(.*\)", "", field.meaning) if field.name in KINDS else field.meaning
    cells = (f"`{field.name}`", describe_type(field.type).replace(" and <= 1e+30", ""), default, role, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
