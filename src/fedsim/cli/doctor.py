"""`fedsim doctor`: what is here, and what is missing for what."""

import argparse
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any, NamedTuple

from fedsim import __version__
from fedsim.errors import FedsimError

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "msgspec", "pyarrow", "orbax-checkpoint")


class Extra(NamedTuple):
    """Packages that not everybody needs."""

    module: str
    name: str  # pip install 'fedsim[name]'
    serves: str


EXTRAS = (
    Extra("tensorflow_datasets", "data", "preparing CIFAR-10, MNIST, FEMNIST and the like"),
    Extra("plotly", "html", "fedsim report --format html"),
    Extra("tensorboardX", "tensorboard", "fedsim run --tensorboard"),
    Extra("wandb", "wandb", "fedsim run --log wandb"),
    Extra("mlflow", "mlflow", "fedsim run --log mlflow"),
    Extra("shtab", "completion", "fedsim completion"),
    Extra("submitit", "slurm", "fedsim run --slurm.partition ..."),
    Extra("libtpu", "tpu-compile", "fedsim run --dry-run --target v5e"),
    Extra("xarray", "notebook", "Result.xarray() in Python"),
)


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    commands.add_parser(
        "doctor",
        help="versions, devices, memory, caches and data here, and what is missing for what",
        description="Tells versions, devices, memory, caches and prepared data, and what is missing for what.",
    )


def call(options: argparse.Namespace) -> int:
    """Prints a line a thing."""
    from rich.table import Table
    from rich.text import Text

    from fedsim.cli import console

    del options
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    for name, text in [*_versions(), *_devices(), *_places(), *_data(), *_extras()]:
        table.add_row(name, Text(text))
    console.terminal().print(table)
    return 0


def _versions() -> list[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"{package} missing"

    here = f"{__version__} in {Path(__file__).parents[1]}"
    return [
        ("fedsim", here),
        ("Python", f"{platform.python_version()} on {platform.platform()}"),
        ("packages", ", ".join(map(of, PACKAGES))),
    ]


def _devices() -> list[tuple[str, str]]:
    import psutil

    from fedsim.engine import devices
    from fedsim.engine.memory import gibibytes

    memory = psutil.virtual_memory()
    try:
        devices.one_per_core()
        devices.backend()
        found = devices.describe()
        text = f"{found['count']} x {found['platform']}: {found['kind']}"
    except FedsimError as error:
        text = str(error)
    return [("devices", text), ("memory", f"{gibibytes(memory.available)} free of {gibibytes(memory.total)}")]


def _places() -> list[tuple[str, str]]:
    from fedsim.datasets import cache, prepared

    programs = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache.directory() / "programs")
    return [
        ("cache", _place(cache.directory())),
        ("compiled programs", _place(programs)),
        ("prepared data", _place(prepared.directory())),
    ]


def _place(folder: Path) -> str:
    """The folder, what is in it, and whether it can be written to."""
    from fedsim.engine.memory import gibibytes

    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(nearest, os.W_OK):
        return f"{folder}: cannot be written to"
    if not folder.exists():
        return f"{folder} (not there yet)"
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{folder} ({len(sizes):,} files, {gibibytes(sum(sizes))})"


def _data() -> list[tuple[str, str]]:
    from fedsim.datasets import catalogue

    entries = catalogue.entries()
    missing = [entry.name for entry in entries if entry.where.startswith("not prepared")]
    broken = [entry.where for entry in entries if entry.where.startswith("broken")]
    here = [entry.name for entry in entries if not entry.where.startswith(("not prepared", "broken"))]
    lines = [("data sets", f"here: {', '.join(here)}")]
    lines += [("", f"not prepared: {', '.join(missing)}; `fedsim data prepare NAME`")] if missing else []
    return lines + [("", where) for where in broken]


def _extras() -> list[tuple[str, str]]:
    """What is not installed."""
    missing = [extra for extra in EXTRAS if importlib.util.find_spec(extra.module) is None]
    lines = [f"{extra.module}, for {extra.serves}: pip install 'fedsim[{extra.name}]'" for extra in missing]
    return [("missing" if line == lines[0] else "", line) for line in lines] or [("missing", "nothing")]
