"""`fedsim data`: prepare, list and draw data sets."""

import argparse
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError

EPILOG = """\
examples:
  fedsim data prepare cifar10                              download, verify and prepare (170 MB)
  fedsim data prepare cifar10 --from cifar-10-batches-py   from local files: archive, batches, .xz
  fedsim data prepare femnist --from leaf/data/femnist/data
  fedsim data prepare shakespeare --from pg100.txt.gz
  fedsim data prepare emnist_letters --from gzip.zip       EMNIST's archive; likewise mnist, cifar100 ...
  fedsim data prepare kmnist                               any image set of tensorflow-datasets
  fedsim data show femnist                                 draws femnist.png

Prepared data sets are written to TFDS_DATA_DIR (default ~/tensorflow_datasets), decoded data and downloads to
FEDSIM_CACHE_DIR.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    data = commands.add_parser(
        "data",
        help="prepare, list and draw data sets",
        description="Prepares, lists and draws data sets.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = data.add_subparsers(dest="action", metavar="ACTION", required=True)
    prepare = actions.add_parser("prepare", help="prepare a data set for fast loading")
    prepare.add_argument("name", metavar="NAME", help="a data set of `fedsim data list`, or an image data set of TFDS")
    prepare.add_argument("--from", metavar="PATH", type=Path, dest="source", help="local files instead of a download")
    prepare.add_argument("--force", action="store_true", help="prepare the data set again")
    actions.add_parser("list", help="list the data sets: clients, training and test examples")
    show = actions.add_parser("show", help="draw examples with their labels, and a histogram of the clients' sizes")
    show.add_argument("name", metavar="NAME", help="a prepared data set, or digits")
    show.add_argument("--out", metavar="FILE", type=Path, help="image file (default: NAME.png)")


def call(options: argparse.Namespace) -> int:
    """Runs the action."""
    return {"prepare": _prepare, "list": _list, "show": _show}[options.action](options)


def _prepare(options: argparse.Namespace) -> int:
    from fedsim.cli import console
    from fedsim.datasets import catalog, prepared
    from fedsim.datasets.preview import describe_size

    with console.Counter() as counter:
        raw = catalog.prepare(options.name, options.source, options.force, counter.tick)
    print(f"{raw.name}: {describe_size(raw)}, {raw.num_classes} classes")
    print(prepared.find_folder(raw.name))
    return 0


def _list(options: argparse.Namespace) -> int:
    from fedsim.cli import console
    from fedsim.datasets import catalog

    del options
    console.show_datasets(catalog.list_datasets())
    return 0


def _show(options: argparse.Namespace) -> int:
    from fedsim.datasets import digits, prepared
    from fedsim.datasets.preview import plot_preview

    raw = digits.digits(seed=0) if options.name == "digits" else prepared.load(options.name)
    path = options.out or Path(f"{options.name.replace('/', '-')}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = plot_preview(raw)
    if path.suffix.removeprefix(".") not in figure.canvas.get_supported_filetypes():
        raise ConfigError(f"--out: {path} has an unsupported image extension; use .png, .pdf or .svg")
    figure.savefig(path, dpi=120)
    print(path)
    return 0
