"""The introductory example (Sec. 3.3, Fig. 1): three clients in the plane, the true line and the learned lines."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.core.types import ClientData
from fedsim.datasets.separable_2d import NORMAL
from fedsim.errors import RunFolderError
from fedsim.paper.claims import Claim, Measurement, Statement
from fedsim.paper.settings import find_setting
from fedsim.report import style
from fedsim.report.names import aggregator_name
from fedsim.report.results import Results
from fedsim.report.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ANGLE = 10.0
"""In degrees."""
TITLES = {"none": "Clean", "shift": "Features of {} shifted", "flipping": "Labels of {} all one class"}
CLASS_COLORS = (style.COLORS[1], style.COLORS[0])
CLIENT_MARKERS = ("o", "s", "^")
LINE_STYLES: dict[str, dict[str, Any]] = {
    "true line": {"color": "black", "linestyle": ":"},
    "FedAvg": {"color": style.COLORS[4], "linestyle": "--"},
    "ARFL": {"color": style.COLORS[2], "linestyle": "-"},
}


class SeparatingLine(NamedTuple):
    """A line w . x + b = 0 in the plane; class 1 is on its positive side."""

    normal: np.ndarray
    """w, [2]."""
    offset: float
    """b."""

    @property
    def angle(self) -> float:
        """Angle in degrees (0 to 180) between its normal and the true line's, both pointing towards class 1."""
        cosine = self.normal @ NORMAL / np.linalg.norm(self.normal)
        return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))

    @property
    def distance(self) -> float:
        """Distance from the origin, which the true line passes through."""
        return abs(self.offset) / float(np.linalg.norm(self.normal))


def extract_line(params: dict[str, np.ndarray]) -> SeparatingLine | None:
    """The line of a logistic regression with two logits; None for another model."""
    kernels = [value for path, value in params.items() if path.endswith("kernel")]
    biases = [value for path, value in params.items() if path.endswith("bias")]
    if len(kernels) != 1 or len(biases) != 1 or kernels[0].shape != (2, 2):
        return None
    return SeparatingLine(np.diff(kernels[0].astype(float), axis=1)[:, 0], float(np.diff(biases[0])[0]))


def read_lines(results: Results, setting: Setting | None) -> list[SeparatingLine]:
    """The learned lines of a setting's seeds; empty if the models were not saved."""
    try:
        sources = [results.sources[run] for run in setting.runs] if setting else []
        models = [results.folders[folder].read_model(run) for folder, run in sources]
    except RunFolderError:
        return []
    return [line for params in models if (line := extract_line(params)) is not None]


def claims(results: Results) -> list[Claim]:
    """FedAvg learns the true line on clean data, and one corrupted client moves it; the paper does not plot ARFL."""
    clean = read_lines(results, _find(results, "fedavg", "none"))
    text = f"Clean: FedAvg's line is within {MAX_ANGLE:g}° of the true line"
    line_claims = [Statement(text, "Fig. 1a", _is_close).check(clean or None)]
    for kind, published in (("shift", "Fig. 1b: far away"), ("flipping", "Fig. 1c: far away")):
        fedavg, arfl = (read_lines(results, _find(results, rule, kind)) for rule in ("fedavg", "arfl"))
        text = f"{_title(kind)}: FedAvg's line is farther from the true line than on clean data"
        line_claims.append(Statement(text, published, _is_farther).check(fedavg, clean))
        text = f"{_title(kind)}: ARFL's line is closer to the true line than FedAvg's"
        line_claims.append(Statement(text, "not given", _is_closer).check(arfl, fedavg))
    return line_claims


def _is_close(clean: list[SeparatingLine]) -> Measurement:
    return Measurement(_format_mean(clean), MAX_ANGLE - _angles(clean), "degrees")


def _is_farther(lines: list[SeparatingLine], reference: list[SeparatingLine], sign: int = 1) -> Measurement | None:
    """Whether lines are farther from the true line than others (sign 1), or closer (-1), by seed."""
    if not 0 < len(lines) == len(reference):
        return None
    return Measurement(_format_mean(lines), sign * (_angles(lines) - _angles(reference)), "degrees")


def _is_closer(lines: list[SeparatingLine], reference: list[SeparatingLine]) -> Measurement | None:
    return _is_farther(lines, reference, sign=-1)


def _title(kind: str, who: str = "client 0") -> str:
    return TITLES[kind].format(who)


def _find(results: Results, rule: str, kind: str) -> Setting | None:
    return find_setting(results, {"server.aggregator": rule, "corruption.kind": kind, "data.name": "separable_2d"})


def _angles(lines: list[SeparatingLine]) -> np.ndarray:
    return np.asarray([line.angle for line in lines])


def _format_mean(lines: list[SeparatingLine]) -> str:
    return f"{_angles(lines).mean():.1f}°, {np.mean([line.distance for line in lines]):.2f} from the origin"


def read_examples(results: Results, kind: str) -> ClientData | None:
    """The first seed's data under a kind of corruption; None if they were not saved, or the kind was not run."""
    setting = _find(results, "fedavg", kind) or _find(results, "arfl", kind)
    if setting is None:
        return None
    try:
        folder, run = results.sources[setting.runs[0]]
        data: dict[str, Any] = results.folders[folder].read_data(run)
    except RunFolderError:
        return None
    return ClientData(**data)


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 1 for the first seed: each client's training examples, the true and the learned lines."""
    shown = {kind: data for kind in TITLES if (data := read_examples(results, kind)) is not None}
    if not shown:
        return {}
    figure, panels = style.panels(len(shown))
    limit = max(float(np.abs(data.x).max()) for data in shown.values()) + 0.5
    for panel, (kind, data) in zip(panels, shown.items(), strict=True):
        _draw_examples(panel, data)
        _draw_line(panel, SeparatingLine(NORMAL, 0.0), "true line")
        for rule in ("fedavg", "arfl"):
            for line in read_lines(results, _find(results, rule, kind))[:1]:
                _draw_line(panel, line, aggregator_name(rule))
        panel.set_title(_title(kind, "client " + ", ".join(map(str, np.flatnonzero(data.corrupted)))))
        panel.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xlabel="$x_1$")
    panels[0].set_ylabel("$x_2$")
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4)
    return {"intro": figure}


def _draw_examples(panel: Any, data: ClientData) -> None:
    for client, (start, num_examples) in enumerate(zip(data.offsets, data.num_examples, strict=True)):
        x, y = data.x[start : start + num_examples], data.y[start : start + num_examples]
        marker = CLIENT_MARKERS[client % len(CLIENT_MARKERS)]
        for label, color in enumerate(CLASS_COLORS):
            panel.scatter(*x[y == label].T, color=color, marker=marker, s=9, alpha=0.6, linewidths=0)


def _draw_line(panel: Any, line: SeparatingLine, name: str) -> None:
    foot = -line.offset * line.normal / (line.normal @ line.normal)
    panel.axline(foot, foot + np.asarray([-line.normal[1], line.normal[0]]), **LINE_STYLES[name])


def _legend() -> list[Any]:
    """Handles for the classes (colors), clients (markers) and lines."""
    from matplotlib.lines import Line2D

    dot = lambda color, marker, label: Line2D([], [], color=color, marker=marker, linestyle="", label=label)
    classes = [dot(color, "o", f"class {label}") for label, color in enumerate(CLASS_COLORS)]
    clients = [dot("0.5", marker, f"client {client}") for client, marker in enumerate(CLIENT_MARKERS)]
    return [*classes, *clients, *(Line2D([], [], label=name, **look) for name, look in LINE_STYLES.items())]
