"""Files of a data set: in an archive, in a folder with one, or unpacked."""

import gzip
import hashlib
import lzma
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fedsim.errors import DataError, reason

Files: TypeAlias = Mapping[str, Callable[[], bytes]]
"""Functions that read files, by file name."""
ERRORS = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, EOFError, OSError, zlib.error, NotImplementedError)
DECOMPRESS = {".gz": gzip.decompress, ".xz": lzma.decompress}


def list_files(source: Path, archives: str, folders: str) -> Files:
    """All files of `source`.

    `source` is an archive (.zip or any tar), or a folder with archives that match the pattern `archives`, or with the
    files themselves, or with folders of them that match `folders`. Raises `DataError` if an archive is broken.
    """
    paths = [source] if source.is_file() else sorted(source.glob(archives))
    directories = [] if source.is_file() else [source, *source.glob(f"{folders}/")]
    files = {path.name: path.read_bytes for folder in directories for path in folder.iterdir() if path.is_file()}
    for archive in paths:
        try:
            files |= dict((_list_zip if archive.suffix == ".zip" else _list_tar)(archive))
        except ERRORS as error:
            remedy = "; if it is no archive, give its folder" if source.is_file() else ""
            raise DataError(f"{archive}: broken: {reason(error).rstrip(':')}{remedy}") from None
    return files


def read_file(source: Path, files: Files, names: Sequence[str], needed: str) -> tuple[str, bytes]:
    """The first of `names` among the `files` of `source`, and its decompressed content.

    Raises `DataError` if there is none, with what is `needed`, or if it is broken.
    """
    name = next((name for name in names if name in files), None)
    if name is None:
        raise DataError(f"{source}: no {names[0]}; needs {needed}")
    try:
        return name, DECOMPRESS.get(Path(name).suffix, bytes)(files[name]())
    except ERRORS as error:
        raise DataError(f"{source}: {name} is broken: {reason(error)}") from None


def unpickle(source: Path, name: str, content: bytes, md5: str) -> dict[bytes, Any]:
    """The unpickled `content` of the file `name`. Raises `DataError` unless it has that MD5: pickles can run code."""
    if hashlib.md5(content).hexdigest() != md5:
        raise DataError(f"{source}: {name} is not the official file: its MD5 differs")
    return pickle.loads(content, encoding="bytes")


def _list_tar(archive: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            if (content := tar.extractfile(member)) is not None:
                yield Path(member.name).name, partial(bytes, content.read())


def _list_zip(archive: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    def read(name: str) -> bytes:
        with zipfile.ZipFile(archive) as opened:
            return opened.read(name)

    with zipfile.ZipFile(archive) as opened:
        yield from ((Path(name).name, partial(read, name)) for name in opened.namelist() if not name.endswith("/"))
