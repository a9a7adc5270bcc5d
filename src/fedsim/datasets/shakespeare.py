"""Shakespeare's plays by speaking role, as LEAF splits them: each role is a client.

S. Caldas et al.: "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097

The text is Project Gutenberg's number 100 as posted in 2011, for which LEAF's rules give the numbers that LEAF
publishes: 1,129 roles and 4,226,158 windows of 80 characters, each with the next character. The rules depend on the
indentation of that text, so other editions are refused.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from fedsim.datasets import archives
from fedsim.datasets.download import Download
from fedsim.datasets.natural_clients import ClientExamples
from fedsim.datasets.text import encode
from fedsim.datasets.windows import cut
from fedsim.errors import DataError

ARCHIVE = Download(
    "https://raw.githubusercontent.com/riccardomurri/pyspark-intro-course/"
    "55d0c06af8887d9477d58681c593315faec7304b/data/shakespeare.txt.gz",
    "sha256",
    "9e2c1aea328d1819029086808cb3c56af7a0645f37adb3c957d0a0248ad3b7e6",
)
SHA256 = "5886dc8d8d2d1726fc93a1b014ff7db691707d5a2ccb8b8888d87037dccc8982"  # of the uncompressed text

WINDOW = 80  # characters
AUTHOR = "by William Shakespeare"  # the line below each title
TITLE_DISTANCES = range(2, 8)  # lines between a title and its author
LAST_LINE = 124_196  # after the last play
FLUSH_LEFT = "THE COMEDY OF ERRORS"  # the play that is not indented
SPEECH = re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)")
CONTINUATION = re.compile(r"    (.*)")
FLUSH_SPEECH = re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)")
FLUSH_CONTINUATION = re.compile(r"(.*)")
MIN_LINES = 3  # of a role


def read(path: Path) -> Iterator[ClientExamples]:
    """Each role with its windows [m, 80] and next characters [m], from the text at `path`.

    `path` is a .txt or .txt.gz file, or a folder with it. Raises `DataError` if it is another text.
    """
    return cut({role: encode(text) for role, text in parse_roles(read_text(path)).items()}, WINDOW)


def parse_roles(text: str) -> dict[str, str]:
    """The speeches of each role that are longer than a window, by the names of play and character."""
    roles: dict[str, str] = {}
    for title, characters in parse_plays(text):
        for character, lines in characters.items():
            if len(lines) < MIN_LINES:
                continue
            name = re.sub(r"\W+", "_", f"{title}_{character}".replace(" ", "_"))
            speech = roles.get(name, "") + "".join(f"{line} " for line in lines)
            roles[name] = re.sub(" {2,}", " ", speech)
    return {name: speech for name, speech in roles.items() if len(speech) > WINDOW}


def parse_plays(text: str) -> list[tuple[str, dict[str, list[str]]]]:
    """Title, and lines by character, of each play with at least two characters."""
    lines = text.splitlines()[1 : LAST_LINE + 1]
    authors = [i for i, line in enumerate(lines) if AUTHOR in line]
    plays = []
    for start, end in zip(authors[1:], [*authors[2:], len(lines)], strict=True):  # the first is that of the sonnets
        title = next(lines[start - i] for i in TITLE_DISTANCES if lines[start - i].strip()).strip()
        characters = _parse_speeches(lines[start + 1 : end], flush_left=title == FLUSH_LEFT)
        if len(characters) > 1:
            plays.append((title, characters))
    return plays


def _parse_speeches(lines: list[str], flush_left: bool) -> dict[str, list[str]]:
    """The lines of each character of a play."""
    speech, continuation = (FLUSH_SPEECH, FLUSH_CONTINUATION) if flush_left else (SPEECH, CONTINUATION)
    spoken: dict[str, list[str]] = {}
    speaker: str | None = None
    for line in lines:
        if match := speech.match(line):
            speaker = match[1].upper()
            if flush_left and speaker.startswith("ACT "):
                speaker = None
            else:
                spoken.setdefault(speaker, []).append(match[2])
        elif speaker and (match := continuation.match(line)):
            if flush_left and match[1].startswith("<"):  # the edition's notice, between two pages
                speaker = None
            else:
                spoken[speaker].append(match[1])
    return spoken


def read_text(path: Path) -> str:
    """The text at `path`, see `read`. Raises `DataError` if it is missing or another edition."""
    paths = [path] if path.is_file() else sorted([*path.glob("*.txt"), *path.glob("*.txt.gz")])
    files = {path.name: path.read_bytes for path in paths[:1]}
    needed = f"Project Gutenberg's Shakespeare as posted in 2011 ({ARCHIVE.url})"
    name, content = archives.read_file(path, files, [*files] or [".txt or .txt.gz file"], needed)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{path}: {name} has another SHA256; needs {needed}")
    return content.decode("utf-8-sig")
