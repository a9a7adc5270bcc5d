"""Runs of the same keys that were computed with different data in memory, or different code of plug-ins."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

from fedsim.config.roles import NOT_IN_IDS
from fedsim.errors import ConfigError
from fedsim.report.keys import is_in_memory, section
from fedsim.runs.folder import RunFolder, StoredRun
from fedsim.runs.sweep import section_name

DATA = (
    "must be the same data set in memory in all folders, but {} and {} have different ones; save each as an .npz file "
    "for arrays.path"
)
PLUGIN = (
    "must be the same in all folders, but its file has changed between {} and {}; report them apart, or give the new "
    "version another name"
)


def check_inputs(folders: Sequence[RunFolder], runs_of: Sequence[Sequence[StoredRun]]) -> list[str]:
    """Raises `ConfigError` if data in memory, which no key describes, or plug-ins differ between folders.

    Within one folder, in which `--allow-mismatch` computed some of its runs, it is a sentence.
    """
    first: dict[tuple[str, Hashable], tuple[RunFolder, str]] = {}
    notes: dict[str, None] = {}
    for folder, runs in zip(folders, runs_of, strict=True):
        for name, keys, digests in dict.fromkeys(chain.from_iterable(map(_inputs, runs))):
            earlier, before = first.setdefault((name, keys), (folder, digests))
            if digests == before or set(digests.split()) & set(before.split()):
                continue
            if earlier is not folder:
                problem = (PLUGIN if ":" in name else DATA).format(earlier.path, folder.path)
                raise ConfigError(f"{name}: {problem}")
            notes[f"Mixed: {name} has changed between runs of {folder.path}."] = None
    return list(notes)


def _inputs(run: StoredRun) -> Iterator[tuple[str, Hashable, str]]:
    """Name, keys that determine it, and digests (one, in 0.3 one a split) of the data in memory and each plug-in."""
    record = run.group.record
    if is_in_memory(run.keys):
        sections = ("data", "arrays", section_name(run.keys["data.partition"]))
        keys = sorted(key for key in run.keys if section(key) in sections and key not in NOT_IN_IDS)
        yield "data", tuple((key, run.keys[key]) for key in keys), record.data
    yield from ((name, None, digest) for name, digest in record.files.items())
