"""The site in a browser: its search, and what its front page shows without scrolling."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import BLOCK, ROOT
from tests.report.browser import browser, until

LINK = re.compile(r"\]\(([^)\s#]+)")
SEARCHES = {  # words that users type: a page that should be among the first three results
    "bring your own data": "tutorials/own-data.html",
    "checkpoint": "how-to/resume.html",
    "learning rate": "algorithms.html",
    "non-iid": "data.html",
    "own data set": "tutorials/own-data.html",
    "own dataset": "tutorials/own-data.html",
    "resume": "how-to/resume.html",
}
RESULTS = """
const links = document.querySelectorAll(".md-search-result__item > .md-search-result__link")
return [...links].slice(0, 3).map(link => link.pathname)
"""
BOTTOMS = """
const bottom = element => element.getBoundingClientRect().bottom
return [...document.querySelectorAll("article pre, article img")].slice(0, 2).map(bottom)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the front page."""
    pytest.importorskip("material", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    return (folder / "index.html").as_uri()


def test_every_link_and_image_of_a_file_exists():
    """As GitHub reads them; mkdocs reads those of the site, and those of notes where the overview includes them."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    links = [(file, link) for file in files for link in LINK.findall(BLOCK.sub("", file.read_text(encoding="utf-8")))]
    assert len(links) > 300
    assert not [(file.name, link) for file, link in links if ":" not in link and not (file.parent / link).exists()]


@pytest.mark.docs
def test_every_link_and_image_of_the_site_exists(site):
    folder = Path(site.removeprefix("file://")).parent
    pages = {page: page.read_text(encoding="utf-8") for page in folder.rglob("*.html") if page.name != "404.html"}
    links = [
        (page, unquote(link)) for page, text in pages.items() for link in re.findall(r'(?:href|src)="([^"]*)"', text)
    ]
    assert len(links) > 3000
    assert "<blockquote>" not in pages[folder / "reference" / "api.html"]  # as which Markdown shows examples
    for page, link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not re.match(r"\w+:", link):
            assert target.exists(), (page.name, link)
            assert not anchor or target not in pages or f'id="{anchor}"' in pages[target], (page.name, link)


@pytest.mark.docs
def test_search_finds_the_right_page(site, tmp_path):
    with browser(tmp_path) as driver:
        for words, page in SEARCHES.items():
            driver.get("about:blank")
            driver.get(f"{site}?q={words}")
            paths = until(lambda: driver.execute_script(RESULTS))
            assert any(path.endswith(f"/{page}") for path in paths), f"{words}: {paths}"


@pytest.mark.docs
def test_the_front_page_shows_its_command_and_a_figure_without_scrolling(site, tmp_path):
    with browser(tmp_path) as driver:
        screen = {"width": 1360, "height": 768, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        driver.get(site)
        command, figure = driver.execute_script(BOTTOMS)
        assert command < figure <= screen["height"]
