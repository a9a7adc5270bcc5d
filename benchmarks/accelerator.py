"""Everything worth measuring on an accelerator that is there for half an hour, in order of worth.

    python benchmarks/accelerator.py prepare DIR                      where the data sets are prepared
    python benchmarks/accelerator.py --data DIR --minutes 25          where the accelerator is

- a: it computes what the CPU does: the quickstart's runs of five rules, and a gradient in each form of the layers
- b: rounds of W1 to W5 by clients in lockstep, precision and form of the layers; the peak of matrix products
- c: 64 and 512 runs in one program, against one after another
- d: W1 in PyTorch on the same device
- e: the paper's Table 2 on CIFAR-10 at full protocol: ARFL and FedAvg under shuffling of 50 %, then the rest

Each piece appends its lines to `--out` as it ends, and is skipped at the next start; so after Ctrl-C, or with little
time at once, the same command goes on. A piece that does not fit into the time left is skipped, one that fails writes
its error in a line. Every part has a share of the time, and what it leaves is for those behind it. Needs JAX, flax,
optax and chex alone. `--tiny` tries all of it on small work, on a CPU, too.
"""

import argparse
import importlib.util
import os
import re
import signal
import sys
import time
from pathlib import Path
from types import FrameType

RESULTS = Path(__file__).resolve().parent / "results"
SOURCE = Path(__file__).resolve().parents[1] / "src"
PARTS = "abcde"


def main() -> int:
    """Parses the arguments and measures; 1 if a piece failed, 130 if it was interrupted."""
    if sys.argv[1:2] == ["prepare"]:
        from accelerator_parts import prepare

        return prepare.main(sys.argv[2:])
    options = _parse()
    if importlib.util.find_spec("fedsim") is None:
        sys.path.insert(1, str(SOURCE))  # not installed
    started = time.monotonic()
    if (platforms := os.environ.get("JAX_PLATFORMS")) and "cpu" not in platforms:
        os.environ["JAX_PLATFORMS"] = f"{platforms},cpu"  # part a compares with it
    if options.tiny:
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # compiling is most of it
    import jax
    from accelerator_parts import ledger, timing
    from accelerator_parts.session import Session

    platform = jax.devices()[0].platform
    if platform == "cpu" and not options.tiny:
        print("accelerator.py: JAX has no accelerator here; --tiny tries all parts without one", file=sys.stderr)
        return 2
    if options.out is None:
        device = re.sub(r"[^a-z0-9]+", "-", jax.devices()[0].device_kind.lower())
        options.out = RESULTS / f"accelerator-{'tiny-' if options.tiny else ''}{device}.jsonl"
    parts = [part for part in PARTS if part in options.parts]
    clock = ledger.Clock(60 * options.minutes, parts, started)
    written = ledger.Ledger(options.out, timing.environment(options.tiny), options.retry)
    session = Session(written, clock, options.data, options.only, options.tiny)
    signal.signal(signal.SIGINT, _interrupt)  # a process in the background of a script has none of its own
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, clock.left()))
    code = session.run()
    signal.setitimer(signal.ITIMER_REAL, 0)
    session.summarise()
    return code


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--minutes", type=float, default=25, help="time for all (default %(default)s)")
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[Path("accelerator-data")],
        metavar="DIR",
        help="folders with the .npz parts that `prepare` wrote (default accelerator-data); what is missing is skipped",
    )
    parser.add_argument("--out", type=Path, help="JSON lines (default benchmarks/results/accelerator-<device>.jsonl)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="pieces with one of these in the name")
    parser.add_argument("--retry", action="store_true", help="run pieces that failed once more")
    parser.add_argument("--tiny", action="store_true", help="small work, to try everything in a few minutes")
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _out_of_time(number: int, frame: FrameType | None) -> None:
    from accelerator_parts.ledger import OutOfTime

    raise OutOfTime


if __name__ == "__main__":
    sys.exit(main())
