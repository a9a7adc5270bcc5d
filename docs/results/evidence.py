"""Runs Table 2 at its medium preset in the background, one rule under one corruption at a time, and keeps the rows.

    nice -n 19 python docs/results/evidence.py

Each group (a rule, a corruption and its fraction, all seeds) is a run folder in `--work`, where an interrupted one is
resumed. The tables of a complete group are copied to `--rows`, a folder under version control, so a group that anybody
has completed is not run again; `fedsim report` reads its folder. The order is by what the groups decide. While the file
`--pause` exists, the runner stands still: create it before a benchmark or the tests, and remove it afterwards.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import fedsim
from fedsim.config.schema import Config
from fedsim.runs.folder import RunFolder

sys.path.insert(0, str(Path(__file__).parent))
import make  # a script beside this one

HALF = ("shuffling 0.5", "flipping 0.5", "none")
REST = ("shuffling 0.3", "flipping 0.3", "noisy 0.5")
ORDER = (
    ("table2-shakespeare", HALF + REST),
    ("table2-femnist", HALF),
    ("table2-cifar10", HALF),
    ("table2-femnist", REST),
    ("table2-cifar10", REST),
)


def main() -> None:
    """Runs the groups that are missing; `--list` prints all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/evidence"), help="interrupted groups (%(default)s)")
    parser.add_argument("--rows", type=Path, default=make.ROWS, help="tables of complete groups (%(default)s)")
    pause = Path(tempfile.gettempdir()) / "fedsim-pause"
    parser.add_argument("--pause", type=Path, default=pause, help="stand still while this file exists (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print which groups are complete, and run nothing")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for path, options in groups():
        is_complete = (arguments.rows / path).exists()
        if arguments.list:
            print("complete" if is_complete else "missing ", path)
        elif not is_complete:
            run(options, arguments.work / path, arguments.pause)
            keep(arguments.work / path, arguments.rows / path)


def groups() -> Iterator[tuple[str, list[str]]]:
    """The path of each group's folder, and its command's arguments."""
    for name, scenarios in ORDER:
        config = make.PAPER / f"{name}.toml"
        runs = fedsim.load(config, preset="medium").runs()
        for scenario in scenarios:
            for rule in dict.fromkeys(run.server.aggregator for run in runs):
                group = [run for run in runs if run.server.aggregator == rule and scenario_of(run) == scenario]
                yield f"{name}-medium/{rule}-{scenario.replace(' ', '-')}", command(config, group)


def scenario_of(run: Config) -> str:
    """Such as "shuffling 0.5"; "none" for clean data."""
    return f"{run.corruption.kind} {run.corruption.fraction}" if run.corruption.kind != "none" else "none"


def command(config: Path, group: list[Config]) -> list[str]:
    """The arguments of `fedsim` that run these runs, which differ in their seeds only."""
    run = group[0]
    fixed = {"server.aggregator": run.server.aggregator, "corruption.kind": run.corruption.kind}
    if run.corruption.kind != "none":
        fixed["corruption.fraction"] = run.corruption.fraction
    if run.server.aggregator == "arfl":
        fixed["arfl.lam"] = dict(run.settings)["arfl.lam"]
    fixed["record.clients"] = "evaluated"
    options = [word for key, value in fixed.items() for word in (f"--{key}", str(value))]
    seeds = [str(run.seed) for run in group]
    return ["run", str(config), "--preset", "medium", *options, "--sweep.seed", *seeds]


def run(options: list[str], folder: Path, pause: Path) -> None:
    """Runs a group to its end, standing still while the file `pause` exists. Exits if the run fails."""
    print(time.strftime("%H:%M"), "fedsim", *options, "--out", folder, flush=True)
    process = subprocess.Popen([sys.executable, "-m", "fedsim", *options, "--out", str(folder)])
    is_paused = False
    try:
        while process.poll() is None:
            if pause.exists() != is_paused:
                is_paused = not is_paused
                process.send_signal(signal.SIGSTOP if is_paused else signal.SIGCONT)
            time.sleep(1)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()
        sys.exit(130)
    if process.returncode:
        sys.exit(process.returncode)


def keep(folder: Path, rows: Path) -> None:
    """Copies what the study's page needs of a complete group; an interrupted copy has another name."""
    copy = rows.with_name(f".{rows.name}")
    make.keep(RunFolder(folder), copy, rows.parent.name)
    copy.rename(rows)


if __name__ == "__main__":
    main()
