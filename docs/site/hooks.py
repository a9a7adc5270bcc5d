"""Hooks of mkdocs: pages generated from other files and from the code, links, and equations."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import command_line
import equations
import notebooks
import repository_files

ROOT = Path(__file__).parents[2]
WIDE = ("index.md", "gallery.md")  # pages without a section, whose navigation would be empty
SEARCHED_LAST = (
    "results/",
    "published.md",
    "reference/api.md",
    "changelog.md",
    "benchmarks.md",
)  # long, or measurements


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not files in docs/."""
    generated: dict[str, str | bytes] = {
        "reference/command-line.md": command_line.page(),
        **repository_files.pages(ROOT),
        **notebooks.pages(ROOT / "notebooks"),
    }
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replaces links to files outside docs/ by links to their pages; sets the page's width and its rank in searches."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["navigation"]
    if page.file.src_uri.startswith(SEARCHED_LAST):
        page.meta["search"] = {"boost": 0.5}
    return repository_files.links(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Converts equations to MathML."""
    return equations.as_mathml(html)
