"""The reference page of all keys of a configuration, from the code: type and bounds, default, meaning."""

from fedsim.config.fields import Field
from fedsim.config.kinds import KINDS
from fedsim.config.resolve import schema
from fedsim.config.values import format_toml
from fedsim.core.setting_types import describe_type

HEAD = """# Configuration

Every key of a configuration, generated from the code; `fedsim config` prints the same as a TOML file to start from. On
the command line a key is `--section.key value`, in Python `section__key=value`. Keys marked *traced* are inputs of a
compiled program: a sweep over them compiles once."""
TABLE = "| key | type | default | meaning |\n| --- | --- | --- | --- |"
NAMES = """## Components

Keys whose values name components. Each also takes a plug-in, as `file.py:function`.

| key | names | built in |
| --- | --- | --- |"""


def page() -> str:
    """The page as Markdown."""
    keys = schema()
    parts = [HEAD, _components()]
    for section in dict.fromkeys(field.section for field in keys.fields.values()):
        fields = [field for field in keys.fields.values() if field.section == section]
        parts.append(f"## {section or 'Keys without a section'}")
        parts += [keys.headings[section]] if section else []
        parts.append("\n".join([TABLE, *map(_row, fields)]))
    return "\n\n".join(parts) + "\n"


def _components() -> str:
    quoted = lambda names: ", ".join(f"`{name}`" for name in names)
    rows = [f"| `{key}` | a {kind.noun} | {quoted(kind.built_in)} |" for key, kind in KINDS.items()]
    return "\n".join([NAMES, *rows]).replace("| a a", "| an a")


def _row(field: Field) -> str:
    default = "" if field.default is None else f"`{format_toml(field.default)}`"
    traced = " *traced*" if field.is_traced else ""
    meaning = field.meaning.split(" (")[0] if field.name in KINDS else field.meaning
    cells = (f"`{field.name.rpartition('.')[2]}`", describe_type(field.type) + traced, default, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
