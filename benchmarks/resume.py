"""Checks that a sweep which is killed at random moments and resumed has the same rows as an uninterrupted one.

python benchmarks/resume.py > benchmarks/results/resume-cpu.json
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import SCHEMAS


def main() -> None:
    """Parses the arguments, runs the sweep twice and prints the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/quickstart.toml")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as directory:
        uninterrupted, killed = (RunFolder(Path(directory) / name) for name in ("uninterrupted", "killed"))
        started = time.perf_counter()
        start(options.config, uninterrupted).wait()
        seconds = time.perf_counter() - started
        num_rows = count_rows(uninterrupted)
        kills = []
        for target in sorted(draw.uniform(0, 1) * num_rows for _ in range(options.kills)):
            process = start(options.config, killed)
            while count_rows(killed) < target and process.poll() is None:
                time.sleep(0.02)
            time.sleep(draw.uniform(0, 0.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
            complete = sum(killed.read_finished(group) is not None for group in range(len(plan(killed))))
            kills.append({"rows": count_rows(killed), "of": num_rows, "complete_groups": complete})
        start(options.config, killed).wait()
        equal = {kind: killed.read(kind).equals(uninterrupted.read(kind)) for kind in SCHEMAS}
        rows = {kind: uninterrupted.read(kind).height for kind in SCHEMAS}
        manifest = uninterrupted.read_manifest()
    result = {
        "command": "python " + " ".join(sys.argv),
        "device": manifest["device"],
        "versions": manifest["versions"],
        "runs": len(manifest["runs"]),
        "groups": len(manifest["plan"]),
        "seconds_alone": round(seconds, 1),
        "kills": kills,
        "rows": rows,
        "equal": equal,
    }
    print(json.dumps(result, indent=1))


def start(config: str, folder: RunFolder) -> subprocess.Popen[bytes]:
    """Starts `fedsim run`."""
    command = [
        sys.executable,
        "-m",
        "fedsim.cli",
        "run",
        config,
        "--out",
        str(folder.path),
        "--checkpoint-seconds",
        "1",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def count_rows(folder: RunFolder) -> int:
    """The number of rows so far, of which the last may not be in the folder's parts yet."""
    return sum(len(path.read_bytes().splitlines()) for path in (folder.path / "log").glob("*.jsonl"))


def plan(folder: RunFolder) -> list[dict]:
    """The groups; none before there is a manifest."""
    return folder.read_manifest()["plan"] if folder.is_occupied() else []


if __name__ == "__main__":
    main()
