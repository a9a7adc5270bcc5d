"""The charts of the page in Vega-Lite; `static/page.js` adds the rows, the order of names, their colors and titles."""

from typing import Any

Spec = dict[str, Any]

WIDE = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
ROUND = {
    "field": "round",
    "type": "quantitative",
    "axis": {"title": "Round", "format": "d", "tickMinStep": 1, "grid": False},
    "scale": {"nice": False},
}
PARTS = "length(datum.label) > 30 ? split(datum.label, ', ') : datum.label"  # of a long name, a line each
LEGEND = {"orient": "bottom", "symbolType": "stroke", "symbolSize": 300, "labelLimit": 330, "columns": 1}


def charts() -> dict[str, Spec]:
    """By name: the heat map, the curves over rounds, and the weights of clients."""
    return {"map": _heat_map(), "curves": _curves(), "weights": _client_weights()}


def _chart(encoding: Spec, layer: list[Spec], **keys: Any) -> Spec:
    return {**keys, "encoding": encoding, "layer": layer}


def _heat_map() -> Spec:
    """A mean and its deviation for each row and column; a click on one, or on a name, selects."""
    clickable = {"encoding": {"labels": {"interactive": True}}, "domain": False, "ticks": False}
    axes = {"row": {"title": None, "labelExpr": PARTS, "labelLineHeight": 11}, "column": {"orient": "top", "titleAnchor": "start", "labelLimit": 130}}
    axis = lambda name: {"field": name, "type": "nominal", "axis": axes[name] | clickable}
    level = {"field": "level", "type": "quantitative", "legend": None, "scale": {"scheme": "cividis", "domain": [0, 1]}}
    chosen = {"condition": {"test": "datum.selected", "value": "#ff5a1f"}, "value": None}
    ink = {"condition": {"test": "datum.bright", "value": "black"}, "value": "white"}
    text = lambda field, size, dy: {
        "mark": {"type": "text", "fontSize": size, "dy": dy, "cursor": "pointer"},
        "encoding": {"text": {"field": field}, "color": ink},
    }
    return _chart(
        {"x": axis("column"), "y": axis("row"), "tooltip": {"field": "tip"}},
        [
            {
                "mark": {"type": "rect", "cursor": "pointer", "strokeWidth": 2.5, "xOffset": 1, "yOffset": 1},
                "encoding": {"color": level, "stroke": chosen},
            },
            text("short", 12, -5),
            text("deviation", 9, 8),
        ],
        width={"step": 50},
        height={"step": 32},
    )


def _curves() -> Spec:
    """A metric over rounds: the mean with a band from the lowest to the highest, a line a setting."""
    name = {"field": "name", "type": "nominal", "title": None, "legend": LEGEND}
    value = {"field": "mean", "type": "quantitative", "scale": {"zero": False}}
    fill = {"field": "color", "type": "nominal", "scale": None}
    shown = {"condition": {"test": "datum.alone", "value": 1}, "value": 0}  # or its tooltip alone
    tips = [{"field": field} for field in ("name", "round", "mean", "lowest", "highest")]
    return _chart(
        {"x": ROUND, "detail": {"field": "name"}},
        [
            {
                "mark": {"type": "area", "opacity": 0.13},
                "encoding": {"y": value | {"field": "lowest"}, "y2": {"field": "highest"}, "fill": fill},
            },
            {"mark": "line", "encoding": {"y": value, "stroke": name, "strokeDash": name}},
            {
                "mark": {"type": "circle", "size": 80},
                "encoding": {"y": value, "fill": fill, "opacity": shown, "tooltip": tips},
            },
        ],
        height=300,
        **WIDE,
    )


def _client_weights() -> Spec:
    """A line a client, interrupted where the client was not in the cohort."""
    kind = lambda looks: {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "legend": LEGEND | {"columns": 2},
        "scale": {"domain": ["benign client", "corrupted client"], "range": looks},
    }
    looks = {"stroke": kind(["#3c8dc4", "#d55e00"]), "strokeDash": kind([[1, 0], [5, 3]])}
    ink = {"condition": {"test": "datum.kind == 'benign client'", "value": "#3c8dc4"}, "value": "#d55e00"}
    value = {"field": "weight", "type": "quantitative"}
    return _chart(
        {"x": ROUND, "y": value, "detail": {"field": "client"}, "tooltip": [{"field": "client"}, {"field": "kind"}]},
        [
            {"mark": {"type": "line", "strokeWidth": 1.3, "invalid": "break-paths-show-path-domains"}, "encoding": looks},
            {"mark": {"type": "circle", "size": 12}, "transform": [{"filter": "datum.alone"}], "encoding": {"fill": ink}},
        ],
        height=220,
        **WIDE,
    )
