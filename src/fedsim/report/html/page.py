"""One page of everything: style sheet, program, plotting library and data."""

import html
import re
from importlib.resources import files
from pathlib import Path

from fedsim.errors import FedsimError, import_extra, pip_install
from fedsim.report.html.contents import contents
from fedsim.report.html.packing import compress, pack
from fedsim.report.results import Results
from fedsim.runs.folder import RunFolder

FILE = "report.html"
# Modules of the page's program, each after those that it imports.
MODULES = "unpack format theme save cube heatmap picture plots detail table controls main".split()  # noqa: SIM905


def write_page(results: Results, out: RunFolder) -> Path:
    """Writes report.html into the folder `out`, and returns its path.

    Raises `FedsimError` if Plotly is missing, `ConfigError` if `out` is a run folder and this is not its own report.
    """
    results.check_destination(out)
    out.write_text(FILE, page(results))
    return out.path / FILE


def page(results: Results) -> str:
    """The page. Raises `FedsimError` if Plotly is missing."""
    plotly = _plotly()
    document = contents(results)
    texts = {
        "title": html.escape(document["about"]["name"]),
        "style": _static("page.css"),
        "program": program(),
        "plotly": compress(plotly.encode()),
        "data": pack(document),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda field: texts[field[1]], _static("page.html"))


def _plotly() -> str:
    """The plotting library (MIT license) from its Python package."""
    missing = f"--format html needs Plotly: {pip_install('html')}"
    return str(import_extra("plotly.offline", FedsimError, missing).get_plotlyjs())


def program() -> str:
    """The modules concatenated to one, without imports and exports."""
    lines = []
    for name in MODULES:
        for line in _static(f"{name}.js").splitlines():
            if not line.startswith("import "):
                lines.append(line.removeprefix("export "))
    return "\n".join(lines)


def _static(name: str) -> str:
    return (files("fedsim.report.html") / "static" / name).read_text(encoding="utf-8")
