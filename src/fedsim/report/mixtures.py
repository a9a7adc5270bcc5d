"""Runs of the same keys that were computed with different data or plug-ins."""

from collections.abc import Hashable, Sequence

from fedsim.errors import ConfigError
from fedsim.report.keys import data_keys, is_in_memory
from fedsim.runs.folder import RunFolder, StoredRun

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

    Data or plug-ins that differ within one folder, as `--allow-mismatch` allows, give a sentence.
    """
    first: dict[Hashable, tuple[RunFolder, str]] = {}
    notes: dict[str, None] = {}
    for folder, runs in zip(folders, runs_of, strict=True):
        for run in {(run.group, run.keys["data.seed"]): run for run in runs}.values():
            record, place = run.group.record, None if is_in_memory(run.keys) else folder
            inputs = [("data", (place, data_keys(run.keys)), record.data)] if record.data else []
            for name, key, digests in [*inputs, *((name, None, digest) for name, digest in record.files.items())]:
                earlier, before = first.setdefault((name, key), (folder, digests))
                if set(digests.split()) & set(before.split()):  # data of 0.3 have one a split
                    continue
                if earlier is not folder:
                    problem = (DATA if name == "data" else PLUGIN).format(earlier.path, folder.path)
                    raise ConfigError(f"{name}: {problem}")
                notes[f"Mixed: {name} has changed between runs of {folder.path}."] = None
    return list(notes)
