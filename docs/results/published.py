"""The text of docs/published.md, which make.py writes: published tables cell by cell, and why some differ.

`published-NAME.notes.md` has a remark, if any, and the causes: list items "- `CELL`: cause", where CELL may have * for
anything.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from fedsim import Claim, report
from fedsim.report.published import AGREES, DIFFERS, NEAR
from fedsim.report.table import text_table

UNEXPLAINED = "unexplained"
FAILS = (DIFFERS, "fails", "fails (mean only)")
INTRO = """\
A cell *agrees* if the means differ by at most 2 pooled standard deviations (of runs with different seeds), is *near*
within 4 of them or within 2 points, and *differs* otherwise ([how](extending.md#claims-of-a-paper)). fedsim's cells
without ± have one seed. Tables without published numbers are checked by their signs. What differs has a cause, or is
called unexplained.
All numbers can be computed again from `docs/results/rows/published-*` without running anything, by
`python docs/results/make.py`. To compare an installation, `--preset check` runs a part of each table, of most
only first rounds, which have no published numbers."""


class Table(NamedTuple):
    """A published table beside runs of its configuration."""

    config: Path
    claims: Sequence[Claim] = ()  # empty: it was not run
    record: str = ""  # machine and minutes

    @property
    def name(self) -> str:
        return self.config.stem

    @property
    def cells(self) -> list[Claim]:
        """The published numbers that were run."""
        return [claim for claim in self.claims if claim.comparison]

    @property
    def signs(self) -> list[Claim]:
        return [claim for claim in self.claims if claim.kind != "published" and claim.numbers]


def page(tables: Sequence[Table], folder: Path) -> str:
    """The page as Markdown; `folder` has the notes."""
    causes = {table.name: read_causes(folder, table.name) for table in tables}
    sections = [_section(table, causes[table.name], read_remark(folder, table.name)) for table in tables]
    return "\n\n".join(["# Other people's numbers", _summary(tables, causes), INTRO, *sections]) + "\n"


def _read_notes(folder: Path, name: str) -> str:
    path = folder / f"published-{name}.notes.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_remark(folder: Path, name: str) -> str:
    """What to know of the rows of a table; may be empty."""
    return " ".join(_read_notes(folder, name).partition("- `")[0].split())


def read_causes(folder: Path, name: str) -> dict[str, str]:
    """Why cells differ, by pattern of their names."""
    items = re.findall(r"^- `(.+?)`: (.+(?:\n  .+)*)", _read_notes(folder, name), re.M)
    return {pattern: " ".join(text.split()) for pattern, text in items}


def cause_of(claim: Claim, causes: dict[str, str]) -> str:
    """Why a cell differs or a sign fails; also of an open sign, if there is a note."""
    if claim.verdict not in (*FAILS, "open"):
        return ""
    unknown = "" if claim.verdict == "open" else UNEXPLAINED
    return next((text for pattern, text in causes.items() if fnmatchcase(claim.text, pattern)), unknown)


def _summary(tables: Sequence[Table], causes: dict[str, dict[str, str]]) -> str:
    """Three lines: what was reproduced; by table; what differs."""
    verdicts = Counter(claim.verdict for table in tables for claim in table.cells)
    signs = [claim.holds for table in tables for claim in table.signs]
    differing = [(claim, table) for table in tables for claim in (*table.cells, *table.signs) if claim.verdict in FAILS]
    num_unexplained = sum(cause_of(claim, causes[table.name]).startswith(UNEXPLAINED) for claim, table in differing)
    good = verdicts[AGREES] + verdicts[NEAR]

    def count(table: Table) -> str:
        num_missing = _num_published(table) - len(table.cells)
        others = f" ({num_missing} not run)" if num_missing > 0 else ""
        return f"{table.name} {sum(claim.holds for claim in table.cells)} of {len(table.cells)}{others}"

    by_table = [count(table) for table in tables if table.cells]
    missing = [table.name for table in tables if not table.claims]
    not_run = f" Not run: {', '.join(missing)}." if missing else ""
    return "\n".join(
        [
            f"- **{good} of {verdicts.total()} published numbers agree ({verdicts[AGREES]}) or are near "
            f"({verdicts[NEAR]})**; of tables without numbers, {signs.count(True)} of {len(signs)} signs are found "
            f"({signs.count(None)} open).",
            f"- By table: {', '.join(by_table) or 'none was run'}.{not_run}",
            f"- Of what differs, with a cause below: {len(differing) - num_unexplained}; "
            f"unexplained: {num_unexplained}.",
        ]
    )


def _published(table: Table) -> Any:
    """What was published of a table; None if that are no numbers."""
    return json.loads(table.config.with_name("tables.json").read_text(encoding="utf-8")).get(table.name)


def _num_published(table: Table) -> int:
    """The published numbers of a table, also those after fewer rounds ("early")."""
    published = _published(table) or {"cells": table.cells}
    return len(published["cells"]) + len(published.get("early", ()))


def description(config: Path) -> str:
    """The first paragraph of a configuration's comment."""
    header = config.read_text(encoding="utf-8").partition("\n#\n")[0]
    return " ".join(line.removeprefix("#").strip() for line in header.splitlines())


def _section(table: Table, causes: dict[str, str], remark: str) -> str:
    published = _published(table)
    command = f"`fedsim run configs/published/{table.config.name}`"
    source = f" Source: {published['source']}; {published['number']}." if published else ""
    parts = [f"## {table.name}", f"{description(table.config)}{source}"]
    if not table.claims:
        return "\n\n".join([*parts, f"{command}: not run."])
    num_cells = f" {len(table.cells)} of {_num_published(table)} cells." if table.cells and published else ""
    rows = [(c.text, c.published, c.measured, c.margin("seed"), c.verdict, cause_of(c, causes)) for c in table.claims]
    margin = "Difference, in pooled sd" if table.cells else "Margin (mean, 95 % interval)"
    columns = ("Cell" if table.cells else "Sign", "Published", "fedsim", margin, "Verdict", "Cause")
    shown = report.markdown([text_table("", columns, rows)], literal=False).strip()
    return "\n\n".join([*parts, f"{command}: {table.record}.{num_cells} {remark}".strip(), shown])
