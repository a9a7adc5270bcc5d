"""Runs of the same keys that were computed with different data in memory, or different code of plug-ins."""

from collections.abc import Sequence
from typing import Any

from fedsim.config.roles import NOT_IN_IDS
from fedsim.errors import ConfigError
from fedsim.report.keys import is_in_memory, section
from fedsim.runs.folder import RunFolder, StoredRun
from fedsim.runs.sweep import section_name


def check_data_in_memory(folders: Sequence[RunFolder], runs_of: Sequence[Sequence[StoredRun]]) -> list[str]:
    """Raises `ConfigError` if runs with equal keys of the data have different data in memory, which no key describes.

    Within one folder, in which `--allow-mismatch` computed them, it is a sentence.
    """
    first: dict[tuple[Any, ...], tuple[int, str]] = {}  # by keys of the data: position of the folder, and digest
    notes = []
    for position, (folder, runs) in enumerate(zip(folders, runs_of, strict=True)):
        for run in (run for run in runs if is_in_memory(run.keys)):
            sections = ("data", "arrays", section_name(run.keys["data.partition"]))
            keys = sorted(key for key in run.keys if section(key) in sections and key not in NOT_IN_IDS)
            digest = run.group.record.data
            earlier, before = first.setdefault(tuple((key, run.keys[key]) for key in keys), (position, digest))
            if digest == before or set(digest.split()) & set(before.split()):
                continue
            if earlier != position:
                raise ConfigError(
                    f"data: must be the same data set in memory in all folders, but {folders[earlier].path} and "
                    f"{folder.path} have different ones; save each as an .npz file for arrays.path"
                )
            notes.append(f"Mixed: runs of {folder.path} have different data sets in memory.")
    return list(dict.fromkeys(notes))


def check_plugins(folders: Sequence[RunFolder], runs_of: Sequence[Sequence[StoredRun]]) -> list[str]:
    """Raises `ConfigError` if the file of a plug-in has changed between two folders; within one, it is a sentence."""
    first: dict[str, tuple[RunFolder, str]] = {}  # by the plug-in's name
    notes = []
    for folder, runs in zip(folders, runs_of, strict=True):
        for group in dict.fromkeys(run.group for run in runs):
            for name, digest in group.record.files.items():
                earlier, before = first.setdefault(name, (folder, digest))
                if digest == before:
                    continue
                if earlier is not folder:
                    raise ConfigError(
                        f"{name}: must be the same in all folders, but its file has changed between {earlier.path} and "
                        f"{folder.path}; report them apart, or give the new version another name"
                    )
                notes.append(f"Mixed: {name} has changed between runs of {folder.path}.")
    return list(dict.fromkeys(notes))
