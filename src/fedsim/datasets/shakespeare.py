"""Shakespeare's plays role by role, as LEAF divides them: each speaking role is a client.

S. Caldas et al.: "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097

The text is Project Gutenberg's number 100 in its posting of 2011, on which LEAF's rules give the figures that LEAF
publishes: 1,129 roles and 4,226,158 windows of 80 characters, each with the character that follows. The rules depend
on the indentation of that text, so another edition is refused.
"""

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsim.datasets.natural import ClientExamples
from fedsim.datasets.text import encode
from fedsim.errors import DataError

URL = (
    "https://raw.githubusercontent.com/riccardomurri/pyspark-intro-course/"
    "55d0c06af8887d9477d58681c593315faec7304b/data/shakespeare.txt.gz"
)
SHA256 = "5886dc8d8d2d1726fc93a1b014ff7db691707d5a2ccb8b8888d87037dccc8982"  # of the text, not compressed
ARCHIVE_SHA256 = "9e2c1aea328d1819029086808cb3c56af7a0645f37adb3c957d0a0248ad3b7e6"  # of the file at URL

WINDOW = 80  # characters
AUTHOR = "by William Shakespeare"  # stands below each title
TITLE_DISTANCES = range(2, 8)  # lines between a title and its author
LAST_LINE = 124_196  # behind the last play
FLUSH_LEFT = "THE COMEDY OF ERRORS"  # the play that is not indented
SPEECH = re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)")
CONTINUATION = re.compile(r"    (.*)")
FLUSH_SPEECH = re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)")
FLUSH_CONTINUATION = re.compile(r"(.*)")
MIN_LINES = 3  # of a role


def read(path: Path) -> Iterator[ClientExamples]:
    """Every role with its windows, from the text at `path` (.txt or .txt.gz, or a folder that has it).

    Raises `DataError` where it is another text.
    """
    for role, text in roles(_text(path)).items():
        characters = encode(text)
        windows = np.lib.stride_tricks.sliding_window_view(characters, WINDOW + 1)
        yield role, windows[:, :-1], windows[:, -1].astype(np.int32)


def roles(text: str) -> dict[str, str]:
    """What each role says, for roles that say more than a window; the name is the play's and the character's."""
    found: dict[str, str] = {}
    for title, characters in plays(text):
        for character, lines in characters.items():
            if len(lines) < MIN_LINES:
                continue
            name = re.sub(r"\W+", "_", f"{title}_{character}".replace(" ", "_"))
            speech = found.get(name, "") + "".join(f"{line} " for line in lines)
            found[name] = re.sub(" {2,}", " ", speech)
    return {name: speech for name, speech in found.items() if len(speech) > WINDOW}


def plays(text: str) -> list[tuple[str, dict[str, list[str]]]]:
    """Title, and lines by character, of each play that has two characters or more."""
    lines = text.splitlines()[1 : LAST_LINE + 1]
    authors = [i for i, line in enumerate(lines) if AUTHOR in line]
    found = []
    for start, end in zip(authors[1:], [*authors[2:], len(lines)], strict=True):  # the first is the sonnets'
        title = next(lines[start - i] for i in TITLE_DISTANCES if lines[start - i].strip()).strip()
        characters = _speeches(lines[start + 1 : end], flush_left=title == FLUSH_LEFT)
        if len(characters) > 1:
            found.append((title, characters))
    return found


def _speeches(lines: list[str], flush_left: bool) -> dict[str, list[str]]:
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


def _text(path: Path) -> str:
    texts = [path] if path.is_file() else sorted([*path.glob("*.txt"), *path.glob("*.txt.gz")])
    if not texts:
        raise DataError(f"{path}: no .txt or .txt.gz file with Shakespeare's works ({URL})")
    try:
        content = texts[0].read_bytes()
        content = gzip.decompress(content) if texts[0].suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{texts[0]}: broken: {error}") from None
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{texts[0]}: not Project Gutenberg's Shakespeare as posted in 2011 ({URL}), or altered")
    return content.decode("utf-8-sig")
