"""The pages of results: each is what the script writes from its rows, and no picture is older than its rows."""

from functools import cache

import pytest
from PIL import Image

import fedsim
from tests.conftest import load_script
from tests.docs.pages import ROOT

MAKE = load_script(ROOT / "docs" / "results" / "make.py")
MAKE.load = cache(MAKE.load)
MAX_BYTES = 15 * 2**20  # of all rows


@pytest.mark.parametrize("name", MAKE.names())
def test_a_page_is_what_its_rows_say(name):
    assert (MAKE.PAGES / f"{name}.md").read_text() == MAKE.page(name, MAKE.load(name))
    for figure in MAKE.STUDIES[MAKE.study_of(name)].figures:
        with Image.open(MAKE.PAGES / f"{name}-{figure}.png") as picture:
            assert picture.text[MAKE.DIGEST] == MAKE.digest(name), f"{figure}: run docs/results/make.py"


def test_the_overview_has_all_claims_and_there_are_no_other_pages():
    assert (ROOT / "docs" / "results.md").read_text() == MAKE.overview()
    published = MAKE.published_page()
    assert (ROOT / "docs" / "published.md").read_text() == published
    count = published.split("**")[1]
    assert count in " ".join((ROOT / "README.md").read_text().split())
    pages = {path.stem for path in MAKE.PAGES.glob("*.md") if not path.name.endswith(".notes.md")}
    assert {page for page in pages if not page.startswith("rating-")} == set(MAKE.names())  # rating.py writes those
    files = [path for path in MAKE.ROWS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES


def test_a_page_of_published_tables_counts_verdicts_and_gives_causes(tmp_path):
    table = lambda name, *of_rows: MAKE.published.Table(MAKE.PUBLISHED / f"{name}.toml", *of_rows)
    about = {"unit": "points", "kind": "published"}
    cell = lambda text, mean: fedsim.Claim(text, [90, 91, 92], **about, reference=(mean, 1.0, 3))
    cells = [cell("A, IID", 91), cell("B, IID", 94), cell("B, non-IID", 50), cell("C", 40), fedsim.Claim("x")]
    signs = [fedsim.Claim(f"D is above {values}", values) for values in ([3, 3.1, 2.9], [-3, -3.1, -2.9], [9])]
    (tmp_path / "published-readme.notes.md").write_text("- `B, *`: their code\n  divides by 2\n- `C, *`: not C\n")
    (tmp_path / "published-flanders.notes.md").write_text("- `D is above [[]9]`: one seed\n")
    tables = [table("readme", cells, "9 min"), table("flanders", signs, "2 min"), table("bucketing")]
    page = MAKE.published.page(tables, tmp_path)
    assert page.splitlines()[2:5] == [
        "- **2 of 4 published numbers agree (1) or are near (1)**; of tables without numbers, 1 of 3 signs are found "
        "(1 open).",
        "- By table: readme 2 of 4 (4 not run). Not run: bucketing.",
        "- Of what differs, with a cause below: 1; unexplained: 2.",
    ]
    assert "`fedsim run configs/published/readme.toml`: 9 min. 4 of 8 cells." in page
    assert "| B, non-IID | 50.00 ± 1.00 | 91.00 ± 1.00 | +41.00 points, +41.0 sd | differs | their code divides" in page
    assert page.count("| unexplained |") == 2
    assert page.count("| open | one seed |") == 1


def test_every_cause_is_of_something_that_differs():
    for path in MAKE.PAGES.glob("published-*.notes.md"):
        name = path.name.removesuffix(".notes.md")
        causes = MAKE.published.read_causes(MAKE.PAGES, name.removeprefix("published-"))
        claims = MAKE.claims_of(name, MAKE.load(name))
        assert {MAKE.published.cause_of(claim, causes) for claim in claims} >= {*causes.values()}, path.name


def test_the_configuration_of_a_page():
    studies = {"intro": "intro", "fraction-femnist-small": "fraction-femnist", "fraction-digits": "fraction"}
    assert {name: MAKE.study_of(name) for name in studies} == studies
    of_paper = {name for name, study in MAKE.STUDIES.items() if study.place}
    assert of_paper == {path.stem for path in MAKE.PAPER.glob("*.toml")}


def test_kept_rows_show_the_same(tmp_path, monkeypatch):
    """A short run of the introductory example: claims and tables of its folder and of what is kept are equal."""
    keys = {"server__num_rounds": 20, "server__eval_every": 10, "server__aggregator": "fedavg"}
    kinds = fedsim.sweep(["none", "flipping"])
    experiment = fedsim.load(MAKE.PAPER / "intro.toml", **keys, seed=9, data__seed=0, corruption__kind=kinds)
    result = fedsim.run(experiment, out=tmp_path / "intro", progress=False)
    monkeypatch.setattr(MAKE, "ROWS", tmp_path / "rows")
    monkeypatch.setattr(MAKE, "load", MAKE.load.__wrapped__)
    whole = fedsim.report.load(result.folder)
    MAKE.keep(result.folder, tmp_path / "rows" / "intro", "intro")
    assert MAKE.page("intro", MAKE.load("intro")) == MAKE.page("intro", whole)
    verdicts = [claim.verdict for claim in fedsim.report.claims.check(whole)[0]]
    assert verdicts == ["holds (mean only)", "not run", "not run", "open", "not run"]
    text = (tmp_path / "intro" / "claims.md").read_text()
    assert text.startswith("Claims: 0 of 1 hold by their interval (1 open)")
    assert set(fedsim.report.figures(MAKE.load("intro"))) >= {"paper-intro"}
