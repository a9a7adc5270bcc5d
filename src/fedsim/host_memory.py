"""The host's memory that is free, and the limits that a user, a job scheduler or a container sets on it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

CGROUP_FOLDER = Path("/sys/fs/cgroup")
V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))
V2_FILES = ("memory.max", "memory.current", ("active_file", "inactive_file"))


def free_bytes() -> int:
    """Bytes that this process can still take: what the machine has free, or less under a limit.

    Limits are those of `ulimit -v` and `ulimit -d`, and of the control groups of the process (Linux).
    """
    free = [psutil.virtual_memory().available, *_free_under_resource_limits(), *_free_under_control_groups()]
    return max(0, int(min(free)))


def _free_under_resource_limits() -> Iterator[int]:
    if sys.platform == "win32":
        return
    import resource

    used = psutil.Process().memory_info()
    for limit, used_bytes in ((resource.RLIMIT_AS, used.vms), (resource.RLIMIT_DATA, getattr(used, "data", 0))):
        if (limit_bytes := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY:
            yield limit_bytes - used_bytes


def _free_under_control_groups(groups: Path = Path("/proc/self/cgroup"), root: Path = CGROUP_FOLDER) -> Iterator[int]:
    """Free bytes of each control group above the process; files in memory count as free, since they can be dropped."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        top, names = (root / "memory", V1_FILES) if controllers else (root, V2_FILES)
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(top):
                break
            yield from _free_in_group(group, *names)


def _free_in_group(group: Path, limit: str, usage: str, file_keys: tuple[str, str]) -> Iterator[int]:
    try:
        limit_text, used_bytes = (group / limit).read_text().strip(), int((group / usage).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group or limit
        return
    if limit_text != "max":
        yield int(limit_text) - used_bytes + sum(int(stat.get(key, 0)) for key in file_keys)
