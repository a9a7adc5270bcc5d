"""Runs of the same keys that were computed with different data or plug-ins."""

from collections.abc import Hashable, Sequence

from fedsim.errors import ConfigError
from fedsim.report.keys import data_keys
from fedsim.runs.folder import RunFolder, StoredRun

DATA = (
    "must be the same data set in all folders, but {} and {} have different examples under the same keys; report them "
    "apart, or give each a path of its own"
)
PLUGIN = (
    "must be the same in all folders, but its file has changed between {} and {}; report them apart, or give the new "
    "version another name"
)


def check_inputs(folders: Sequence[RunFolder], runs_of: Sequence[Sequence[StoredRun]]) -> list[str]:
    """Raises `ConfigError` if data with the same keys, or plug-ins, differ between folders.

    Those that differ within one folder, as `--allow-mismatch` allows, give a sentence.
    """
    first: dict[Hashable, tuple[RunFolder, str]] = {}
    notes: dict[str, None] = {}
    for folder, runs in zip(folders, runs_of, strict=True):
        for run in {(run.group, run.keys["data.seed"]): run for run in runs}.values():
            record = run.group.record
            inputs = [("data", data_keys(run.keys), record.data)] if record.data else []
            for name, key, digests in [*inputs, *((name, None, digest) for name, digest in record.files.items())]:
                earlier, before = first.setdefault((name, key), (folder, digests))
                if set(digests.split()) & set(before.split()):  # data of 0.3 have one a split
                    continue
                if earlier is not folder:
                    problem = (DATA if name == "data" else PLUGIN).format(earlier.path, folder.path)
                    raise ConfigError(f"{name}: {problem}")
                notes[f"Mixed: {name} has changed between runs of {folder.path}."] = None
    return list(notes)
