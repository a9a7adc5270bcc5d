"""A picture of a data set: some examples with their labels, and how many each client, or class, has."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.datasets.raw import RawDataset
from fedsim.datasets.text import decode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS, COLUMNS = 4, 8  # of examples
BLUE, ORANGE = "#0072B2", "#E69F00"


def picture(raw: RawDataset, seed: int = 0) -> "Figure":
    """Examples drawn by `seed`, and the sizes of the clients, or of the classes where there are no natural clients."""
    from matplotlib.figure import Figure

    chosen = np.sort(np.random.default_rng(seed).choice(len(raw.y), min(ROWS * COLUMNS, len(raw.y)), replace=False))
    figure = Figure(figsize=(9, 7), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[2, 1])
    above, below = halves
    if raw.x.dtype == np.int8:
        _texts(above, raw, chosen[::2])
    elif raw.x.ndim == 4:
        _images(above, raw, chosen)
    else:
        above.text(0.5, 0.5, f"inputs are {raw.x.dtype} of shape {raw.x.shape[1:]}", ha="center")
    _sizes(below.subplots(), raw)
    figure.suptitle(f"{raw.name}: {describe_size(raw)}")
    return figure


def describe_size(raw: RawDataset) -> str:
    """For example "489 clients, 67,423 training and 7,727 test examples"."""
    clients = "" if raw.client_ids is None else f"{len(np.unique(raw.client_ids)):,} clients, "
    if len(raw.y_test) == 0:
        return f"{clients}{len(raw.y):,} examples, not split"
    return f"{clients}{len(raw.y):,} training and {len(raw.y_test):,} test examples"


def label(raw: RawDataset, y: int) -> str:
    """The name of class `y`."""
    name = str(y) if raw.label_names is None else str(raw.label_names[y])
    return {" ": "space", "\n": "line break"}.get(name, name)


def _images(figure: Any, raw: RawDataset, chosen: np.ndarray) -> None:
    for axes, i in zip(figure.subplots(ROWS, COLUMNS).ravel(), chosen, strict=False):
        axes.imshow(raw.x[i].squeeze(), cmap="gray" if raw.x.shape[-1] == 1 else None)
        axes.set_title(label(raw, int(raw.y[i])), fontsize=9)
    for axes in figure.axes:
        axes.axis("off")


def _texts(figure: Any, raw: RawDataset, chosen: np.ndarray) -> None:
    for row, i in enumerate(chosen):
        line = f"{decode(raw.x[i])!r:<84} → {label(raw, int(raw.y[i]))}"
        figure.text(0.02, 0.95 - 0.9 * row / len(chosen), line, family="monospace", fontsize=8, va="top")


def _sizes(axes: Any, raw: RawDataset) -> None:
    if raw.client_ids is None:
        counts = [np.bincount(y, minlength=raw.num_classes) for y in (raw.y, raw.y_test)]
        positions = np.arange(raw.num_classes)
        for shift, count, colour, name in zip((-0.2, 0.2), counts, (BLUE, ORANGE), ("training", "test"), strict=True):
            axes.bar(positions + shift, count, 0.4, color=colour, label=name)
        axes.set_xticks(positions, [label(raw, k) for k in range(raw.num_classes)], fontsize=8)
        axes.set_xlabel("Class")
        axes.set_ylabel("Examples")
    else:
        sizes = np.unique(raw.client_ids, return_counts=True)[1]
        axes.hist(sizes, bins=np.geomspace(1, np.max(sizes) + 1, 40), color=BLUE, label="clients")
        axes.axvline(np.median(sizes), color=ORANGE, label=f"median {np.median(sizes):,.0f}")
        axes.set_xscale("log")
        axes.set_xlabel("Training examples of a client")
        axes.set_ylabel("Clients")
    axes.margins(y=0.25)
    axes.legend(loc="upper left", ncols=2)
