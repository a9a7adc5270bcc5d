"""Writes docs/results.md, docs/published.md, and docs/results/NAME.md with its figures, from docs/results/rows/NAME.

    python docs/results/make.py                      all pages
    python docs/results/make.py --keep runs/NAME     first copies what a page needs of a complete run folder

A folder of rows is a run folder, or contains several, such as the groups of evidence.py. Numbers of the pages can so
be computed again without running anything. Notes in NAME.notes.md end a page; those of published tables have the causes
of differences (published.py).
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
from polars import col

import fedsim
from fedsim import report
from fedsim.engine.environment import folder_digest
from fedsim.report import style
from fedsim.report.accuracy import draws_text
from fedsim.report.claims import Claim, call, claims_table, summarize
from fedsim.report.names import count, duration
from fedsim.report.results import Results
from fedsim.report.table import text_table
from fedsim.runs.folder import RunFolder

PAGES = Path(__file__).parent
sys.path.insert(0, str(PAGES))
import published  # noqa: E402  # a script beside this one

ROWS, ROOT = PAGES / "rows", PAGES.parents[1]
PAPER, ROBUSTNESS, PUBLISHED = (ROOT / "configs" / name for name in ("paper", "robustness", "published"))
AUTHORS = PAPER / "authors"
ABOUT = {ROBUSTNESS: "[Robustness](../robustness.md)", AUTHORS: "[Text and program](../fidelity.md)"}
DIGEST = "Rows"  # in a picture's metadata: the digest of the rows that it shows


class Study(NamedTuple):
    """A result of the paper, a study of docs/robustness.md or docs/fidelity.md, or a table of docs/published.md."""

    place: str
    """In the paper; empty: it is none of its results."""
    figures: Sequence[str] = ()
    """Of the report, that the page shows."""
    clients: str = ""
    """Which rows of clients are kept: "evaluated" rounds, or the "last"."""


STUDIES = {
    "intro": Study("Sec. 3.3, Fig. 1", ["paper-intro"]),
    "table2-cifar10": Study("Sec. 5.2, Table 2", ["accuracy"], "evaluated"),
    "table2-femnist": Study("Sec. 5.2, Table 2", ["accuracy"], "evaluated"),
    "table2-shakespeare": Study("Sec. 5.2, Table 2", ["accuracy"], "evaluated"),
    "table2-digits": Study("Sec. 5.2, Table 2", ["accuracy"]),
    "convergence": Study("Sec. 5.2, Fig. 2", ["accuracy", "loss"]),
    "convergence-digits": Study("Sec. 5.2, Fig. 2", ["accuracy", "loss"]),
    "fraction-femnist": Study("Sec. 5.2"),
    "fraction": Study("Sec. 5.3, Fig. 3", ["accuracy_over_fraction"]),
    "heterogeneity": Study("Sec. 5.4, Fig. 4", ["accuracy"]),
    "lambda": Study("Sec. 5.5, Fig. 5", ["accuracy_over_lam", "weights_over_lam"], "last"),
    "autoweight": Study("Sec. 5.6, Fig. 6, 7", ["client_weights", "paper-autoweight"], "evaluated"),
    "limits": Study("Sec. 6", ["corrupted_weight"]),
    "fairness": Study("Sec. 6", (), "last"),
    "bound": Study("Theorem 2, Eq. 6", (), "evaluated"),
    **{f"{of.name}-{path.stem}": Study("") for of in (*ABOUT, PUBLISHED) for path in sorted(of.glob("*.toml"))},
}
INTRO = """\
# The paper's claims

What "Auto-weighted Robust Federated Learning with Corrupted Data Sources" (arXiv 2101.05880) says, compared with runs
of fedsim. **{summary}.**

