"""`accelerator.py prepare DIR`: the data sets of the parts, divided among their clients, as .npz parts.

Runs where all of fedsim and the prepared data sets are; the machine that measures needs the files alone.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fedsim
from accelerator_parts import arrays
from fedsim.errors import FedsimError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TESTED = 100  # test examples of the sets that only time is measured with


def main(arguments: list[str]) -> int:
    """Writes the data sets; 1 if one could not be."""
    parser = argparse.ArgumentParser(
        prog="accelerator.py prepare",
        description="Writes the data that the parts read: clients, their examples and a test set, in .npz parts of "
        "less than 60 MB. CIFAR-10, FEMNIST and Shakespeare have to be prepared before (fedsim data prepare). "
        f"Sets: {', '.join(DATASETS)}.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where to write")
    parser.add_argument("--only", nargs="+", choices=list(DATASETS), default=list(DATASETS), metavar="NAME")
    options = parser.parse_args(arguments)
    failed = False
    for name in options.only:
        try:
            paths = arrays.save(DATASETS[name](), name, options.folder)
        except FedsimError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{name}: {', '.join(f'{path} ({path.stat().st_size / 1e6:.1f} MB)' for path in paths)}", flush=True)
    return 1 if failed else 0


def of_configuration(path: str) -> fedsim.FederatedDataset:
    """The data set of the first run of a configuration."""
    from fedsim.engine import build

    return build.dataset(fedsim.load(CONFIGS / path).runs()[0])


def writers() -> fedsim.FederatedDataset:
    """W4's."""
    import workloads

    dataset = workloads.writers()
    return replace(dataset, x_test=dataset.x_test[:TESTED], y_test=dataset.y_test[:TESTED], test_clients=None)


def roles() -> fedsim.FederatedDataset:
    """W5's."""
    import workloads

    return workloads.roles()


DATASETS: dict[str, Callable[[], fedsim.FederatedDataset]] = {
    "digits": lambda: of_configuration("quickstart.toml"),
    "femnist": writers,
    "shakespeare": roles,
    "cifar10": lambda: of_configuration("paper/table2-cifar10.toml"),
}
