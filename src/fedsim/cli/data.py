"""`fedsim data`: prepare and list data sets."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.datasets.raw import RawDataset

EPILOG = """\
examples:
  fedsim data prepare cifar10                              download, verify and prepare (170 MB)
  fedsim data prepare cifar10 --from cifar-10-batches-py   from local files: archive, batches, .xz
  fedsim data prepare femnist --from leaf/data/femnist/data
  fedsim data prepare shakespeare --from pg100.txt.gz
  fedsim data prepare emnist_letters --from gzip.zip       EMNIST's archive; likewise mnist, cifar100 ...
  fedsim data prepare kmnist                               any image set of tensorflow-datasets

Prepared data sets are written to TFDS_DATA_DIR (default ~/tensorflow_datasets), decoded data and downloads to
FEDSIM_CACHE_DIR.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    data = commands.add_parser(
        "data",
        help="prepare and list data sets",
        description="Prepares and lists data sets.",
        epilog=EPILOG,
    )
    actions = data.add_subparsers(dest="action", metavar="ACTION", required=True)
    prepare = actions.add_parser("prepare", help="prepare a data set for fast loading")
    prepare.add_argument("name", metavar="NAME", help="a data set of `fedsim data list`, or an image data set of TFDS")
    prepare.add_argument("--from", metavar="PATH", type=Path, dest="source", help="local files instead of a download")
    prepare.add_argument("--force", action="store_true", help="prepare the data set again")
    actions.add_parser("list", help="list the data sets: clients, training and test examples")


def call(options: argparse.Namespace) -> None:
    """Prepares a data set, or lists them."""
    from fedsim.datasets import catalog, prepared
    from fedsim.terminal import Counter, make_console, make_table

    if options.action == "list":
        text = lambda number: "" if number is None else f"{number:9,}"
        header = ("data set", "clients", "training examples", "test examples", "location")
        rows = [(name, *map(text, counts), location) for name, location, *counts in catalog.list_datasets()]
        make_console().print(make_table(header, rows))
        return
    with Counter() as counter:
        raw = catalog.prepare(options.name, options.source, options.force, counter.tick)
    print(f"{raw.name}: {describe_size(raw)}, {raw.num_classes} classes")
    print(prepared.find_folder(raw.name))


def describe_size(raw: "RawDataset") -> str:
    """For example "489 clients, 67,423 training and 7,727 test examples"."""
    import numpy as np

    clients = "" if raw.client_ids is None else f"{len(np.unique(raw.client_ids)):,} clients, "
    if len(raw.y_test) == 0:
        return f"{clients}{len(raw.y):,} examples, not split"
    return f"{clients}{len(raw.y):,} training and {len(raw.y_test):,} test examples"
