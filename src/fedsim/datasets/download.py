"""Downloads with a checksum."""

import hashlib
import http.client
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from fedsim.errors import DataError

CHUNK = 1 << 20  # bytes


def fetch(url: str, folder: Path, algorithm: str, digest: str, tick: Callable[[int, int], None]) -> Path:
    """The file at `url` in `folder`, downloaded unless it is there; `tick(bytes done, bytes in all or 0)` as it comes.

    Raises `DataError` where it cannot be had, or its digest (in hexadecimal, by `algorithm`) is another.
    """
    path = folder / url.rsplit("/", 1)[1]
    if path.exists() and _digest(path, algorithm) == digest:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{path.name}.") as temporary:
        part = Path(temporary) / path.name
        try:
            with urllib.request.urlopen(url, timeout=60) as response, part.open("wb") as file:
                total = int(response.headers.get("Content-Length") or 0)
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    tick(file.tell(), total)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"{url}: cannot be downloaded ({error}); fetch it by other means, and use --from") from None
        if _digest(part, algorithm) != digest:
            raise DataError(f"{url}: what came has another {algorithm.upper()}: cut short, or altered; try again")
        part.replace(path)
    return path


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
