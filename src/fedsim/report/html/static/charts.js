// The charts in Vega-Lite.

const [BENIGN, BYZANTINE] = [["benign client", "#3c8dc4"], ["corrupted or malicious client", "#d55e00"]];
const nominal = (field, more) => ({ field, type: "nominal", title: null, ...more });
const number = (field, more) => ({ field, type: "quantitative", scale: { zero: false, nice: false }, ...more });
const WHOLE = "datum.value % 1 ? '' : datum.value";
const rounds = number("round", { axis: { title: "Round", labelExpr: WHOLE, grid: false } });
const SHORT_KEYS = "replace(datum.label, regexp('\\\\w+\\\\.(?=\\\\w+=)', 'g'), '')"; // without their sections
const keysOf = (name) => [...name.matchAll(/\.(\w+)=/g)].map((match) => match[1]);
const fill = nominal("color", { scale: null });
const wide = (height) => ({ width: "container", height, autosize: { type: "fit-x", contains: "padding" } });
const legend = (more) => ({ orient: "bottom", symbolType: "stroke", symbolSize: 300, ...more });

// A mean and its deviation for each row and column.
function heatMap({ columns, rows, cells, title, step, limit }) {
  const names = { domain: false, ticks: false };
  const isLong = Math.max(...columns.map(({ length }) => length)) > step / 7;
  const top = { ...names, orient: "top", title, titleAnchor: "start", labelAngle: isLong ? -40 : 0, labelLimit: 130 };
  const areDifferent = rows.map(keysOf).every((keys) => new Set(keys).size === keys.length);
  const left = { ...names, labelLimit: limit, labelExpr: areDifferent ? SHORT_KEYS : "datum.label" };
  const when = (test, yes, no) => ({ condition: { test, value: yes }, value: no });
  const color = number("level", { legend: null, scale: { scheme: "cividis", domain: [0, 1] } });
  const text = (field, fontSize, dy) => ({
    mark: { type: "text", fontSize, dy, cursor: "pointer" },
    encoding: { text: { field }, color: when("datum.bright", "black", "white") },
  });
  const outline = { type: "rect", filled: false, stroke: "#ff5a1f", strokeWidth: 2.5, cursor: "pointer" };
  return {
    data: { values: cells }, width: { step }, height: { step: 32 },
    encoding: {
      x: nominal("column", { sort: columns, axis: top }), y: nominal("row", { sort: rows, axis: left }),
      tooltip: { field: "tip" },
    },
    layer: [
      { mark: { type: "rect", cursor: "pointer" }, encoding: { color } },
      text("short", 12, cells.some(({ deviation }) => deviation) ? -5 : 0), text("deviation", 9, 8),
      { mark: outline, transform: [{ filter: "datum.selected" }] },
    ],
  };
}

// Makes the names of rows and columns, which Vega-Lite cannot, react to clicks.
function withClickableNames(vega) {
  for (const axis of vega.axes ?? []) {
    const update = { ...axis.encode?.labels?.update, cursor: { value: "pointer" } };
    axis.encode = { labels: { interactive: true, update } };
  }
  return vega;
}

// Means over rounds with a band from the lowest to the highest; a line for each of `names`.
function curves({ values, names, colors, dashes, title, type, width }) {
  const fitting = Math.floor(width / (45 + 7 * Math.max(...names.map(({ length }) => length))));
  const key = legend({ columns: fitting || 1, labelLimit: Math.max(width - 160, 100) });
  const look = (range) => nominal("name", { scale: { domain: names, range }, legend: key });
  const y = number("mean", { title, scale: type === "log" ? { type } : { zero: false } }), low = { ...y, field: "lowest" };
  const opacity = { condition: { test: "datum.alone", value: 1 }, value: 0 }; // invisible points have tooltips
  const tooltip = ["name", "round", "mean", "lowest", "highest"].map((field) => ({ field }));
  return {
    data: { values }, ...wide(300), encoding: { x: rounds, detail: { field: "name" } },
    layer: [
      { mark: { type: "area", opacity: 0.13 }, encoding: { y: low, y2: { field: "highest" }, fill } },
      { mark: "line", encoding: { y, stroke: look(colors), strokeDash: look(dashes) } },
      { mark: { type: "circle", size: 80 }, encoding: { y, fill, opacity, tooltip } },
    ],
  };
}

// A line a client, interrupted where the client was not in the cohort.
function clientWeights(values, title) {
  const [domain, colors] = [[BENIGN[0], BYZANTINE[0]], [BENIGN[1], BYZANTINE[1]]], key = legend({ labelLimit: 300 });
  const look = (range) => nominal("kind", { scale: { domain, range }, legend: key });
  const line = { type: "line", strokeWidth: 1.3, invalid: "break-paths-show-path-domains" };
  const y = number("weight", { title, scale: { zero: true } });
  const tooltip = ["client", "kind"].map((field) => ({ field }));
  return {
    data: { values }, ...wide(220), encoding: { x: rounds, y, detail: { field: "client" }, tooltip },
    layer: [
      { mark: line, encoding: { stroke: look(colors), strokeDash: look([[1, 0], [5, 3]]) } },
      { mark: { type: "circle", size: 12 }, transform: [{ filter: "datum.alone" }], encoding: { fill } },
    ],
  };
}
