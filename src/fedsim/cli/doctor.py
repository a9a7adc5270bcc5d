"""`fedsim doctor`: versions, devices, caches, and missing optional packages."""

import argparse
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

from fedsim.errors import FedsimError, pip_install, reason
from fedsim.version import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "msgspec", "polars", "orbax-checkpoint")
EXTRAS = (  # packages that only some features need: module, extra, feature
    ("tensorflow_datasets", "data", "preparing CIFAR-10, MNIST, FEMNIST and the like"),
    ("datasets", "huggingface", 'data.name = "huggingface"'),
    ("dp_accounting", "privacy", "epsilon of norm_clipping"),
    ("vl_convert", "html", "fedsim report --format html"),
    ("tensorboardX", "tensorboard", "fedsim run --log tensorboard"),
    ("wandb", "wandb", "fedsim run --log wandb"),
    ("submitit", "slurm", "fedsim run --slurm.partition ..."),
    ("libtpu", "tpu-compile", "fedsim run --dry-run --target v5e"),
    ("jax_plugins", "cuda", "GPUs and fedsim run --dry-run --target h100"),
)


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    commands.add_parser(
        "doctor",
        help="show versions, devices, memory, caches, and missing optional packages",
        description="Shows versions, devices, memory, caches, and missing packages.",
    )


def call(options: argparse.Namespace) -> None:
    """Prints the report."""
    from rich.table import Table
    from rich.text import Text

    from fedsim.terminal import make_console

    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    for name, text in [*_versions(), *_devices(), *_folders(), *_extras()]:
        table.add_row(name, Text(text))
    make_console().print(table)


def _versions() -> list[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    def describe(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"{package} missing"

    return [
        ("fedsim", f"{__version__} in {Path(__file__).parents[1]}"),
        ("Python", f"{platform.python_version()} on {platform.platform()}"),
        ("packages", ", ".join(map(describe, PACKAGES))),
    ]


def _devices() -> list[tuple[str, str]]:
    import psutil

    from fedsim import host_memory
    from fedsim.engine import devices
    from fedsim.engine.memory import gibibytes

    total = psutil.virtual_memory().total
    try:
        devices.use_one_per_core()
        devices.backend()
        device = devices.describe()
        text = f"{device['count']} x {device['platform']}: {device['kind']}"
    except FedsimError as error:
        text = str(error)
    return [("devices", text), ("memory", f"{gibibytes(host_memory.free_bytes())} free of {gibibytes(total)}")]


def _folders() -> list[tuple[str, str]]:
    from fedsim.datasets import cache, prepared

    programs = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache.directory() / "programs")
    return [
        ("cache", _describe_folder(cache.directory())),
        ("compiled programs", _describe_folder(programs)),
        ("prepared data", _describe_folder(prepared.directory())),
    ]


def _describe_folder(folder: Path) -> str:
    """The folder, its size, and whether it is writable."""
    try:
        return f"{folder}{_describe_contents(folder)}"
    except OSError as error:
        return f"{folder}: {reason(error)}"


def _describe_contents(folder: Path) -> str:
    from fedsim.engine.memory import gibibytes

    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        return f": {nearest} is a file"
    if not os.access(nearest, os.W_OK):
        return ": not writable"
    if not folder.exists():
        return " (does not exist yet)"
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f" ({len(sizes):,} files, {gibibytes(sum(sizes))})"


def _extras() -> list[tuple[str, str]]:
    """The optional packages that are not installed."""
    missing = [extra for extra in EXTRAS if importlib.util.find_spec(extra[0]) is None]
    lines = [f"{module}, for {feature}: {pip_install(extra)}" for module, extra, feature in missing]
    return [("missing" if line == lines[0] else "", line) for line in lines] or [("missing", "nothing")]