- A statement with a number *holds* or *fails* if its 95 % interval (Student's t; differences are run by run) excludes
  the other side, and is *open* otherwise. The units are splits (test set and partition), each the mean of its seeds,
  or the seeds of a single split. With fewer than three, or if all are equal, there is no interval.
- "Mean only": a statement about a mean or level, without an interval. "No evidence": something is said not to be
  above something else; a wide interval agrees with that, too.
- A statement without a number holds if it is true for all seeds of each split, fails if it is true for none, and is
  open otherwise.

The tables and verdicts can be computed again from `docs/results/rows` without running anything: `python
docs/results/make.py` writes this page and those that it links. Notes below the tables have numbers of further runs,
too. Table 2 at `medium` is not complete on CIFAR-10: claims are there for the scenarios that were run.
Tables of other papers are compared on a page of their own: [other people's numbers](published.md).
"""


def main() -> None:
    """Writes the pages, after keeping the rows of new folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="RUN", type=Path, nargs="+", default=[], help="run folders, named as pages")
    for path in parser.parse_args().keep:
        keep(RunFolder(path), ROWS / path.name, path.name)
    for name in names():
        results = load(name)
        (PAGES / f"{name}.md").write_text(page(name, results), encoding="utf-8")
        write_figures(name, results)
    (PAGES.parent / "results.md").write_text(overview(), encoding="utf-8")
    (PAGES.parent / "published.md").write_text(published_page(), encoding="utf-8")


def names() -> list[str]:
    """The pages of their own whose rows are there, in the paper's order; <page>.notes has rows of its notes."""
    kept = [path.name for path in ROWS.glob("*/") if not path.suffix and not path.name.startswith(PUBLISHED.name)]
    return sorted(kept, key=lambda name: (list(STUDIES).index(study_of(name)), name))


def study_of(name: str) -> str:
    """The configuration of a page, such as "lambda" of "lambda-digits"."""
    return max((study for study in STUDIES if f"{name}-".startswith(f"{study}-")), key=len)


def load(name: str) -> Results:
    """The rows of a page."""
    places = sorted(path for path in (ROWS / name, *(ROWS / name).rglob("*/")) if RunFolder(path).has_runs())
    return report.load(*places)


def claims_of(name: str, results: Results) -> list[Claim]:
    """The claims of a page."""
    return call(str(fedsim.load(config_of(study_of(name))).claims), results)


def config_of(study: str) -> Path:
    """The configuration's file."""
    folder = next((of for of in (*ABOUT, PUBLISHED) if study.startswith(f"{of.name}-")), PAPER)
    return folder / f"{study.removeprefix(f'{folder.name}-')}.toml"


def page(name: str, results: Results) -> str:
    """The text of a page."""
    study = study_of(name)
    preset = name.removeprefix(study).removeprefix("-")
    config, place = config_of(study), STUDIES[study].place
    command = f"fedsim run {config.relative_to(ROOT)}" + (f" --preset {preset}" if preset else "")
    rounds = sorted({setting.rounds[-1] for setting in results.settings})
    ends = " to ".join(f"{number:,}" for number in dict.fromkeys((rounds[0], rounds[-1])))
    draws = draws_text(setting.draws for setting in results.settings)
    text = f"{count(len(results.runs), 'run')} of {ends} rounds, {draws}; {machine(results)}."
    rows = f"Rows: `docs/results/rows/{name}`."
    tables = [claims_table(results, claims_of(name, results))]
    tables += report.accuracy_tables(results) if place else []
    images = [f"![{figure}]({name}-{figure}.png)" for figure in STUDIES[study].figures]
    notes = PAGES / f"{name}.notes.md"
    about = f"{place or ABOUT[config.parent]}. {published.description(config)}"
    parts = [f"# {name}", about, f"`{command}`: {text} {rows}"]
    parts += [*(report.markdown([table]).strip() for table in tables), *images]
    parts += [notes.read_text(encoding="utf-8").strip()] if notes.exists() else []
    return "\n\n".join(parts) + "\n"


def machine(results: Results) -> str:
    """Devices, versions and duration, for example "2 x cpu, fedsim 0.3.0, jax 0.10.2, 24 min"."""
    environments = [environment for group in results.groups for environment in group.record.environments]
    devices = dict.fromkeys(f"{e['device']['count']} x {e['device']['kind']}" for e in environments)
    versions = [dict.fromkeys(f"{name} {e['versions'][name]}" for e in environments) for name in ("fedsim", "jax")]
    completions = [group.read_completion() for group in results.groups]
    seconds = sum(completion.seconds_compiling + completion.seconds_running for completion in completions)
    return ", ".join([*devices, *(text for names in versions for text in names), duration(seconds)])


def write_figures(name: str, results: Results) -> None:
    """The page's pictures, each with the digest of its rows."""
    shown = STUDIES[study_of(name)].figures
    every = report.figures(results) if shown else {}
    with style.context():
        for figure in shown:
            every[figure].savefig(PAGES / f"{name}-{figure}.png", metadata={DIGEST: digest(name)})


def digest(name: str) -> str:
    """Changes with any row of a page."""
    return folder_digest(ROWS, f"{name}/**/*")


def overview() -> str:
    """docs/results.md: all claims with their verdicts."""
    rows, every = [], []
    for name in (name for name in names() if STUDIES[study_of(name)].place):
        results = load(name)
        claims = [claim for claim in claims_of(name, results) if claim.numbers]
        every += claims
        units = "split" if results.has_splits else "seed"
        link = f"[{name}](results/{name}.md)"
        for claim in claims:
            rows.append((link, claim.text, claim.published, claim.margin(units), claim.verdict))
            link = ""
    header = ("Result", "Claim", "Published", "Margin (mean, 95 % interval)", "Verdict")
    table = report.markdown([text_table("", header, rows)], literal=False)
    return INTRO.format(summary=f"Of {len(every)} claims: {summarize(every)}") + "\n" + table


def published_page() -> str:
    """docs/published.md: the published tables, beside the rows that are there."""
    tables = []
    for study in (study for study in STUDIES if study.startswith(f"{PUBLISHED.name}-")):
        config, rows = config_of(study), load(study) if (ROWS / study).exists() else None
        of_rows = (claims_of(study, rows), machine(rows)) if rows else ()
        tables.append(published.Table(config, *of_rows))
    return published.page(tables, PAGES)


def keep(folder: RunFolder, rows: Path, name: str) -> None:
    """Copies to `rows` what the page `name` needs of a complete run folder: of clients, only some rows.

    Columns without any number are not kept. Of a published table, complete groups are kept while others are missing.
    """
    runs = [run for run in folder.runs() if run.is_complete or not name.startswith("published-")]
    if not runs or not all(run.is_complete for run in runs):
        raise SystemExit(f"{folder.path}: must be a complete run folder; run its configuration again")
    clients = STUDIES[study_of(name)].clients
    last = col("round") == col("round").max().over("run")
    kept = {"evaluated": col("alpha").is_not_null(), "last": last, "": pl.lit(value=False)}[clients]
    shutil.rmtree(rows, ignore_errors=True)
    for group in dict.fromkeys(run.group for run in runs):
        copy, completion = RunFolder(rows).group(group.path.name), group.read_completion()
        copy.write_record(group.record)
        index = copy.path / "group.json"
        index.write_text(json.dumps(json.loads(index.read_text()), separators=(",", ":")) + "\n")
        ids = pl.Series("run", [run["id"] for run in group.record.runs])
        for kind, which in {"rounds": pl.lit(value=True), "clients": kept}.items():
            table = group.read(kind).filter(which)
            table = table.with_columns(ids.gather(table["run"]))
            table = table.select(column for column in table if column.null_count() < len(table))
            if len(table):
                copy.write_rows(0, completion.rounds, {kind: table})
        for part in ("models", "data"):
            if (group.path / part).is_dir():
                shutil.copytree(group.path / part, copy.path / part)
        seconds = {key: getattr(completion, key) for key in ("seconds_compiling", "seconds_running")}
        copy.mark_complete(completion.rounds, seconds, resumed=False, keep_states=False)
    if (folder.path / "configs").is_dir():
        shutil.copytree(folder.path / "configs", rows / "configs")


if __name__ == "__main__":
    main()
