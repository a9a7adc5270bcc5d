"""Seconds of the parts of large sweeps: what is done around their rounds, with their run folders and reports.

- `runs`: 10,000 runs of two rounds in one group, with 20 settings. `settings`: as many, each with a setting of its own.
- `groups`: 1,000 groups (20 rules x 10 attacks x 5 numbers of epochs) of three runs of two rounds.
- `evaluations`: one run that is evaluated after each of 2,000 rounds.

`plan` resolves, checks and groups the runs; `open` makes the folder; `run` computes all rounds, with compiling;
`complete` joins the rows; `reopen` opens the complete folder again; `show` is the command `fedsim show`, as a process;
`report` writes all tables and figures; `html` the interactive page; `browser` is how long Chromium takes to show that
(null without chromium, chromedriver and selenium). `cpu_seconds` are those of all threads and of the command, which
other work on the machine changes less. With `--keep`, folders that are there already are not computed again.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import measure

from fedsim import report
from fedsim.config.toml import parse
from fedsim.engine import devices, experiment, make_plan, run_plan, shared_plan
from fedsim.report.html import write_page
from fedsim.runs.folder import RunFolder

Value = TypeVar("Value")

ONE_GROUP = """
[data]
num_clients = 20
[server]
aggregator = "arfl"
cohort_size = 10
num_rounds = 2
[corruption]
kind = "shuffling"
[record]
clients = "none"
[[sweep]]
corruption.fraction = [0.1, 0.2, 0.3, 0.4]
"""
SWEEPS = {
    "runs": f"{ONE_GROUP}arfl.lam = [0.1, 0.3, 1, 3, 10]\nseed = {list(range(500))}",
    "settings": f"{ONE_GROUP}arfl.lam = {[round(0.01 * i, 2) for i in range(1, 2501)]}",
    "groups": """
[data]
num_clients = 20
root_examples = 100
[server]
cohort_size = 20
num_rounds = 2
eval_every = 1
[corruption]
fraction = 0.2
[[sweep]]
server.aggregator = [
    "fedavg", "median", "trimmed_mean", "meamed", "krum", "multi_krum", "bulyan", "rfa", "autogm", "centered_clipping",
    "norm_clipping", "dnc", "caf", "signguard", "foolsgold", "flame", "cfl", "fltrust", "zeno", "arfl",
]
attack.kind = [
    "sign_flip", "ipm", "alie", "min_max", "min_sum", "mimic", "gaussian", "inf", "model_replacement", "fang",
]
client.epochs = [1, 2, 3, 4, 5]
seed = [0, 1, 2]
""",
    "evaluations": """
[data]
num_clients = 20
[server]
aggregator = "arfl"
cohort_size = 10
num_rounds = 2000
eval_every = 1
""",
}
PATIENCE = 120.0  # seconds for a page to appear


def main() -> None:
    """Parses the arguments and measures each sweep."""
    parser = measure.parser(__doc__, repeats=1)
    parser.add_argument("--sweeps", nargs="+", choices=list(SWEEPS), default=list(SWEEPS), help="default: all")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run folders in DIR")
    options = parser.parse_args()
    devices.use_one_per_core()
    for name in options.sweeps:
        with tempfile.TemporaryDirectory() as temporary:
            folder = RunFolder((options.keep or Path(temporary)) / name)
            measure.line(options.out, benchmark="run_folders", sweep=name, **measure_sweep(SWEEPS[name], folder))


def measure_sweep(text: str, folder: RunFolder) -> dict[str, Any]:
    """Seconds of each part of the sweep in TOML `text`, numbers of runs and groups, and sizes of files."""
    seconds: dict[str, Any] = {}
    cpu_seconds: dict[str, float] = {}

    def timed(part: str, function: Callable[..., Value]) -> Callable[..., Value]:
        def call(*arguments: Any, **options: Any) -> Value:
            started, cpu = time.perf_counter(), sum(os.times()[:4])
            result = function(*arguments, **options)
            seconds[part], cpu_seconds[part] = time.perf_counter() - started, sum(os.times()[:4]) - cpu
            return result

        return call

    open_folder, complete = shared_plan.open_folder, experiment._complete
    make_plan(parse(SWEEPS["evaluations"]))  # imports what it needs, and loads the data
    plan = timed("plan", make_plan)(parse(text, name="sweep"))
    shared_plan.open_folder, experiment._complete = timed("open", open_folder), timed("complete", complete)
    timed("run", run_plan)(plan, folder.path)
    shared_plan.open_folder, experiment._complete = open_folder, complete
    for numbers in (seconds, cpu_seconds):
        numbers["run"] -= numbers["open"] + numbers.get("complete", 0.0)
    compiling = folder.read_manifest()["seconds_compiling"]
    timed("reopen", run_plan)(plan, folder.path)
    timed("show", subprocess.run)([sys.executable, "-m", "fedsim", "show", folder.path], check=True, stdout=sys.stderr)
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    timed("report", report.make)(folder)
    page = timed("html", lambda: write_page(report.load(folder), folder))()
    seconds["browser"] = show_page(page)
    return {
        "runs": len(plan.runs),
        "groups": len(plan.groups),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "seconds_compiling": compiling,
        "files": len(files),
        "manifest_bytes": (folder.path / "manifest.json").stat().st_size,
        "page_bytes": page.stat().st_size,
    }


def show_page(page: Path) -> float | None:
    """Seconds until Chromium shows the page; None without chromium, chromedriver and selenium."""
    try:
        from selenium import webdriver
    except ImportError:
        return None
    from shutil import which

    binary, driver_path = which("chromium") or which("chromium-browser"), which("chromedriver")
    if not (binary and driver_path):
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1400,1200"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    try:
        driver.get("about:blank")
        started = time.perf_counter()
        driver.get(page.absolute().as_uri())
        while not driver.execute_script("return document.body.dataset.ready !== undefined"):
            if time.perf_counter() - started > PATIENCE:
                return None
            time.sleep(0.02)
        return time.perf_counter() - started
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
