"""One page of everything: style sheet, program, Vega and data."""

import base64
import gzip
import html
import json
import re
from importlib.resources import files
from pathlib import Path

from fedsim.errors import FedsimError, import_extra, pip_install
from fedsim.report.html.contents import contents
from fedsim.report.results import Results
from fedsim.runs.folder import RunFolder

FILE = "report.html"


def write_page(results: Results, out: RunFolder) -> Path:
    """Writes report.html into the folder `out`, and returns its path.

    Raises `FedsimError` if vl-convert is missing, `ConfigError` if `out` is a run folder, and this not its own report,
    `RunFolderError` if the file there is of no report.
    """
    results.check_destination(out)
    text = page(results)
    if not out.has_runs():  # where all reports are fedsim's
        out.start_report([FILE], kept=("",))
    out.write_text(FILE, text)
    return out.path / FILE


def page(results: Results) -> str:
    """The page. Raises `FedsimError` if vl-convert is missing."""
    missing = f"--format html needs vl-convert: {pip_install('html')}"
    converter = import_extra("vl_convert", FedsimError, missing)
    document = contents(results)
    static = files("fedsim.report.html") / "static"
    texts = {
        "title": html.escape(document["title"]),
        "vega": compress(converter.javascript_bundle()),
        "data": compress(json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))),
    }
    texts |= {path.name: path.read_text(encoding="utf-8") for path in static.iterdir()}
    return re.sub(r"\{\{([\w.]+)\}\}", lambda field: texts[field[1]], texts["page.html"])


def compress(text: str) -> str:
    """`text` as gzip, in base64; the same every time."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
