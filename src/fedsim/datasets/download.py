"""Downloads that are checked by their digest."""

import hashlib
import http.client
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fedsim.errors import DataError

CHUNK = 1 << 20  # bytes

Progress: TypeAlias = Callable[[str, int, int], None]
"""`(what, done, total)`; a total of 0 is unknown."""


class Download(NamedTuple):
    """A file on the web."""

    url: str
    algorithm: str  # of the digest, such as "sha256"
    digest: str  # in hexadecimal


def fetch(file: Download, folder: Path, progress: Progress) -> Path:
    """The path of `file` in `folder`, downloaded unless it is there.

    Raises `DataError` if it cannot be downloaded, or its digest differs.
    """
    path = folder / file.url.rsplit("/", 1)[1]
    if path.exists() and _digest(path, file.algorithm) == file.digest:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{path.name}.") as temporary:
        part = Path(temporary) / path.name
        try:
            with urllib.request.urlopen(file.url, timeout=60) as response, part.open("wb") as output:
                total = int(response.headers.get("Content-Length") or 0)
                while chunk := response.read(CHUNK):
                    output.write(chunk)
                    progress("bytes", output.tell(), total)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(
                f"{file.url}: cannot be downloaded ({error}); download it yourself and use --from"
            ) from None
        if _digest(part, file.algorithm) != file.digest:
            raise DataError(f"{file.url}: wrong {file.algorithm.upper()} (truncated or altered); try again")
        part.replace(path)
    return path


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
