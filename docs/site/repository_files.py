"""Pages from files outside docs/, and links to them."""

import posixpath
import re
from pathlib import Path

SOURCES = {  # file of the repository: page of the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def pages(root: Path) -> dict[str, str]:
    """The text of each of these files by its path on the site."""
    return {page: (root / source).read_text(encoding="utf-8") for source, page in SOURCES.items()}


def links(markdown: str, page: str) -> str:
    """The text of the page at `page`, with relative links replaced by the paths of their files on the site."""
    sources = {path: source for source, path in SOURCES.items()}
    folder = posixpath.dirname(sources.get(page, f"docs/{page}"))

    def rewrite(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        if ":" in target:
            return match[0]
        path = _site_path(posixpath.normpath(posixpath.join(folder, target)))
        return f"{before}{posixpath.relpath(path, posixpath.dirname(page) or '.')}{anchor or ''}{after}"

    return LINK.sub(rewrite, markdown)


def _site_path(source: str) -> str:
    """The path of a file of the repository on the site."""
    if source in SOURCES:
        return SOURCES[source]
    if source.startswith("notebooks/") and source.endswith(".ipynb"):
        return source.removesuffix(".ipynb") + ".md"
    return source.removeprefix("docs/")
