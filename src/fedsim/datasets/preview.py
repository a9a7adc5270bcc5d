"""A figure that previews a data set: some examples with their labels, and the sizes of clients or classes."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedsim.datasets.raw import RawDataset
from fedsim.datasets.text import decode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS, COLUMNS = 4, 8
MAX_CHARACTERS = 120  # of all class names on the axis, before they are rotated
MAX_LABELS = 3  # shown per example
BLUE, ORANGE = "#0072B2", "#E69F00"


def plot_preview(raw: RawDataset) -> "Figure":
    """Random examples, and a histogram of client sizes, or of labels if there are no natural clients."""
    from matplotlib.figure import Figure

    indices = np.sort(np.random.default_rng(0).choice(len(raw.y), min(ROWS * COLUMNS, len(raw.y)), replace=False))
    figure = Figure(figsize=(9, 7), layout="constrained")
    subfigures: Any = figure.subfigures(2, 1, height_ratios=[2, 1])
    top, bottom = subfigures
    if raw.inputs == "text":
        _draw_texts(top, raw, indices[::2])
    elif raw.inputs == "image":
        _draw_images(top, raw, indices)
    else:
        top.text(0.5, 0.5, f"inputs are {raw.x.dtype} of shape {raw.x.shape[1:]}", ha="center")
    axes = bottom.subplots()
    if raw.client_ids is not None:
        _draw_client_sizes(axes, raw.client_ids)
    elif raw.num_classes:
        _draw_classes(axes, raw)
    else:
        _draw_numbers(axes, raw)
    axes.margins(y=0.25)
    axes.legend(loc="upper left", ncols=2)
    figure.suptitle(f"{raw.name}: {describe_size(raw)}")
    return figure


def describe_size(raw: RawDataset) -> str:
    """For example "489 clients, 67,423 training and 7,727 test examples"."""
    clients = "" if raw.client_ids is None else f"{len(np.unique(raw.client_ids)):,} clients, "
    if len(raw.y_test) == 0:
        return f"{clients}{len(raw.y):,} examples, not split"
    return f"{clients}{len(raw.y):,} training and {len(raw.y_test):,} test examples"


def format_label(raw: RawDataset, y: ArrayLike) -> str:
    """The class name or number `y` as text; the first few if there are several."""
    words = [_format_value(raw, value) for value in np.ravel(y)[:MAX_LABELS]]
    return ", ".join(words) + (" ..." if np.size(y) > MAX_LABELS else "")


def _format_value(raw: RawDataset, y: Any) -> str:
    if not raw.num_classes:
        return f"{y:.3g}"
    name = str(int(y)) if raw.label_names is None else str(raw.label_names[int(y)])
    return {" ": "space", "\n": "line break"}.get(name, name)


def _draw_images(figure: Any, raw: RawDataset, indices: np.ndarray) -> None:
    for axes, i in zip(figure.subplots(ROWS, COLUMNS).ravel(), indices, strict=False):
        axes.imshow(raw.x[i].squeeze(), cmap="gray" if raw.x.shape[-1] == 1 else None)
        axes.set_title(format_label(raw, raw.y[i]), fontsize=9)
    for axes in figure.axes:
        axes.axis("off")


def _draw_texts(figure: Any, raw: RawDataset, indices: np.ndarray) -> None:
    for row, i in enumerate(indices):
        line = f"{decode(raw.x[i])!r:<84} → {format_label(raw, raw.y[i])}"
        figure.text(0.02, 0.95 - 0.9 * row / len(indices), line, family="monospace", fontsize=8, va="top")


def _draw_client_sizes(axes: Any, client_ids: np.ndarray) -> None:
    sizes = np.unique(client_ids, return_counts=True)[1]
    axes.hist(sizes, bins=np.geomspace(1, np.max(sizes) + 1, 40), color=BLUE, label="clients")
    axes.axvline(np.median(sizes), color=ORANGE, label=f"median {np.median(sizes):,.0f}")
    axes.set_xscale("log")
    axes.set_xlabel("Training examples of a client")
    axes.set_ylabel("Clients")


def _draw_classes(axes: Any, raw: RawDataset) -> None:
    positions = np.arange(raw.num_classes)
    for shift, y, color, name in ((-0.2, raw.y, BLUE, "training"), (0.2, raw.y_test, ORANGE, "test")):
        axes.bar(positions + shift, np.bincount(y.ravel(), minlength=raw.num_classes), 0.4, color=color, label=name)
    names = [format_label(raw, k) for k in range(raw.num_classes)]
    is_crowded = sum(map(len, names)) > MAX_CHARACTERS
    axes.set_xticks(positions, names, fontsize=5 if is_crowded else 8, rotation=90 if is_crowded else 0)
    axes.set_xlabel("Class")
    axes.set_ylabel("Examples" if raw.y.ndim == 1 else "Labels")


def _draw_numbers(axes: Any, raw: RawDataset) -> None:
    parts = [raw.y.ravel(), raw.y_test.ravel()]
    axes.hist(parts, bins=20, color=[BLUE, ORANGE], label=["training", "test"])
    axes.set_xlabel("Label")
    axes.set_ylabel("Labels")
