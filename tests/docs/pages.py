"""Code blocks of the documentation, and the comments that say how tests run them.

An HTML comment right before a block is invisible to readers:

    <!-- not run: REASON -->            the block is skipped
    <!-- read, not run: REASON -->      options and configuration of its commands are checked, but nothing is executed
    <!-- tested with: OPTIONS -->       these options are added to each `fedsim run`, so that it takes seconds
    <!-- first: COMMAND -->             a command from another page that is executed first
    <!-- has: FOLDER -->                a run folder that exists: two rules and two lambdas

A block with `fedsim run` needs one of the first three, unless it begins by making an environment: such blocks are not
run. All others run unchanged and in order, in one folder per page. A block whose first line is a comment with a file
name is written to that file.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"((?:^<!-- .*? -->\n)*)^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOTE = re.compile(r"<!-- ([a-z, ]+): (.*?) -->")
INLINE = re.compile(r"`(fedsim (?:run|report|data|config)[^`]*)`")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if "docs/results" not in str(path)  # written by docs/results/make.py
)


class Block(NamedTuple):
    """A block of code, and its comments."""

    language: str
    text: str
    notes: dict[str, list[str]]

    @property
    def file(self) -> str | None:
        """Name of the file in the first line, if any."""
        match = re.match(r"# (\S+\.(?:py|toml))\n", self.text)
        return match and match[1]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *languages: str) -> list[Block]:
    """The page's blocks in these languages, or in all."""
    result = []
    for comments, language, text in BLOCK.findall(text_of(page)):
        notes: dict[str, list[str]] = {}
        for word, rest in NOTE.findall(comments):
            notes.setdefault(word, []).append(rest)
        if not languages or language in languages:
            result.append(Block(language, text, notes))
    return result


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a block for the shell, without comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def inline_commands(page: str) -> list[list[str]]:
    """Complete commands in the page's sentences: without placeholders in capitals, or dots."""
    outside = BLOCK.sub("", text_of(page))
    complete = [text.split() for text in INLINE.findall(outside) if not re.search(r"\b[A-Z]{2,}\b|\.\.\.", text)]
    return [words for words in complete if len(words) > 2]
